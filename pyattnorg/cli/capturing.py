"""``pyattnorg capture``: attention to a store on disk, or what that would take."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from pyattnorg.cli import sources
from pyattnorg.cli.job import load_named
from pyattnorg.cli.stages import Stages
from pyattnorg.cli.summary import print_json
from pyattnorg.memory import size_text


@dataclass(frozen=True)
class Task:
    """What is to be captured. `choices` are keyword arguments of `pyattnorg.capture` that were given."""

    model: str
    name: str
    source: sources.Source
    out: Path | None
    choices: Mapping[str, Any] = field(default_factory=dict)
    loading: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None
    overwrite: bool = False
    dry_run: bool = False


def run(task: Task, *, quiet: bool = False, as_json: bool = False) -> None:
    """Do it, and say what came of it unless `quiet`."""
    if not task.dry_run:
        _refuse_early(task)
    with Stages(shown=not (quiet or as_json)) as stages:
        with stages.stage("load"):
            loaded = load_named(task.model, task.loading, task.threads)
            sources.check_fit(loaded, task.name, task.source)
        with stages.stage("estimate" if task.dry_run else "capture"):
            told = _estimated(task, loaded) if task.dry_run else _captured(task, loaded)
    told = {"model": task.name, "input": str(task.source)} | told | {"seconds": stages.seconds}
    if as_json:
        print_json(told)
    elif not quiet:
        typer.echo("\n".join(_lines(told)))


def _refuse_early(task: Task) -> None:
    """What is wrong with the folder is said before a model is loaded."""
    from pyattnorg.capture.files import need_zarr

    need_zarr()
    if task.out is None:
        raise ValueError("--out: is missing, expected the folder to write to; --dry-run says what would be written")
    if task.out.is_file():
        raise FileExistsError(f"--out: {task.out} is a file, expected a folder of a capture, or none")
    if not task.out.absolute().parent.is_dir():
        raise FileNotFoundError(f"--out: the folder {task.out.absolute().parent} does not exist; make it first")


def _estimated(task: Task, loaded: Any) -> dict[str, Any]:
    from pyattnorg.capture import estimate

    found = estimate(loaded, task.source.inputs, store=True, **task.choices)
    return {
        "bytes": found.bytes,
        "working_bytes": found.working_bytes,
        "estimated_seconds": round(found.seconds, 3),
        "available": found.available,
        "method": found.method,
        "heads": sum(row["heads"] for row in found.layers),
        "layers": found.layers,
    }


def _captured(task: Task, loaded: Any) -> dict[str, Any]:
    from pyattnorg.capture import capture

    begun = time.perf_counter()
    assert task.out is not None
    found = capture(loaded, task.source.inputs, store=task.out, overwrite=task.overwrite, **task.choices)
    groups = [
        {"name": g.name, "layers": len(g.layers), **dict(zip(("queries", "keys", "heads"), g.shape, strict=True))}
        for g in found.groups.values()
    ]
    return {
        "store": str(task.out),
        "groups": groups,
        "bytes": sum(row["bytes"] for row in found.report),
        "bytes_on_disk": sum(p.stat().st_size for p in task.out.rglob("*") if p.is_file()),
        "resumed_layers": sum(row["seconds"] is None for row in found.report),
        "report": [dict(row) for row in found.report],
        "took": round(time.perf_counter() - begun, 3),
    }


def _lines(told: Mapping[str, Any]) -> list[str]:
    """The summary for people."""
    if "store" not in told:
        free = "" if told["available"] is None else f" of {size_text(told['available'])} free"
        return [
            f"{told['model']}: {told['heads']} heads of {len(told['layers'])} layer(s) would be captured",
            f"on disk  {size_text(told['bytes'])} before compression",
            f"memory   {size_text(told['working_bytes'])} beside the model's own{free}",
            f"time     about {told['estimated_seconds']:.2g} s",
        ]
    groups = [
        f"{(g['name'] or 'attention'):10s} {g['layers']} layer(s), {g['queries']} queries x {g['keys']} keys x "
        f"{g['heads']} heads"
        for g in told["groups"]
    ]
    there = told["resumed_layers"]
    found = [f"{there} layer(s) of them were there from an earlier run"] if there else []
    sizes = f"{size_text(told['bytes'])}, {size_text(told['bytes_on_disk'])} on disk, in {told['took']:.1f} s"
    return [f"{told['model']}: {told['store']}", *groups, *found, sizes]


__all__ = ["Task", "run"]
