"""The options of ``pyattnorg compare``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from pyattnorg.cli.failures import one_line
from pyattnorg.cli.options import (
    Debug,
    Device,
    Dtype,
    Group,
    Images,
    Json,
    Kind,
    MaxLength,
    Overwrite,
    Quiet,
    Revision,
    Setting,
    TextFiles,
    Texts,
    Threads,
)


class Positions(str, Enum):
    """Which tokens a sub-tensor has."""

    run = "run"
    scattered = "scattered"


class Null(str, Enum):
    """Among which cells the null permutes."""

    row = "row"
    head = "head"
    tensor = "tensor"


def compare(
    networks: Annotated[
        list[str],
        typer.Argument(
            metavar="NETWORK...",
            show_default=False,
            help="Two or more: organization.npz of `analyze`, stores of `capture`, transformers ids or folders, "
            "timm/NAME. Several files or stores of one network, one an input, with commas between them.",
        ),
    ],
    *,
    text: Texts = None,
    text_file: TextFiles = None,
    image: Images = None,
    names: Annotated[str | None, typer.Option(help="Names of the networks, with commas between them.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Of models and stores; weights without it.")] = None,
    group: Group = None,
    size: Annotated[
        str | None, typer.Option(help="Queries, keys and heads of the sub-tensors, such as '48,48,24'.")
    ] = None,
    n_draws: Annotated[int | None, typer.Option("--draws", min=1, help="Sub-tensors of every input.")] = None,
    positions: Annotated[Positions, typer.Option(help="Tokens that are neighbours, or any.")] = Positions.run,
    null: Annotated[Null, typer.Option(help="Cells among which the null permutes.")] = Null.row,
    seed: Annotated[int, typer.Option(min=0, help="Seed of draws, nulls and resampling.")] = 0,
    setting: Setting = None,
    max_length: MaxLength = None,
    picture: Annotated[
        Path | None, typer.Option(help="File for the picture; its ending says the format (.svg, .pdf, .png).")
    ] = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    threads: Threads = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare how the attention of networks is organised, whatever their sizes: docs/compare.md says by what.

    Models are shown every --text, --text-file and --image; six or more make p values worth having.
    """
    with one_line(debug):
        from pyattnorg.cli import comparing
        from pyattnorg.cli.settings import settings

        job = comparing.Job(
            networks=networks,
            text=text,
            text_file=text_file,
            image=image,
            names=names,
            kind=None if kind is None else kind.value,
            group=group,
            max_length=max_length,
            picture=picture,
            choices={"n_draws": n_draws, "positions": positions.value, "null": null.value}
            | settings(setting, {"random_state": seed}),
            size=size,
            loading={"device": device, "dtype": dtype, "revision": revision},
            threads=threads,
            overwrite=overwrite,
        )
        comparing.run(job, quiet=quiet, as_json=json)


__all__ = ["compare"]
