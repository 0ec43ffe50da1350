"""The options of ``pyattnorg analyze``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from pyattnorg.cli.failures import one_line
from pyattnorg.cli.options import (
    Debug,
    Dtype,
    Group,
    HeadsSeen,
    Images,
    Json,
    Kind,
    Layers,
    MaxLength,
    ModelOption,
    Overwrite,
    Quiet,
    Revision,
    Setting,
    TextFiles,
    Texts,
    Threads,
    named_model,
)
from pyattnorg.cli.sources import is_store


class Masked(str, Enum):
    """What stands in cells that the model cannot see."""

    mean = "mean"
    floor = "floor"
    raw = "raw"


class Tree(str, Enum):
    """Kinds of trees."""

    entropy = "entropy"
    flexible = "flexible"
    binary = "binary"


class Schedule(str, Enum):
    """Which trees each step looks at."""

    refined = "refined"
    paper = "paper"


def analyze(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL", show_default=False, help="A transformers id or folder, timm/NAME, or a store of `capture`."
        ),
    ] = None,
    model_name_or_path: ModelOption = None,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")],
    text: Texts = None,
    text_file: TextFiles = None,
    image: Images = None,
    kind: Annotated[Kind, typer.Option(help="Attention after softmax (weights) or before it (scores).")] = Kind.weights,
    layers: Layers = None,
    heads: HeadsSeen = None,
    group: Group = None,
    max_length: MaxLength = None,
    masked: Annotated[
        Masked, typer.Option(help="What stands in cells of scores that the model cannot see.")
    ] = Masked.mean,
    n_iter: Annotated[
        int | None,
        typer.Option(
            min=1, help="Rounds of the questionnaire at most; without it 3, of entropy trees until they settle."
        ),
    ] = None,
    tree: Annotated[
        Tree | None, typer.Option(help="Kind of trees; without it entropy, and flexible with --schedule paper.")
    ] = None,
    schedule: Annotated[
        Schedule | None, typer.Option(help="Always the latest trees (refined, without it), or as the paper does.")
    ] = None,
    setting: Setting = None,
    head: Annotated[str | None, typer.Option(help="Head that the report shows; the most involved without it.")] = None,
    device: Annotated[
        str | None, typer.Option(help="Device to run the model and to organise on, such as 'cuda'.")
    ] = None,
    dtype: Dtype = None,
    revision: Revision = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Capture a model's attention, organise it, and write a report.

    OUT will hold report.html, organization.npz (pyattnorg.load reads it) and heads.csv. Of several inputs each has a
    folder of its own, OUT/1, OUT/2 and so on, and OUT holds what they share: folders.csv and folders.svg, the folders
    of heads that are there whatever the input, and inputs.csv.
    """
    named = named_model(model, model_name_or_path)
    given = sum(given is not None for given in (text, text_file, image))
    stored = is_store(named)
    if given != (0 if stored else 1):
        one = "give exactly one of them, once or several times"
        what = "give none of them, the store has its input" if stored else one
        raise typer.BadParameter(what, param_hint="--text, --text-file, --image")
    with one_line(debug):
        from pyattnorg.cli import job
        from pyattnorg.cli.settings import settings
        from pyattnorg.cli.sources import of_store, read_sources, short_name

        inputs = [of_store(named)] if stored else read_sources(text, text_file, image)
        task = job.Job(
            model=named,
            name=short_name(named),
            source=inputs[0],
            out=out,
            kind=kind.value,
            layers=layers,
            heads=heads,
            group=group,
            max_length=max_length,
            masked=masked.value,
            options=settings(
                setting, {"n_iter": n_iter, "tree": tree and tree.value, "schedule": schedule and schedule.value}
            ),
            head=head,
            loading={"device": device, "dtype": dtype, "revision": revision},
            threads=threads,
            overwrite=overwrite,
        )
        if len(inputs) == 1:
            job.run(task, quiet=quiet, as_json=json)
        else:
            from pyattnorg.cli import several

            several.analyze(task, inputs, quiet=quiet, as_json=json)


__all__ = ["analyze"]
