"""Several inputs of one model: each analysed into a folder of its own, then the consensus of their head trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from pyattnorg.cli import job as jobs
from pyattnorg.cli import sources
from pyattnorg.cli.drawing import draw, without_a_screen
from pyattnorg.cli.results import Results, write_rows
from pyattnorg.cli.stages import Stages
from pyattnorg.cli.summary import print_json
from pyattnorg.consensus import COLUMNS, HeadConsensus, head_consensus
from pyattnorg.organization import Organization
from pyattnorg.store import load, write_atomically

FOLDERS, PICTURE, INPUTS = "folders.csv", "folders.svg", "inputs.csv"


def analyze(job: jobs.Job, inputs: Sequence[sources.Source], *, quiet: bool = False, as_json: bool = False) -> None:
    """Analyse every input with the model loaded once; OUT/1, OUT/2, ... hold what one input alone would give."""
    jobs.require_plotly()
    width = len(str(len(inputs)))
    parts = [replace(job, source=one, out=job.out / f"{i + 1:0{width}d}") for i, one in enumerate(inputs)]
    refuse_existing(job.out, overwrite=job.overwrite)
    for part in parts:
        Results(part.out, overwrite=job.overwrite)  # refuses what is there
    with Stages(shown=not (quiet or as_json)) as stages:
        with stages.stage("load"):
            loaded = jobs.load(job)
            for one in inputs:
                sources.check_fit(loaded, job.name, one)
        device = jobs.organising_device(job.loading.get("device"), quiet=quiet or as_json)
        found = head_consensus(_one(part, loaded, stages, device) for part in parts)
        with stages.stage("consensus"):
            shown = [{"folder": part.out.name, "input": str(part.source)} for part in parts]
            files = write(found, shown, job.out, overwrite=job.overwrite)
    tell(found, {"model": job.name}, {"seconds": stages.seconds, "files": files}, quiet=quiet, as_json=as_json)


def _one(part: jobs.Job, loaded: Any, stages: Stages, device: str) -> Organization:
    name = part.out.name
    with Results(part.out, overwrite=part.overwrite) as results:
        with stages.stage(f"capture {name}"):
            network, layers = jobs.take(part, loaded)
        with stages.stage(f"organise {name}") as advance:
            found = jobs.organise(part, network, device, advance)
        with stages.stage(f"write {name}"):
            own = {stage: stages.seconds[f"{stage} {name}"] for stage in ("capture", "organise")}
            results.write(found, head=part.head, seconds=own, layers=layers)
    return found


def consensus(files: Sequence[Path], out: Path | None, *, overwrite: bool, quiet: bool, as_json: bool) -> None:
    """The consensus of organisations that are there."""
    if len(files) < 2:
        raise ValueError(f"FILE: got {len(files)}, expected two or more, each of another input")
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"FILE: {file} does not exist, or is no file")
    if out is not None:
        refuse_existing(out, overwrite=overwrite)
    found = head_consensus(_read(file) for file in files)
    written = {}
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        written = write(found, [{"folder": str(file), "input": ""} for file in files], out, overwrite=overwrite)
    tell(found, {}, {"files": written}, quiet=quiet, as_json=as_json)


def _read(file: Path) -> Organization:
    found = load(file)
    if not isinstance(found, Organization):
        raise ValueError(f"FILE: {file} holds a compressed tensor, expected organization.npz of `analyze`")
    return found


def refuse_existing(out: Path, *, overwrite: bool) -> None:
    """Refuse results of an earlier run, unless they are to be replaced."""
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"--out: {out} is a file, expected a folder")
    there = [name for name in (FOLDERS, PICTURE, INPUTS) if (out / name).exists()]
    if there and not overwrite:
        raise FileExistsError(f"--out: {out} holds {', '.join(there)}; pass --overwrite to replace, or another --out")


def write(found: HeadConsensus, inputs: list[dict[str, str]], out: Path, *, overwrite: bool) -> dict[str, str]:
    """Tables and a picture of a consensus; where they are. `inputs` says what each input was."""
    folders = [{**row, "heads": ", ".join(row["heads"])} for row in found.folder_table()]
    rows = [one | {"agreement": float(value)} for one, value in zip(inputs, found.agreement)]
    for name, table, columns in (
        (FOLDERS, folders, COLUMNS),
        (INPUTS, rows, ["folder", "input", "agreement"]),
    ):
        write_atomically(out / name, partial(write_rows, rows=table, columns=columns), overwrite=overwrite)
    without_a_screen()
    draw(found.plot_tree(), out / PICTURE, overwrite=overwrite)
    return {"folders": str(out / FOLDERS), "inputs": str(out / INPUTS), "picture": str(out / PICTURE)}


def tell(
    found: HeadConsensus, first: Mapping[str, Any], last: Mapping[str, Any], *, quiet: bool, as_json: bool
) -> None:
    """Print what was found, as asked."""
    if as_json:
        print_json({**first, **found.to_dict(), **last})
    elif not quiet:
        typer.echo(found.summary())
        for what, path in last["files"].items():
            typer.echo(f"{what + ':':9s} {path}")


__all__ = ["analyze", "consensus"]
