"""The commands and their options. What they need is imported when they run, so that help comes at once."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from pyattnorg._version import __version__
from pyattnorg.cli.capture_command import capture
from pyattnorg.cli.compare_command import compare
from pyattnorg.cli.compress_commands import compress, decompress
from pyattnorg.cli.failures import one_line
from pyattnorg.cli.heads_commands import ablate, prune, rank
from pyattnorg.cli.options import Debug, Json, Overwrite, Quiet, Setting, Threads, named_model
from pyattnorg.cli.sources import is_store

app = typer.Typer(
    name="pyattnorg",
    help="See how a transformer's attention is organised.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Kind(str, Enum):
    """Attention after softmax, or before it."""

    weights = "weights"
    scores = "scores"


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


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pyattnorg {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("demo-report"),
    model: Annotated[Path | None, typer.Option(help="Folder of the model, where its package is not installed.")] = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Organise the 72 heads of a small pretrained model, MiniLM, on a page of Alice in Wonderland."""
    with one_line(debug):
        from pyattnorg.cli import job
        from pyattnorg.cli.sources import demo_model, demo_text

        folder = demo_model() if model is None else model
        name = "all-MiniLM-L6-v2" if model is None else model.name
        job.run(
            job.Job(model=str(folder), name=name, source=demo_text(), out=out, threads=threads, overwrite=overwrite),
            quiet=quiet,
            as_json=json,
        )


app.command()(capture)
app.command()(compare)
app.command()(rank)
app.command()(ablate)
app.command()(prune)
app.command()(compress)
app.command()(decompress)


@app.command()
def analyze(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL", show_default=False, help="A transformers id or folder, timm/NAME, or a store of `capture`."
        ),
    ] = None,
    model_name_or_path: Annotated[
        str | None, typer.Option("--model_name_or_path", "--model", hidden=True, help="MODEL, as other tools spell it.")
    ] = None,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")],
    text: Annotated[str | None, typer.Option(help="Text to read.")] = None,
    text_file: Annotated[Path | None, typer.Option(help="File with the text (UTF-8).")] = None,
    image: Annotated[Path | None, typer.Option(help="Image to look at.")] = None,
    kind: Annotated[Kind, typer.Option(help="Attention after softmax (weights) or before it (scores).")] = Kind.weights,
    layers: Annotated[str | None, typer.Option(help="Layers to look at, from 0: '0-3,7'. All without it.")] = None,
    heads: Annotated[str | None, typer.Option(help="Heads to look at: 'L3H*', 'L0H1,L5H2'. All without it.")] = None,
    group: Annotated[str | None, typer.Option(help="Part of a model that has several, such as 'encoder'.")] = None,
    max_length: Annotated[int | None, typer.Option(min=1, help="Cut the text to this many tokens.")] = None,
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
    dtype: Annotated[str | None, typer.Option(help="Number format of the model, such as 'bfloat16'.")] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of a model on a hub.")] = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Capture a model's attention on one input, organise it, and write a report.

    OUT will hold report.html, organization.npz (pyattnorg.load reads it) and heads.csv.
    """
    named = named_model(model, model_name_or_path)
    given = sum(given is not None for given in (text, text_file, image))
    stored = is_store(named)
    if given != (0 if stored else 1):
        what = "give none of them, the store has its input" if stored else "give exactly one of them"
        raise typer.BadParameter(what, param_hint="--text, --text-file, --image")
    with one_line(debug):
        from pyattnorg.cli import job
        from pyattnorg.cli.settings import settings
        from pyattnorg.cli.sources import of_store, read_source, short_name

        task = job.Job(
            model=named,
            name=short_name(named),
            source=of_store(named) if stored else read_source(text, text_file, image),
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
        job.run(task, quiet=quiet, as_json=json)


@app.command()
def info(json: Json = False, debug: Debug = False) -> None:
    """Tell what this installation is and uses: versions, instruction set, threads, CUDA."""
    with one_line(debug):
        from pyattnorg.cli.summary import print_json
        from pyattnorg.config import configuration

        found = configuration()
        if json:
            print_json(found)
        else:
            for name, value in found.items():
                typer.echo(f"{name:16s} {value}")


__all__ = ["app"]
