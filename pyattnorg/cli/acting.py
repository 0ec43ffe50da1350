"""``pyattnorg rank``, ``ablate`` and ``prune``: load, act, tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from pyattnorg.checks import one_of, whole
from pyattnorg.cli.job import load_named
from pyattnorg.cli.sources import Source, check_fit, read_source, short_name
from pyattnorg.cli.stages import Stages
from pyattnorg.cli.summary import print_json
from pyattnorg.memory import size_text


@dataclass(frozen=True)
class Job:
    """A model and its inputs, as they were given."""

    model: str
    text: Sequence[str] | None = None
    text_file: Sequence[Path] | None = None
    image: Sequence[Path] | None = None
    loading: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None

    def sources(self) -> list[Source]:
        """All inputs, read."""
        found = [read_source(text, None, None) for text in self.text or ()]
        found += [read_source(None, file, None) for file in self.text_file or ()]
        found += [read_source(None, None, image) for image in self.image or ()]
        if not found:
            raise ValueError("input: is missing; give --text, --text-file or --image, once or several times")
        return found


@dataclass(frozen=True)
class Which:
    """Heads by name, or a share of them by rank."""

    heads: str | None
    lowest: float | None
    by: str
    seed: int

    def check(self) -> None:
        """Raise unless there is one of both."""
        if (self.heads is None) == (self.lowest is None):
            raise ValueError("--heads: give heads by name, or --lowest a share of them; exactly one of the two")
        if self.lowest is not None and not 0 < self.lowest < 1:
            raise ValueError(f"--lowest: got {self.lowest}, expected a share above 0 and below 1, such as 0.2")
        _check_measures((self.by,), self.seed)

    def of(self, loaded: Any, inputs: list[Any]) -> Any:
        """The heads, as `ablate_heads` takes them."""
        from pyattnorg.heads import rank_heads
        from pyattnorg.heads.choose import choose
        from pyattnorg.heads.tables import head_table_of

        if self.heads is None:
            assert self.lowest is not None
            ranking = rank_heads(loaded, inputs, by=self.by, seed=self.seed)
            return ranking.rows_of(ranking.lowest(self.lowest, self.by))
        table = head_table_of(loaded, inputs[0])
        wanted = {(one.module, one.layer, one.head) for one in choose(self.heads, table).named}
        rows = zip(table.module, table.layer.tolist(), table.head.tolist())
        return table.take([i for i, row in enumerate(rows) if row in wanted])


def _check_measures(measures: Sequence[str] | None, seed: int) -> None:
    """Refuse measures and seeds that are none before a model is loaded."""
    from pyattnorg.heads.rank import MEASURES

    if measures is not None and not measures:
        raise ValueError(f"--by: got no measure, expected some of {list(MEASURES)}")
    for name in measures or ():
        one_of(name, "--by", MEASURES)
    whole(seed, "--seed", at_least=0)


def rank(
    job: Job, measures: tuple[str, ...] | None, top: int, seed: int, *, quiet: bool = False, as_json: bool = False
) -> None:
    """Rank heads, and print a table."""
    _check_measures(measures, seed)
    sources = job.sources()
    with Stages(shown=not (quiet or as_json)) as stages:
        loaded, inputs = _load(job, sources, stages)
        with stages.stage("rank"):
            from pyattnorg.heads import rank_heads

            options: dict[str, Any] = {} if measures is None else {"by": measures}
            found = rank_heads(loaded, inputs, seed=seed, **options)
    told = {
        "model": short_name(job.model),
        "inputs": [str(source) for source in sources],
        "heads": found.table(),
        "least_important": {by: found.order(by)[:top] for by in found.measures},
        "seconds": stages.seconds,
    }
    if as_json:
        print_json(told)
    elif not quiet:
        typer.echo(f"{told['model']}: {found.summary(top)}")


def ablate(
    job: Job, which: Which, mode: str, *, each: bool = False, quiet: bool = False, as_json: bool = False
) -> None:
    """Ablate heads, and print what became of the output."""
    which.check()
    one_of(mode, "--mode", ("zero", "mean"))
    sources = job.sources()
    with Stages(shown=not (quiet or as_json)) as stages:
        loaded, inputs = _load(job, sources, stages)
        with stages.stage("ablate"):
            from pyattnorg.heads import ablate_heads, head_means

            heads = which.of(loaded, inputs)
            means = head_means(loaded, inputs) if mode == "mean" else None
            before = _outcome(loaded, inputs)
            rows = []
            for some in [heads.take([i]) for i in range(len(heads))] if each else [heads]:
                with ablate_heads(loaded, some, mode=mode, means=means):  # type: ignore[arg-type]
                    after = _outcome(loaded, inputs)
                rows.append({"heads": list(some.labels), **_compared(before, after)})
    told = {
        "model": short_name(job.model),
        "mode": mode,
        "loss": _mean_loss(before),
        "ablations": rows,
        "seconds": stages.seconds,
    }
    if as_json:
        print_json(told)
    elif not quiet:
        typer.echo("\n".join(_ablation_lines(told)))


def prune(
    job: Job,
    which: Which,
    out: Path,
    *,
    mean: bool = False,
    otherwise: str = "refuse",
    overwrite: bool = False,
    quiet: bool = False,
    as_json: bool = False,
) -> None:
    """Prune heads, save the model, and print sizes and times."""
    which.check()
    one_of(otherwise, "--otherwise", ("refuse", "zero"))
    if out.exists() and not overwrite and (out.is_file() or any(out.iterdir())):
        raise FileExistsError(f"--out: {out} is there already; pass --overwrite to replace, or another --out")
    sources = job.sources()
    with Stages(shown=not (quiet or as_json)) as stages:
        loaded, inputs = _load(job, sources, stages)
        with stages.stage("prune"):
            from pyattnorg.heads import head_means, prune_heads, save_pruned

            heads = which.of(loaded, inputs)
            means = head_means(loaded, inputs) if mean else None
            found = prune_heads(loaded, heads, means=means, otherwise=otherwise, inputs=inputs[0])  # type: ignore[arg-type]
        with stages.stage("write"):
            save_pruned(loaded, out, overwrite=overwrite)
    told = {"model": short_name(job.model), **found.to_dict(), "out": str(out), "seconds": stages.seconds}
    if as_json:
        print_json(told)
    elif not quiet:
        typer.echo("\n".join(_pruning_lines(told)))


def _load(job: Job, sources: list[Source], stages: Stages) -> tuple[Any, list[Any]]:
    with stages.stage("load"):
        loaded = load_named(job.model, job.loading, job.threads)
        for source in sources:
            check_fit(loaded, short_name(job.model), source)
    return loaded, [source.inputs for source in sources]


def _outcome(loaded: Any, inputs: list[Any]) -> list[tuple[Any, float | None]]:
    """Of every input: the first output, and the loss where the model has one."""
    from pyattnorg.capture.layout import tensors_in
    from pyattnorg.heads.effects import next_token_loss
    from pyattnorg.heads.tables import calls_of, run

    found = []
    causal = type(loaded.model).__name__.endswith(("LMHeadModel", "ForCausalLM"))
    for call in calls_of(loaded, inputs):
        output = run(loaded.model, call)
        loss = next_token_loss(output, call) if causal else None
        first = next(t for t in tensors_in(output) if t.is_floating_point())
        found.append((first.detach().double(), None if loss is None else float(loss)))
    return found


def _mean_loss(found: list[tuple[Any, float | None]]) -> float | None:
    losses = [loss for _, loss in found if loss is not None]
    return sum(losses) / len(losses) if losses else None


def _compared(before: list[tuple[Any, float | None]], after: list[tuple[Any, float | None]]) -> dict[str, Any]:
    gaps = [float((b - a).norm() / a.norm().clamp_min(1e-12)) for (a, _), (b, _) in zip(before, after)]
    loss = _mean_loss(after)
    first = _mean_loss(before)
    change = None if loss is None or first is None else loss - first
    return {"output_change": sum(gaps) / len(gaps), "loss": loss, "loss_change": change}


def _ablation_lines(told: Mapping[str, Any]) -> list[str]:
    loss = told["loss"]
    head = f"{told['model']}, {told['mode']}-ablation" + (
        "" if loss is None else f"; loss of the whole model {loss:.4f} (perplexity {math.exp(loss):.2f})"
    )
    lines = [
        head,
        f"{'heads':24s} {'output changes by':>18s}" + ("" if loss is None else f" {'loss':>8s} {'change':>8s}"),
    ]
    for row in told["ablations"]:
        names = " ".join(row["heads"][:3]) + (f" and {len(row['heads']) - 3} more" if len(row["heads"]) > 3 else "")
        tail = "" if loss is None else f" {row['loss']:8.4f} {row['loss_change']:+8.4f}"
        lines.append(f"{names:24s} {row['output_change']:18.2%}{tail}")
    return lines


def _pruning_lines(told: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{told['model']}: {len(told['removed'])} heads removed, {len(told['zeroed'])} zeroed, saved to {told['out']}"
    ]
    for name in ("before", "after"):
        size = told[name]
        timed = f"{size['seconds'] * 1e3:9.1f} ms a forward"
        lines.append(f"{name:7s} {size['parameters']:13,} parameters  {size_text(size['bytes']):>9s} {timed}")
    return [*lines, f"output differs from the ablated model's by {told['difference']:.1e} of its size"]


__all__ = ["Job", "Which", "ablate", "prune", "rank"]
