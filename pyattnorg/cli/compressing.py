"""``pyattnorg compress`` and ``decompress``: find the network, do it, tell what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import typer

from pyattnorg.cli import job, sources
from pyattnorg.cli.stages import Stages
from pyattnorg.cli.summary import print_json
from pyattnorg.compression import Compressed
from pyattnorg.memory import size_text
from pyattnorg.store import load, write_atomically
from pyattnorg.threads import set_num_threads


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
    kind: str | None
    choices: Mapping[str, Any]
    loading: Mapping[str, Any]
    threads: int | None
    overwrite: bool


def compress(task: Task, *, quiet: bool = False, as_json: bool = False) -> None:
    """Compress, write and tell."""
    from pyattnorg.compression.api import check_options, compress

    error = _error(task)
    check_options(error, task.ratio, task.axes, task.form)
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
    _may_write(out, overwrite=overwrite)
    if out.suffix not in (".npy", ".npz"):
        raise ValueError(f"--out: got {out}, expected a name that ends in .npy or .npz")
    made = load(file)
    if not isinstance(made, Compressed):
        raise ValueError(f"{file} is an organisation, expected a file of `pyattnorg compress`")
    arrays = _arrays(made, head)
    values = arrays["values"]

    def write(opened: BinaryIO) -> None:
        if out.suffix == ".npy":
            np.save(opened, values)
        else:
            np.savez(opened, **arrays)

    write_atomically(out, write, overwrite=overwrite)
    told = {"file": str(file), "head": head, "shape": list(values.shape), "bytes_read": made.bytes_read,
            "bytes": made.nbytes, "error": made.error, "out": str(out)}  # fmt: skip
    if as_json:
        print_json(told)
    elif not quiet:
        shape = " x ".join(map(str, values.shape))
        read = f"{size_text(made.bytes_read)} of {size_text(made.nbytes)} read"
        typer.echo(f"{head or 'all heads'}: {shape}, {read}; written to {out}")


def _arrays(made: Compressed, head: str | None) -> dict[str, Any]:
    """Values of a head or of all, and what else is known of them."""
    if head is None:
        back = made.reconstruct()
        if made.kind is None:
            return {"values": np.asarray(back)}
        found, heads = {"values": back.values}, back.labels
    else:
        at: str | int = head
        with suppress(ValueError):
            at = int(head)
        found = {"values": made.head(at)}
        if made.kind is None:
            return found
        heads = (head if isinstance(at, str) else made.labels[at],)
    found["heads"] = np.array(heads)
    found |= {axis: np.array(told) for axis, told in made.names.items() if told is not None}
    if (cells := made.visible) is not None:
        deep = cells.ndim == 3 and head is not None
        found["visible"] = cells[:, :, made.labels.index(heads[0])] if deep else cells
    return found


def _error(task: Task) -> Any:
    if task.error is None or task.error == "noise":
        return task.error
    try:
        return float(task.error)
    except ValueError:
        raise ValueError(f"--error: got {task.error!r}, expected a number such as 0.05, or noise") from None


def _may_write(out: Path, *, overwrite: bool) -> None:
    """Refuse before the long work what writing would refuse after it."""
    if out.is_dir():
        raise IsADirectoryError(f"--out: {out} is a folder, expected the name of a file")
    if out.exists() and not out.is_file():
        raise OSError(f"--out: {out} is a device or a pipe, expected the name of a file")
    if out.exists() and not overwrite:
        raise FileExistsError(f"--out: {out} exists; pass --overwrite to replace it, or another --out")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"--out: the folder {out.parent} does not exist; make it first")


def _network(task: Task, stages: Stages) -> Any:
    """The organisation in a file, or the network of a store or of a model and an input."""
    stored = sources.is_store(task.source)
    saved = Path(task.source).is_file()
    n_given = sum(one is not None for one in task.given)
    if not (stored or saved) and Path(task.source).suffix in (".npz", ".npy") and not Path(task.source).exists():
        raise FileNotFoundError(f"{task.source} does not exist")
    if n_given != (0 if stored or saved else 1):
        what = "give none of them, the source has its input" if stored or saved else "give exactly one of them"
        raise ValueError(f"--text, --text-file, --image: {what}")
    if saved:
        _refuse(task, "an organisation")
        if task.threads is not None:
            set_num_threads(task.threads)
        with stages.stage("load"):
            found = load(task.source)
        if isinstance(found, Compressed):
            raise ValueError(f"{task.source} is compressed already, expected organization.npz of `analyze`")
        return found
    work = job.Job(
        model=task.source,
        name=sources.short_name(task.source),
        source=sources.of_store(task.source) if stored else sources.read_source(*task.given),
        out=task.out,
        kind=task.kind or "weights",  # type: ignore[arg-type]
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
    told = [name for name, value in {"kind": task.kind, **task.choices, **task.loading}.items() if value is not None]
    if told:
        raise ValueError(f"--{told[0].replace('_', '-')}: {task.source} is {what}, all of which is compressed")


__all__ = ["Task", "compress", "decompress"]
