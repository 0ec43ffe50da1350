"""The options of ``pyattnorg rank``, ``ablate`` and ``prune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyattnorg.cli.failures import one_line
from pyattnorg.cli.options import Debug, Json, Overwrite, Quiet, Threads, named_model

Model = Annotated[
    str | None, typer.Argument(metavar="MODEL", show_default=False, help="A transformers id or folder, or timm/NAME.")
]
ModelOption = Annotated[
    str | None, typer.Option("--model_name_or_path", "--model", hidden=True, help="MODEL, as other tools spell it.")
]
Text = Annotated[list[str] | None, typer.Option("--text", help="Text to read; may be given several times.")]
TextFile = Annotated[list[Path] | None, typer.Option("--text-file", help="File with a text (UTF-8); also several.")]
Image = Annotated[list[Path] | None, typer.Option("--image", help="Image to look at; also several.")]
HeadNames = Annotated[str | None, typer.Option("--heads", help="Heads, such as 'L3H5,L4H0' or 'L3H*'.")]
Lowest = Annotated[
    float | None, typer.Option(min=0, help="Instead of --heads: this share of all heads, those that --by ranks lowest.")
]
By = Annotated[str, typer.Option(help="Measure to rank by; `pyattnorg rank` lists them.")]
Device = Annotated[str | None, typer.Option(help="Device to run the model on, such as 'cuda'.")]
Dtype = Annotated[str | None, typer.Option(help="Number format of the model, such as 'bfloat16'.")]
Revision = Annotated[str | None, typer.Option(help="Revision of a model on a hub.")]
Seed = Annotated[int, typer.Option(help="Seed of random scores and projections.")]


def rank(
    model: Model = None,
    model_name_or_path: ModelOption = None,
    *,
    text: Text = None,
    text_file: TextFile = None,
    image: Image = None,
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
    text: Text = None,
    text_file: TextFile = None,
    image: Image = None,
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
    text: Text = None,
    text_file: TextFile = None,
    image: Image = None,
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
