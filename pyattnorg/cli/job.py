"""One run: load, capture, organise, write. Whatever can be refused is refused before the long work."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import typer

from pyattnorg.cli import sources
from pyattnorg.cli.results import REPORT, Results
from pyattnorg.cli.stages import Stages
from pyattnorg.cli.summary import as_dict, print_json, print_table
from pyattnorg.organization import Organization, organize

Kind = Literal["weights", "scores"]


@dataclass(frozen=True)
class Job:
    """What is to be done. `name` is the model's name as results show it."""

    model: str
    name: str
    source: sources.Source
    out: Path
    kind: Kind = "weights"
    layers: str | None = None
    heads: str | None = None
    group: str | None = None
    max_length: int | None = None
    masked: Literal["mean", "floor", "raw"] = "mean"
    options: Mapping[str, Any] = field(default_factory=dict)
    head: str | None = None
    loading: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None
    overwrite: bool = False


def run(job: Job, *, quiet: bool = False, as_json: bool = False) -> None:
    """Do it, and print a summary unless `quiet`."""
    require_plotly()
    with Results(job.out, overwrite=job.overwrite) as results, Stages(shown=not (quiet or as_json)) as stages:
        with stages.stage("load"):
            loaded = load(job)
            if job.source.store is None:
                sources.check_fit(loaded, job.name, job.source)
        with stages.stage("capture"):
            network, layers = take(job, loaded)
        del loaded  # the model is not needed any more, its memory is
        with stages.stage("organise") as advance:
            device = organising_device(job.loading.get("device"), quiet=quiet or as_json)
            found = organise(job, network, device, advance)
        with stages.stage("write"):
            results.write(found, head=job.head, seconds=stages.seconds, layers=layers)
            facts = as_dict(found)
    told = {"model": job.name} | facts | {"seconds": stages.seconds, "files": results.paths}
    if as_json:
        print_json(told)
    elif not quiet:
        print_table(told, job.out / REPORT)


def require_plotly() -> None:
    """Refuse at once what the report would at the end."""
    if find_spec("plotly") is None:
        raise ImportError("plotly is needed for the report: pip install 'pyattnorg[viz]'")


def organise(job: Job, network: Any, device: str, progress: Any) -> Organization:
    """The network as the job wants it organised."""
    return organize(network, masked=job.masked, progress=progress, device=device, **job.options)


def organising_device(asked: str | None, *, quiet: bool) -> str:
    """Where to organise: as asked, or on a GPU if there is one, which is then said."""
    from pyattnorg import devices

    if asked is not None and (asked == "auto" or asked.partition(":")[0] == "cuda"):
        return str(devices.chosen_device(asked))
    if asked is None and devices.has_gpu():
        if not quiet:
            typer.echo("organising on the GPU (cuda); --device cpu keeps to the processor", err=True)
        return "cuda"
    return "cpu"


def load(job: Job) -> Any:
    """The model and what prepares its inputs, or the capture in a store."""
    if job.source.store is None:
        return load_named(job.model, job.loading, job.threads)
    from pyattnorg.capture import load_capture
    from pyattnorg.threads import set_num_threads

    if any(value is not None for value in (job.layers, job.max_length, *job.loading.values())):
        raise ValueError(f"{job.model} is a store: which layers, of how long an input, was said when it was captured")
    if job.threads is not None:
        set_num_threads(job.threads)
    return load_capture(job.source.store)


def load_named(name: str, loading: Mapping[str, Any], threads: int | None) -> Any:
    """A model by its name."""
    from pyattnorg.capture import load_model
    from pyattnorg.capture.models import PRUNED, LoadedModel, dtype_of, place

    if threads is not None:
        import torch

        from pyattnorg.threads import set_num_threads

        set_num_threads(threads)
        torch.set_num_threads(threads)
    with suppress(ImportError):
        import huggingface_hub  # noqa: F401  # it sets its own level when it is imported

    given = {option: value for option, value in loading.items() if value is not None}
    if (Path(name) / PRUNED).is_file():
        from pyattnorg.heads import load_pruned

        model = load_pruned(name)
        place(model, given.get("device"), dtype_of(given.get("dtype")))
        return LoadedModel(model, name, "transformers")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries are no news: the error will be
    try:
        return load_model(name, **given)
    except ValueError as error:
        if Path(name).exists() or "could not be loaded" not in str(error):
            raise
        raise ValueError(
            f"{error}; check the name and the connection, or give a folder that holds the model"
        ) from error


def take(job: Job, loaded: Any) -> tuple[Any, list[Mapping[str, Any]]]:
    """The network, and the capture's report."""
    from pyattnorg.capture import capture
    from pyattnorg.capture.select import Selection

    if job.source.store is not None:
        captured = loaded
    else:
        captured = capture(
            loaded, job.source.inputs, layers=job.layers, heads=job.heads, keep=(job.kind,), max_length=job.max_length
        )
    groups = captured.groups
    if job.group is None and len(groups) > 1:
        said = ", ".join(f"{name!r} ({g.shape[2]} heads, {g.shape[0]} x {g.shape[1]})" for name, g in groups.items())
        raise ValueError(f"--group: {job.name} has {len(groups)} parts, expected the name of one: {said}")
    name = next(iter(groups)) if job.group is None else job.group
    if name not in groups:
        raise ValueError(f"--group: got {name!r}, {job.name} has {', '.join(map(repr, groups))}")
    network = getattr(groups[name], job.kind)
    if job.source.store is not None and job.heads is not None:
        wanted = Selection.of(None, job.heads)
        at = [i for i, (n, h) in enumerate(zip(network.heads.layer, network.heads.head)) if wanted.head(int(n), int(h))]
        if not at:
            raise ValueError(f"--heads: {job.heads!r} leaves no head of {job.model}")
        network = network.take_heads(at)
    network.meta.update(model=job.name, input=str(job.source))
    if job.head is not None:
        network.index(job.head)  # refuses a label that is not there, before the long work
    return network, [row for row in captured.report if row.get("group", name) == name]


__all__ = ["Job", "load", "load_named", "organise", "organising_device", "require_plotly", "run", "take"]
