"""The options of ``pyattnorg compress`` and ``decompress``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyattnorg.cli.failures import one_line
from pyattnorg.cli.options import (
    Debug,
    Device,
    Dtype,
    Group,
    HeadsSeen,
    Image,
    Json,
    Kind,
    Layers,
    MaxLength,
    Overwrite,
    Quiet,
    Revision,
    Text,
    TextFile,
    Threads,
)


def compress(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            show_default=False,
            help="organization.npz of `analyze`, a store of `capture`, a transformers id or folder, or timm/NAME.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the result.")],
    error: Annotated[
        str | None, typer.Option(help="Relative error that is not to be exceeded, such as 0.05; or 'noise'.")
    ] = None,
    ratio: Annotated[
        float | None, typer.Option(help="Instead of --error: size of float32 over that of the file.")
    ] = None,
    axes: Annotated[str, typer.Option(help="auto leaves out trees that do not pay; trees uses all.")] = "auto",
    form: Annotated[
        str, typer.Option(help="What is kept: haar, factors (singular vectors of heads), or auto, the smaller.")
    ] = "haar",
    text: Text = None,
    text_file: TextFile = None,
    image: Image = None,
    kind: Annotated[
        Kind | None, typer.Option(help="Attention after softmax (weights, as without it) or before it (scores).")
    ] = None,
    layers: Layers = None,
    heads: HeadsSeen = None,
    group: Group = None,
    max_length: MaxLength = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compress a network's attention to a file, to a relative error or to a size.

    pyattnorg.load reads the file, and `pyattnorg decompress` gives it back as an array, one head or all.
    """
    with one_line(debug):
        from pyattnorg.cli import compressing

        task = compressing.Task(
            source=source,
            out=out,
            error=error,
            ratio=ratio,
            axes=axes,
            form=form,
            given=(text, text_file, image),
            kind=None if kind is None else kind.value,
            choices={"layers": layers, "heads": heads, "group": group, "max_length": max_length},
            loading={"device": device, "dtype": dtype, "revision": revision},
            threads=threads,
            overwrite=overwrite,
        )
        compressing.compress(task, quiet=quiet, as_json=json)


def decompress(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="What `compress` wrote.")],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="NumPy file: .npy for the array, .npz with names and mask.")],
    head: Annotated[
        str | None, typer.Option(help="One head, such as L3H5, read without the rest; all without it.")
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Give a compressed network back as an array: queries x keys x heads, or the matrix of one head.

    Cells that the model cannot see hold 0. A .npz has the array as "values", and of networks "heads", their labels,
    "queries" and "keys", the tokens where they are known, and "visible", where a mask is.
    """
    with one_line(debug):
        from pyattnorg.cli import compressing

        compressing.decompress(file, out, head, overwrite=overwrite, quiet=quiet, as_json=json)


__all__ = ["compress", "decompress"]
