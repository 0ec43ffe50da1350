"""The options of ``pyattnorg rank``, ``ablate`` and ``prune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyattnorg.cli.failures import one_line
from pyattnorg.cli.options import (
    Debug,
    Device,
    Dtype,
    Images,
    Json,
    Model,
    ModelOption,
    Overwrite,
    Quiet,
    Revision,
    TextFiles,
    Texts,
    Threads,
    named_model,
)

HeadNames = Annotated[str | None, typer.Option("--heads", help="Heads, such as 'L3H5,L4H0' or 'L3H*'.")]
Lowest = Annotated[
    float | None, typer.Option(min=0, help="Instead of --heads: this share of all heads, those that --by ranks lowest.")
]
By = Annotated[str, typer.Option(help="Measure to rank by; `pyattnorg rank` lists them.")]
Seed = Annotated[int, typer.Option(help="Seed of random scores and projections.")]


def rank(
    model: Model = None,
    model_name_or_path: ModelOption = None,
    *,
    text: Texts = None,
    text_file: TextFiles = None,
    image: Images = None,
    by: Annotated[str | None, typer.Option(help="Measures, with commas between them; all without it.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Heads to name for each measure.")] = 8,
    seed: Seed = 0,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    threads: Threads = None,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Rank a model's heads by how much they are to be kept, over one input or several.

    --json prints every head's mean score and spread by every measure.
    """
    named = named_model(model, model_name_or_path)
    with one_line(debug):
        from pyattnorg.cli import acting

        measures = None if by is None else tuple(part for part in by.replace(" ", "").split(",") if part)
        job = acting.Job(
            named, text, text_file, image, {"device": device, "dtype": dtype, "revision": revision}, threads
        )
        acting.rank(job, measures, top, seed, quiet=quiet, as_json=json)


def ablate(
    model: Model = None,
    model_name_or_path: ModelOption = None,
    *,
    text: Texts = None,
    text_file: TextFiles = None,
    image: Images = None,
    heads: HeadNames = None,
    lowest: Lowest = None,
    by: By = "gradient",
    mode: Annotated[str, typer.Option(help="What takes a head's place: zero, or its mean over the inputs.")] = "zero",
    each: Annotated[bool, typer.Option("--each", help="Ablate the heads one by one, not all together.")] = False,
    seed: Seed = 0,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    threads: Threads = None,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run a model without some of its heads, and tell what that does to its output and loss."""
    named = named_model(model, model_name_or_path)
    with one_line(debug):
        from pyattnorg.cli import acting

        job = acting.Job(
            named, text, text_file, image, {"device": device, "dtype": dtype, "revision": revision}, threads
        )
        which = acting.Which(heads, lowest, by, seed)
        acting.ablate(job, which, mode, each=each, quiet=quiet, as_json=json)


def prune(
    model: Model = None,
    model_name_or_path: ModelOption = None,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the pruned model.")],
    text: Texts = None,
    text_file: TextFiles = None,
    image: Images = None,
    heads: HeadNames = None,
    lowest: Lowest = None,
    by: By = "gradient",
    mean: Annotated[
        bool, typer.Option("--mean", help="Add what the heads gave on average to their layer's bias.")
    ] = False,
    otherwise: Annotated[
        str, typer.Option(help="What becomes of heads that cannot be taken out: refuse, or zero their output.")
    ] = "refuse",
    seed: Seed = 0,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Take heads out of a model's weights and save it; pyattnorg.load_pruned reads it back.

    The input is needed to check the pruned model against the ablated one, and to time both.
    """
    named = named_model(model, model_name_or_path)
    with one_line(debug):
        from pyattnorg.cli import acting

        job = acting.Job(
            named, text, text_file, image, {"device": device, "dtype": dtype, "revision": revision}, threads
        )
        which = acting.Which(heads, lowest, by, seed)
        acting.prune(job, which, out, mean=mean, otherwise=otherwise, overwrite=overwrite, quiet=quiet, as_json=json)


__all__ = ["ablate", "prune", "rank"]
