"""What a capture gives: network tensors by group, and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from pyattnorg.capture.errors import CaptureError
from pyattnorg.capture.groups import group
from pyattnorg.capture.parts import joined
from pyattnorg.capture.record import BoolArray, Record, Report, Tokens
from pyattnorg.capture.scatter import on_grid
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
    left_out : tuple of str
        What looked like attention and is none between tokens: attention over channels.
    """

    groups: Mapping[str, AttentionGroup]
    report: Report
    model: str = ""
    output: Any = field(default=None, repr=False)
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
    records: Sequence[Record], naming: Naming, model: str, output: Any = None, left_out: Sequence[str] = ()
) -> Capture:
    """Group records and make network tensors of them. The records' arrays are given up on the way."""
    groups: dict[str, AttentionGroup] = {}
    records = joined(records)
    rows = [r.row for r in records]
    for name, members in group(records).items():
        for record in members:
            record.row["group"] = name
        groups[name] = _group(name, members, naming, model)
    sizes = {n for g in groups.values() for n in g.shape[:2]} | {n for row in rows for n in row["shape"][1:]}
    if naming.tokens is not None and len(naming.tokens) not in sizes:
        raise CaptureError(
            f"tokens: got {len(naming.tokens)} names, expected as many as queries or keys: {sorted(sizes)}"
        )
    return Capture(groups, Report(rows), model, output, tuple(left_out))


def _group(name: str, records: Sequence[Record], naming: Naming, model: str) -> AttentionGroup:
    (keep_q, queries), (keep_k, keys) = naming.axis(records, keys=False), naming.axis(records, keys=True)
    special = naming.special(records, queries, keys, keep_q, keep_k)
    heads: dict[str, list[Any]] = {
        "layer": [r.layer for r in records for _ in r.heads],
        "head": [int(h) for r in records for h in r.heads],
        "kv_group": [int(g) for r in records for g in r.kv_group],
        "group": [name for r in records for _ in r.heads],
        "module": [r.place.module for r in records for _ in r.heads],
        "window": [-1 if r.window is None else int(r.window[i]) for r in records for i in range(len(r.heads))],
    }
    visible = _visible([_crop(r.visible, keep_q, keep_k) for r in records], [len(r.heads) for r in records])
    tensors: dict[str, NetworkTensor] = {}
    missing: dict[str, str] = {}
    broken = _nonfinite(records)
    for kind in ("scores", "weights"):
        arrays = [getattr(r, kind) for r in records]
        for r in records:
            setattr(r, kind, None)  # from here on each array lives once
        if any(a is None for a in arrays):
            continue
        if broken:
            missing[kind] = broken
            continue
        meta: dict[str, Any] = {"source": "capture", "model": model}
        meta |= {} if special is None else {"special": special}
        if kind == "scores":
            meta["raw"] = all(r.raw or r.visible is None for r in records)
        values = stack(arrays, keep_q, keep_k)
        tensors[kind] = NetworkTensor(values, kind, visible, heads, queries, keys, meta)
    n_q = int(keep_q.sum()) if keep_q is not None else records[0].shape[1]
    n_k = int(keep_k.sum()) if keep_k is not None else records[0].shape[2]
    layers = tuple(sorted({r.layer for r in records}))
    windows = tuple((r.tokens, len(r.heads)) for r in records) if records[0].windows else ()
    return AttentionGroup(name, layers, (n_q, n_k, len(heads["layer"])), tensors, missing, windows, naming.inputs.image)


def _nonfinite(records: Sequence[Record]) -> str:
    bad = [r for r in records if r.row["nonfinite"]]
    if not bad:
        return ""
    total, first = sum(r.row["nonfinite"] for r in bad), bad[0]
    return (
        f"{first.place.module!r}: {total} score(s) or weight(s) in {len(bad)} layer(s) are NaN or infinite as the "
        f"model computed them in {first.row['dtype']}, expected finite numbers; run it in float32 (model.float()), or "
        "with attn_implementation='sdpa', whose scores are recomputed in float32"
    )


def stack(arrays: list[Any], keep_q: BoolArray | None = None, keep_k: BoolArray | None = None) -> Any:
    """Layers of (heads, queries, keys) as one (queries, keys, heads) view; the list is emptied, to hold memory once."""
    cropped = _crop(arrays[0], keep_q, keep_k)
    dtype = np.result_type(*{a.dtype for a in arrays})
    out = np.empty((sum(len(a) for a in arrays), *cropped.shape[1:]), dtype)
    at = 0
    arrays.reverse()
    while arrays:
        layer = arrays.pop()
        out[at : at + len(layer)] = _crop(layer, keep_q, keep_k)
        at += len(layer)
    out.flags.writeable = False  # nobody else holds it: a network tensor need not copy it
    return out.transpose(1, 2, 0)


def _crop(x: Any, keep_q: BoolArray | None, keep_k: BoolArray | None) -> Any:
    if x is None:
        return None
    x = x if keep_q is None else x[..., keep_q, :]
    return x if keep_k is None else x[..., keep_k]


def _visible(layers: Sequence[BoolArray | None], heads: Sequence[int]) -> BoolArray | None:
    """One (queries, keys) for all heads where they agree, else (queries, keys, heads)."""
    known = [v for v in layers if v is not None]
    if not known or all(v.all() for v in known):
        return None
    first = known[0]
    if len(known) == len(layers) and first.ndim == 2 and all(np.array_equal(v, first) for v in known):
        return first
    out = np.ones((sum(heads), *first.shape[-2:]), bool)
    at = 0
    for v, n in zip(layers, heads, strict=True):
        if v is not None:
            out[at : at + n] = v
        at += n
    return out.transpose(1, 2, 0)


__all__ = ["AttentionGroup", "Capture", "build", "stack"]
