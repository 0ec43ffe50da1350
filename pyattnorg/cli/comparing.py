"""``pyattnorg compare``: read or capture the networks, compare, tell."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from pyattnorg.cli import job as jobs
from pyattnorg.cli.drawing import check_picture, draw, without_a_screen
from pyattnorg.cli.sources import Source, check_fit, is_store, of_store, read_sources, short_name
from pyattnorg.cli.stages import Stages
from pyattnorg.cli.summary import print_json


@dataclass(frozen=True)
class Job:
    """What is to be compared. `choices` are keyword arguments of `pyattnorg.compare`."""

    networks: Sequence[str]
    text: Sequence[str] | None = None
    text_file: Sequence[Path] | None = None
    image: Sequence[Path] | None = None
    names: str | None = None
    kind: str | None = None
    group: str | None = None
    max_length: int | None = None
    picture: Path | None = None
    size: str | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)
    loading: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None
    overwrite: bool = False


def run(job: Job, *, quiet: bool = False, as_json: bool = False) -> None:
    """Do it, and print what was found unless `quiet`."""
    wanted = _checked(job)
    size = _whole_numbers(job.size)
    named = _names(job)
    sources = read_sources(job.text, job.text_file, job.image)
    with Stages(shown=not (quiet or as_json)) as stages:
        networks: list[list[Any]] = []
        for parts in wanted:
            with stages.stage(f"read {len(networks) + 1}"):
                networks.append(_read(parts, job, sources))
        with stages.stage("compare") as advance:
            from pyattnorg.comparison import compare
            from pyattnorg.threads import set_num_threads

            if job.threads is not None:
                set_num_threads(job.threads)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always", UserWarning)
                found = compare(*networks, names=named, size=size, progress=advance, **job.choices)
        if job.picture is not None:
            with stages.stage("draw"):
                without_a_screen()
                draw(found.plot()[0], job.picture, overwrite=job.overwrite)
    for text in () if quiet else dict.fromkeys(str(one.message) for one in told):
        typer.echo(f"pyattnorg: {text}", err=True)
    files = {} if job.picture is None else {"picture": str(job.picture)}
    if as_json:
        print_json(found.to_dict() | {"seconds": stages.seconds, "files": files})
    elif not quiet:
        typer.echo(found.summary())
        for path in files.values():
            typer.echo(f"\npicture: {path}")


def _checked(job: Job) -> list[list[str]]:
    """Files, stores or the model of every network, after what can be refused at once."""
    wanted = [[part for part in one.split(",") if part] for one in job.networks]
    if len(wanted) < 2:
        raise ValueError(f"NETWORK: got {len(wanted)}, expected two or more to compare")
    for one, parts in zip(job.networks, wanted):
        if not parts:
            raise ValueError(f"NETWORK: got {one!r}, expected a model, a store or a file")
        if len(parts) > 1 and not all(_is_file(part) or is_store(part) for part in parts):
            raise ValueError(f"NETWORK: got {one!r}; commas stand between stores and files of one network only")
    asked = (job.text, job.text_file, job.image, job.max_length, *job.loading.values())
    if all(_is_file(one) or is_store(one) for parts in wanted for one in parts) and any(o is not None for o in asked):
        raise ValueError("NETWORK: got files and stores only, which have their inputs; give no input, model or length")
    for part in (part for parts in wanted for part in parts if _is_file(part)):
        if not Path(part).is_file():
            raise FileNotFoundError(f"NETWORK: {part} does not exist, or is no file")
    if job.picture is not None:
        check_picture(job.picture, overwrite=job.overwrite)
    return wanted


def _is_file(name: str) -> bool:
    return name.endswith(".npz")


def _whole_numbers(size: str | None) -> tuple[int, ...] | None:
    if size is None:
        return None
    try:
        return tuple(int(part) for part in size.split(","))
    except ValueError:
        raise ValueError(f"--size: got {size!r}, expected three whole numbers, such as '48,48,24'") from None


def _names(job: Job) -> list[str]:
    """As given, or short names of the networks, numbered where these are alike."""
    if job.names is not None:
        return [part.strip() for part in job.names.split(",")]
    short = [_short(one.split(",")[0]) for one in job.networks]
    return [name if short.count(name) == 1 else f"{name} {i + 1}" for i, name in enumerate(short)]


def _short(one: str) -> str:
    """A model's name; a file's, or that of the folder that `analyze` wrote it to."""
    if not _is_file(one):
        return short_name(one)
    path = Path(one).absolute()
    return path.parent.name if path.stem == "organization" else path.stem


def _read(parts: list[str], job: Job, sources: list[Source]) -> list[Any]:
    """The tensors of a network, one an input."""
    if all(_is_file(part) or is_store(part) for part in parts):
        return [_stored(part, job) for part in parts]
    name = short_name(parts[0])
    if not sources:
        raise ValueError(f"input: {name} is a model, which needs --text, --text-file or --image, once or several times")
    loaded = jobs.load_named(parts[0], job.loading, job.threads)
    fitting = [source for source in sources if (source.image is not None) == bool(loaded.takes_images)]
    if not fitting:
        check_fit(loaded, name, sources[0])
    return [_taken(loaded, parts[0], job, source) for source in fitting]


def _stored(part: str, job: Job) -> Any:
    if _is_file(part):
        from pyattnorg.store import load

        network = load(part).network
        if job.kind is not None and network.kind != job.kind:
            raise ValueError(f"--kind: got {job.kind}, {part} holds {network.kind}")
        return network
    from pyattnorg.capture import load_capture

    return _taken(load_capture(part), part, job, of_store(part))


def _taken(loaded: Any, model: str, job: Job, source: Source) -> Any:
    task = jobs.Job(
        model=model,
        name=short_name(model),
        source=source,
        out=Path(),
        kind="scores" if job.kind == "scores" else "weights",
        group=job.group,
        max_length=None if source.store is not None else job.max_length,
    )
    return jobs.take(task, loaded)[0]


__all__ = ["Job", "run"]
