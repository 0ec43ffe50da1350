"""``pyattnorg compress`` and ``decompress``: find the network, do it, tell what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import typer

from pyattnorg.checks import one_of
from pyattnorg.cli import job, sources
from pyattnorg.cli.stages import Stages
from pyattnorg.cli.summary import print_json
from pyattnorg.memory import size_text
from pyattnorg.store import load, write_atomically


@dataclass(frozen=True)
class Task:
    """What is to be compressed, and how. `given` has the text, the text's file and the image."""

    source: str
    out: Path
    error: str | None
    ratio: float | None
    axes: str
    form: str
    given: tuple[str | None, Path | None, Path | None]
    kind: str
    choices: Mapping[str, Any]
    loading: Mapping[str, Any]
    threads: int | None
    overwrite: bool


def compress(task: Task, *, quiet: bool = False, as_json: bool = False) -> None:
    """Compress, write and tell."""
    from pyattnorg.compression import compress

    error = _error(task)
    _may_write(task.out, overwrite=task.overwrite)
    with Stages(shown=not (quiet or as_json)) as stages:
        network = _network(task, stages)
        with stages.stage("compress"):
            options: dict[str, Any] = {"error": error, "ratio": task.ratio, "axes": task.axes, "form": task.form}
            made = compress(network, **options)
        with stages.stage("write"):
            made.save(task.out, overwrite=task.overwrite)
    told = {"source": task.source, **made.to_dict(), "out": str(task.out), "seconds": stages.seconds}
    if as_json:
        print_json(told)
    elif not quiet:
        typer.echo(f"{made.summary()}\nwritten to {task.out}")


def decompress(
    file: Path, out: Path, head: str | None, *, overwrite: bool = False, quiet: bool = False, as_json: bool = False
) -> None:
    """Read a head or all, write it as .npy and tell."""
    from pyattnorg.compression import Compressed

    _may_write(out, overwrite=overwrite)
    made = load(file)
    if not isinstance(made, Compressed):
        raise ValueError(f"{file} is an organisation, expected a file of `pyattnorg compress`")
    if head is None:
        values = made.block()
    else:
        values = made.head(int(head) if head.lstrip("-").isdigit() else head)

    def write(opened: BinaryIO) -> None:
        np.save(opened, values)

    write_atomically(out, write, overwrite=overwrite)
    told = {"file": str(file), "head": head, "shape": list(values.shape), "bytes_read": made.bytes_read,
            "bytes": made.nbytes, "error": made.error, "out": str(out)}  # fmt: skip
    if as_json:
        print_json(told)
    elif not quiet:
        shape = " x ".join(map(str, values.shape))
        read = f"{size_text(made.bytes_read)} of {size_text(made.nbytes)} read"
        typer.echo(f"{head or 'all heads'}: {shape}, {read}; written to {out}")


def _error(task: Task) -> Any:
    if task.error is None or task.error == "noise":
        return task.error
    try:
        return float(task.error)
    except ValueError:
        raise ValueError(f"--error: got {task.error!r}, expected a number such as 0.05, or noise") from None


def _may_write(out: Path, *, overwrite: bool) -> None:
    """Refuse before the long work what writing would refuse after it."""
    if out.exists() and not overwrite:
        raise FileExistsError(f"--out: {out} exists; pass --overwrite to replace it, or another --out")
    if out.is_dir():
        raise IsADirectoryError(f"--out: {out} is a folder, expected the name of a file")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"--out: the folder {out.parent} does not exist; make it first")


def _network(task: Task, stages: Stages) -> Any:
    """The organisation in a file, or the network of a store or of a model and an input."""
    stored = sources.is_store(task.source)
    saved = Path(task.source).is_file()
    n_given = sum(one is not None for one in task.given)
    if n_given != (0 if stored or saved else 1):
        what = "give none of them, the source has its input" if stored or saved else "give exactly one of them"
        raise ValueError(f"--text, --text-file, --image: {what}")
    if saved:
        _refuse(task, "an organisation")
        with stages.stage("load"):
            return load(task.source)
    one_of(task.kind, "--kind", ("weights", "scores"))
    work = job.Job(
        model=task.source,
        name=sources.short_name(task.source),
        source=sources.of_store(task.source) if stored else sources.read_source(*task.given),
        out=task.out,
        kind=task.kind,  # type: ignore[arg-type]
        loading=task.loading,
        threads=task.threads,
        **task.choices,
    )
    with stages.stage("load"):
        loaded = job.load(work)
        if not stored:
            sources.check_fit(loaded, work.name, work.source)
    with stages.stage("capture"):
        return job.take(work, loaded)[0]


def _refuse(task: Task, what: str) -> None:
    told = [name for name, value in {**task.choices, **task.loading}.items() if value is not None]
    if told:
        raise ValueError(f"--{told[0].replace('_', '-')}: {task.source} is {what}, all of which is compressed")


__all__ = ["Task", "compress", "decompress"]
