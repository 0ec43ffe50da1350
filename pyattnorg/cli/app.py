"""The commands. What they need is imported when they run, so that help comes at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyattnorg._version import __version__
from pyattnorg.cli.analyze_command import analyze
from pyattnorg.cli.capture_command import capture
from pyattnorg.cli.compare_command import compare
from pyattnorg.cli.compress_commands import compress, decompress
from pyattnorg.cli.consensus_command import consensus
from pyattnorg.cli.failures import one_line
from pyattnorg.cli.heads_commands import ablate, prune, rank
from pyattnorg.cli.options import Debug, Json, Overwrite, Quiet, Threads

app = typer.Typer(
    name="pyattnorg",
    help="See how a transformer's attention is organised.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


app.command()(analyze)
app.command()(capture)
app.command()(consensus)
app.command()(compare)
app.command()(rank)
app.command()(ablate)
app.command()(prune)
app.command()(compress)
app.command()(decompress)


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
