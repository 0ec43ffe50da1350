"""What a capture gives: network tensors by group, and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from pyattnorg.capture.errors import CaptureError
from pyattnorg.capture.groups import group
from pyattnorg.capture.keeping import MAPS
from pyattnorg.capture.layered import LayerStack, dense, is_plain, maps_of
from pyattnorg.capture.parts import joined
from pyattnorg.capture.record import BoolArray, Record, Report, Tokens
from pyattnorg.capture.scatter import on_grid
from pyattnorg.capture.stacking import crop, stack, visible_of
from pyattnorg.capture.tokens import Naming
from pyattnorg.network import NetworkTensor

Kind = Literal["scores", "weights"]


@dataclass(frozen=True)
class AttentionGroup:
    """Layers whose maps make one tensor: all of a plain model, or one of its encoder, decoder, towers, stages."""

    name: str
    layers: tuple[int, ...]
    shape: tuple[int, int, int]  # queries, keys, heads
    tensors: Mapping[str, NetworkTensor] = field(repr=False)
    missing: Mapping[str, str] = field(default_factory=dict, repr=False)  # why a tensor is not there
    windows: tuple[tuple[Tokens | None, int], ...] = field(default=(), repr=False)  # where they lie, matrices of each
    image: tuple[int, int] | None = field(default=None, repr=False)

    @property
    def scores(self) -> NetworkTensor:
        """Attention before softmax, queries x keys x heads."""
        return self._get("scores")

    @property
    def weights(self) -> NetworkTensor:
        """Attention after softmax, queries x keys x heads."""
        return self._get("weights")

    def on_grid(self, kind: Kind = "weights") -> NetworkTensor:
        """Maps of windows laid out over all tokens of the grid, a matrix a layer and head, with the mask that follows.

        Raises
        ------
        CaptureError
            Where the windows lie is not known, or the tensor was not kept.
        """
        if not self.windows:
            return self._get(kind)
        return on_grid(self._get(kind), [t for t, _ in self.windows], [n for _, n in self.windows], self.image)

    def _get(self, kind: Kind) -> NetworkTensor:
        if kind in self.tensors:
            return self.tensors[kind]
        why = self.missing.get(kind, f"keep: {kind!r} was not kept, expected it in keep=; capture again with it")
        raise CaptureError(why)


@dataclass(frozen=True)
class Capture:
    """The attention of one example through one model.

    Attributes
    ----------
    groups : mapping of name to AttentionGroup
        Each with `scores` and `weights`. A model with one kind of attention has the one group ``""``.
    report : Report
        A list of dicts, one a layer: module, backend, dtype, shape, mask, share of visible cells, non-finite values,
        range of row sums, difference between softmax(scores) and the weights, seconds, bytes.
    output
        What the model returned, where ``keep`` held "output".
    store : mapping, optional
        Of a capture on disk: where it is and what it is of.
    left_out : tuple of str
        What looked like attention and is none between tokens: attention over channels.
    """

    groups: Mapping[str, AttentionGroup]
    report: Report
    model: str = ""
    output: Any = field(default=None, repr=False)
    store: Mapping[str, Any] | None = field(default=None, repr=False)
    left_out: tuple[str, ...] = ()

    @property
    def scores(self) -> NetworkTensor:
        """Attention before softmax, of a model with one group."""
        return self._only("scores").scores

    @property
    def weights(self) -> NetworkTensor:
        """Attention after softmax, of a model with one group."""
        return self._only("weights").weights

    def _only(self, kind: str) -> AttentionGroup:
        if len(self.groups) != 1:
            said = ", ".join(f"{g.name!r} {g.shape[0]}x{g.shape[1]}x{g.shape[2]}" for g in self.groups.values())
            first = next(iter(self.groups))
            raise CaptureError(
                f"{kind}: this capture has {len(self.groups)} groups that do not make one tensor ({said}); "
                f"take one, such as .groups[{first!r}].{kind}"
            )
        return next(iter(self.groups.values()))

    def __getitem__(self, name: str) -> AttentionGroup:
        try:
            return self.groups[name]
        except KeyError:
            raise KeyError(f"no group {name!r}; this capture has {sorted(self.groups)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.groups)

    def __repr__(self) -> str:
        parts = [
            f"{g.name + ': ' if g.name else ''}{len(g.layers)} layer(s), {g.shape[0]} queries x {g.shape[1]} keys x "
            f"{g.shape[2]} heads"
            for g in self.groups.values()
        ]
        return f"Capture({self.model}; {'; '.join(parts)})"


def build(
    records: Sequence[Record],
    naming: Naming,
    model: str,
    output: Any = None,
    left_out: Sequence[str] = (),
    store: Mapping[str, Any] | None = None,
) -> Capture:
    """Group records and make network tensors of them. The records' arrays are given up on the way."""
    groups: dict[str, AttentionGroup] = {}
    records = joined(records)
    rows = [r.row for r in records]
    for name, members in group(records).items():
        for record in members:
            record.row["group"] = name
        groups[name] = _group(name, members, naming, model)
    sizes = {n for g in groups.values() for n in g.shape[:2]} | {n for r in records for n in r.shape[1:]}
    if naming.tokens is not None and len(naming.tokens) not in sizes:
        raise CaptureError(
            f"tokens: got {len(naming.tokens)} names, expected as many as queries or keys: {sorted(sizes)}"
        )
    return Capture(groups, Report(rows), model, output, store, tuple(left_out))


def _group(name: str, records: Sequence[Record], naming: Naming, model: str) -> AttentionGroup:
    first = records[0]
    real_q, named_q = naming.axis(records, keys=False)
    real_k, named_k = naming.axis(records, keys=True)
    special = naming.special(records, named_q, named_k, real_q, real_k)
    keep_q, queries = _cut(real_q, named_q, first.rows)
    keep_k, keys = _cut(real_k, named_k, first.columns)
    if special is not None:
        special = {
            "queries": _moved(special["queries"], real_q, first.rows),
            "keys": _moved(special["keys"], real_k, first.columns),
        }
    heads: dict[str, list[Any]] = {
        "layer": [r.layer for r in records for _ in r.heads],
        "head": [int(h) for r in records for h in r.heads],
        "kv_group": [int(g) for r in records for g in r.kv_group],
        "group": [name for r in records for _ in r.heads],
        "module": [r.place.module for r in records for _ in r.heads],
        "window": [-1 if r.window is None else int(r.window[i]) for r in records for i in range(len(r.heads))],
    }
    tensors: dict[str, NetworkTensor] = {}
    missing: dict[str, str] = {}
    broken = _nonfinite(records)
    visible: BoolArray | None = None
    for kind in MAPS:
        given = [maps_of(r, kind) for r in records]
        if any(maps is None for maps in given):
            continue
        if broken:
            missing[kind] = broken
            continue
        meta: dict[str, Any] = {"source": "capture", "model": model}
        meta |= {} if special is None else {"special": special}
        if kind == "scores":
            meta["raw"] = all(r.raw or r.visible is None for r in records)
        if not all(map(is_plain, given)):
            values: Any = LayerStack(given, records, keep_q, keep_k)
            tensors[kind] = NetworkTensor(values, kind, None, heads, queries, keys, meta)
            continue
        if not tensors:
            cells = [crop(_columns(dense(r.visible), r.columns), keep_q, keep_k) for r in records]
            visible = visible_of(cells, [len(r.heads) for r in records])
        for r in records:
            setattr(r, kind, None)  # from here on each array lives once
        values = stack(given, keep_q, keep_k)
        tensors[kind] = NetworkTensor(values, kind, visible, heads, queries, keys, meta)
    kept = [first.shape[i] if part is None else len(range(*part)) for i, part in ((1, first.rows), (2, first.columns))]
    n_q, n_k = (n if keep is None else int(keep.sum()) for n, keep in zip(kept, (keep_q, keep_k), strict=True))
    layers = tuple(sorted({r.layer for r in records}))
    windows = tuple((r.tokens, len(r.heads)) for r in records) if records[0].windows else ()
    return AttentionGroup(name, layers, (n_q, n_k, len(heads["layer"])), tensors, missing, windows, naming.inputs.image)


def _cut(
    real: BoolArray | None, names: list[str] | None, part: tuple[int, int, int] | None
) -> tuple[BoolArray | None, list[str] | None]:
    """What of the kept tokens is no padding, and their names, from the same of all tokens."""
    if part is None:
        return real, names
    at = range(*part)
    if real is None:
        return None, None if names is None else [names[i] for i in at]
    if not real[list(at)].any():
        raise CaptureError(f"queries, keys: tokens {at.start} to {at.stop - 1} are padding, expected some real ones")
    if names is not None:
        place = np.cumsum(real) - 1
        names = [names[place[i]] for i in at if real[i]]
    return real[list(at)], names


def _moved(at: Sequence[int], real: BoolArray | None, part: tuple[int, int, int] | None) -> list[int]:
    """Places among the kept tokens of those that are at these places among all that are no padding."""
    if part is None:
        return list(at)
    kept = [i for i in range(*part) if real is None or real[i]]
    place = {token: i for i, token in enumerate(kept)}
    tokens = at if real is None else np.flatnonzero(real)[list(at)].tolist()
    return [place[t] for t in tokens if t in place]


def _columns(cells: BoolArray | None, part: tuple[int, int, int] | None) -> BoolArray | None:
    return cells if cells is None or part is None else cells[..., slice(*part)]


def _nonfinite(records: Sequence[Record]) -> str:
    bad = [r for r in records if r.row["nonfinite"]]
    if not bad:
        return ""
    total, first = sum(r.row["nonfinite"] for r in bad), bad[0]
    half = first.row["dtype"] in ("float16", "bfloat16")
    way = (
        "run it in float32 (model.float()), or with attn_implementation='sdpa', whose scores are recomputed in float32"
        if half and first.row["backend"] == "softmax"
        else "look for NaN in the inputs and weights of the model, or run it in float32 (model.float())"
        if half
        else "look for NaN or infinities in the inputs and weights of the model"
    )
    where = repr(first.place.module) if first.place.module else "the model itself"
    return (
        f"{where}: {total} score(s) or weight(s) in {len(bad)} layer(s) are NaN or infinite as the "
        f"model computed them in {first.row['dtype']}, expected finite numbers; {way}"
    )


__all__ = ["AttentionGroup", "Capture", "build"]
