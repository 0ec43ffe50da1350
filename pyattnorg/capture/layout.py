"""Which axis of a map is the batch and which the heads, and whether its queries are the model's tokens at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pyattnorg.capture.errors import CaptureError, ChannelsError, UnsupportedAttentionError, UnsureError, named
from pyattnorg.capture.positions import Rows
from pyattnorg.capture.record import Place
from pyattnorg.capture.windows import Windowed, read_windows

_HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "num_head", "nhead", "heads")
_KEY_HEAD_COUNTS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_kv_head", "kv_heads")


@dataclass(frozen=True)
class Scene:
    """The module whose forward made a map, with the modules around it (innermost first)."""

    place: Place
    module: nn.Module
    parents: tuple[nn.Module, ...] = ()
    chain: tuple[nn.Module, ...] = ()  # all that were running, the root first

    @property
    def name(self) -> str:
        """How errors name it."""
        return named(self.place.module, type(self.module).__name__)

    def head_count(self) -> int | None:
        """Heads that the module says it has."""
        return head_count_of(self.module)

    def head_count_around(self) -> int | None:
        """Heads that the module, or the nearest one around it that says so, has."""
        return next((n for m in (self.module, *self.parents) if (n := _count(m, _HEAD_COUNTS)) is not None), None)

    def key_head_count(self, heads: int, seen: int | None) -> int:
        """Heads of keys: seen in the call, or what the module says, or as many as heads of queries."""
        if seen is not None and seen < heads and heads % seen == 0:
            return seen
        groups = getattr(self.module, "num_key_value_groups", None)
        if isinstance(groups, int) and groups > 1 and heads % groups == 0:
            return heads // groups
        said = _count(self.module, _KEY_HEAD_COUNTS)
        return said if said is not None and said < heads and heads % said == 0 else heads


def head_count_of(module: nn.Module) -> int | None:
    """Heads that a module says it has."""
    return _count(module, _HEAD_COUNTS)


def _count(module: nn.Module, names: Sequence[str]) -> int | None:
    own, kind = vars(module), type(module)
    for name in names:
        # a module takes long to say that it lacks something, and most are asked for what they lack
        value = own[name] if name in own else getattr(module, name, None) if hasattr(kind, name) else None
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


@dataclass
class Batches:
    """Sizes that a batch can have, read from the model's inputs; nothing known accepts everything."""

    sizes: set[int] = field(default_factory=set)
    sequence_first: set[tuple[int, int]] = field(default_factory=set)  # (length, batch)
    lengths: set[int] = field(default_factory=set)  # every size of every input
    several: int = 1  # examples that there are if the first axis of inputs counts them

    def read(self, tensors: Iterable[Tensor]) -> None:
        """Learn from input tensors."""
        for x in tensors:
            if x.is_nested or x.ndim == 0:
                continue
            self.sizes.add(int(x.shape[0]))
            if x.ndim > 2 or (x.ndim == 2 and not x.is_floating_point()):
                self.several = max(self.several, int(x.shape[0]))
            self.lengths.update(int(n) for n in x.shape)
            if x.ndim == 1 or (x.is_floating_point() and x.ndim in (2, 3)):
                self.sizes.add(1)  # it may be one example without a batch axis
            if x.ndim == 3 or (x.ndim == 2 and not x.is_floating_point()):
                self.sequence_first.add((int(x.shape[0]), int(x.shape[1])))

    def accept(self, batch: int, length: int) -> bool:
        """Whether a map of `length` queries for a batch of `batch` can be one map per example."""
        return not self.sizes or batch in self.sizes or (length, batch) in self.sequence_first

    def __str__(self) -> str:
        return " or ".join(str(n) for n in sorted(self.sizes)) or "any size"


@dataclass(frozen=True)
class Layout:
    """How the leading axes of a map are to be read."""

    batch: int
    heads: int
    kind: Literal["batch, heads", "heads, batch", "batch*heads", "heads*batch", "batch", "heads", "", "windows"]
    windowed: Windowed | None = None

    @property
    def windows(self) -> int:
        """Windows of an example; 0 where the map is over all tokens."""
        return 0 if self.windowed is None else self.windowed.count("w")

    @property
    def rows(self) -> int:
        """Maps of an example: heads, or heads of every window."""
        return self.heads * max(self.windows, 1)

    def pick(self, x: Tensor, example: int) -> Tensor:
        """One example of a tensor whose leading axes match the map's or broadcast to them: (rows or 1, m, n)."""
        if self.windowed is not None:
            return self.windowed.pick(x, example)
        lead = {"batch, heads": 2, "heads, batch": 2, "": 0}.get(self.kind, 1)
        x = x.reshape((1,) * (lead + 2 - x.ndim) + tuple(x.shape)) if x.ndim < lead + 2 else x
        if self.kind == "batch, heads":
            return x[example if x.shape[0] > 1 else 0]
        if self.kind == "heads, batch":
            return x[:, example if x.shape[1] > 1 else 0]
        if self.kind in ("batch*heads", "heads*batch"):
            if x.shape[0] == 1:
                return x
            if self.kind == "heads*batch":
                return x[example :: self.batch]
            return x[example * self.heads : (example + 1) * self.heads]
        if self.kind == "batch":
            return x[example : example + 1] if x.shape[0] > 1 else x
        return x if self.kind == "heads" else x[None]


def read_layout(shape: Sequence[int], scene: Scene, batches: Batches, rows: Rows | None = None) -> Layout:
    """Read the shape (…, queries, keys) of a map that `scene` made, or refuse it.

    `rows` says where its queries lie among the tokens, if they were followed there.
    """
    shape = tuple(int(n) for n in shape)
    queries, said, around = shape[-2], scene.head_count(), scene.head_count_around()
    if 0 in shape:
        raise CaptureError(f"{scene.name}: saw a map of shape {shape}, expected at least one query and key")
    if len(shape) == 4:
        batch, heads = shape[:2]
        fits = said is None or heads in (said, around)
        if fits and batches.accept(batch, queries):
            return Layout(batch, heads, "batch, heads")
        if batch == said and heads != around and batches.accept(heads, queries):
            return Layout(heads, batch, "heads, batch")
    elif len(shape) == 3:
        first = shape[0]
        if around is not None and around > 1 and first % around == 0 and batches.accept(first // around, queries):
            batch = first // around
            return Layout(batch, around, "heads" if batch == 1 else "batch*heads")
        if (around in (None, 1) or first == max(batches.sizes, default=0)) and batches.accept(first, queries):
            return Layout(first, 1, "batch")  # one head at a time, if the module has several
    elif len(shape) == 2 and shape[0] == shape[1]:
        return Layout(1, 1, "")
    if len(shape) > 2 and batches.sizes:
        counts = [said, around] if said is not None and said != around else [around]
        for count in counts:
            found = read_windows(shape[:-2], sorted(batches.sizes), count, rows)
            if found is not None:
                return Layout(found.count("b"), found.count("h"), "windows", found)
    known = "no number of heads" if around is None else f"{around} heads"
    raise UnsupportedAttentionError(
        f"{scene.name}: saw a map of shape {shape}, expected (batch, heads, queries, keys) or (batch * heads, "
        f"queries, keys), with windows beside them; the module knows {known} and the batch is {batches}: this cannot "
        "be read in one way only; capture one example at a time, or say num_heads on the module"
    )


def refuse_channels(
    scene: Scene,
    heads: int,
    queries: int,
    keys: int,
    width: int,
    depth: int,
    channels_first: bool,
    rows: Rows | None = None,
) -> None:
    """Refuse maps whose queries are channels: then heads x queries is the model's width, and heads x width is not.

    `width` is that of values, `depth` that of queries and keys.

    Where both are the same number, only the order in memory tells: channels of a token lie side by side. Where queries
    were followed among the tokens (`rows`), that is known better.
    """
    if queries != keys or (rows is not None and len(set(rows.token.reshape(-1, queries)[0].tolist())) == queries):
        return
    kind = type(scene.module).__name__.lower()
    widths = set()
    for child in scene.module.children():
        for name in ("in_features", "in_channels"):
            value = getattr(child, name, None)
            if isinstance(value, int):
                widths.add(value)
    by_width = heads * queries in widths and not {heads * width, heads * depth} & widths
    if by_width or "channelattention" in kind or "channelattn" in kind or kind in ("xca", "crosscovarianceattn"):
        raise ChannelsError(
            f"{scene.name}: saw {heads} maps of {queries} x {queries} channels; attention over channels has no "
            "queries and keys among the tokens and is not supported"
        )
    if channels_first and queries == width and queries > 1:
        raise UnsureError(
            f"{scene.name}: saw {heads} maps of {queries} x {queries}, and cannot tell tokens from channels, as there "
            f"are {queries} of both; use an input of another length"
        )


def tensors_in(x: Any, depth: int = 3) -> list[Tensor]:
    """Every tensor in nested tuples, lists, dicts and objects with such fields."""
    if isinstance(x, torch.Tensor):
        return [x]
    if depth <= 0 or x is None or isinstance(x, (str, bytes, int, float)):
        return []
    if isinstance(x, (list, tuple, set)):
        items: Iterable[Any] = x
    elif hasattr(x, "values") and callable(x.values):
        items = x.values()
    elif hasattr(x, "__dataclass_fields__"):
        items = [getattr(x, name, None) for name in x.__dataclass_fields__]
    else:
        return []
    return [t for item in items for t in tensors_in(item, depth - 1)]


__all__ = ["Batches", "Layout", "Scene", "head_count_of", "read_layout", "refuse_channels", "tensors_in"]
