"""The options of ``pyattnorg capture``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pyattnorg.cli.failures import one_line
from pyattnorg.cli.options import (
    Debug,
    Device,
    Dtype,
    Image,
    Json,
    MaxLength,
    Model,
    ModelOption,
    Overwrite,
    Quiet,
    Revision,
    TextFile,
    Threads,
    named_model,
)


def capture(
    model: Model = None,
    model_name_or_path: ModelOption = None,
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the store, such as maps.zarr.")] = None,
    text: Annotated[str | None, typer.Option(help="Text to read, or what is said in --audio.")] = None,
    text_file: TextFile = None,
    image: Image = None,
    audio: Annotated[Path | None, typer.Option(help="WAV file to listen to.")] = None,
    layers: Annotated[str | None, typer.Option(help="Layers to keep, from 0: '0-3,7'. All without it.")] = None,
    heads: Annotated[str | None, typer.Option(help="Heads to keep: 'L3H*', 'L0H1,L5H2'. All without it.")] = None,
    queries: Annotated[str | None, typer.Option(help="Queries to keep, as a slice: '0:128', '-64:'.")] = None,
    keys: Annotated[str | None, typer.Option(help="Keys to keep, as a slice.")] = None,
    keep: Annotated[
        str, typer.Option(help="What to keep: scores, weights, or qk (queries and keys, which are small).")
    ] = "scores,weights",
    keep_dtype: Annotated[
        str | None, typer.Option(help="Number format of what is kept: float16, float32, float64.")
    ] = None,
    max_length: MaxLength = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell bytes and time, and write nothing.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Compare the model's output with and without.")] = False,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
    threads: Threads = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Capture a model's attention on one input into a store on disk, a layer at a time.

    A capture that was stopped is completed by the same command. pyattnorg.load_capture opens the store, and
    `pyattnorg analyze STORE` organises it.
    """
    named = named_model(model, model_name_or_path)
    if sum(given is not None for given in (text if audio is None else None, text_file, image, audio)) != 1:
        raise typer.BadParameter("give exactly one of them", param_hint="--text, --text-file, --image, --audio")
    with one_line(debug):
        from pyattnorg.cli import capturing
        from pyattnorg.cli.sources import read_source, short_name

        choices: dict[str, Any] = {
            "layers": layers, "heads": heads, "queries": queries, "keys": keys, "dtype": keep_dtype,
            "max_length": max_length,
        }  # fmt: skip
        choices = {name: value for name, value in choices.items() if value is not None}
        choices["keep"] = tuple(part for part in keep.replace(" ", "").split(",") if part)
        if verify and not dry_run:
            choices["verify"] = True
        task = capturing.Task(
            model=named,
            name=short_name(named),
            source=read_source(text, text_file, image, audio),
            out=out,
            choices=choices,
            loading={
                "device": device,
                "dtype": dtype,
                "revision": revision,
                "trust_remote_code": trust_remote_code or None,
            },
            threads=threads,
            overwrite=overwrite,
            dry_run=dry_run,
        )
        capturing.run(task, quiet=quiet, as_json=json)


__all__ = ["capture"]
