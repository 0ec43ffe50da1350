"""Following tensors from the product of queries and keys to softmax, and from softmax to the product with values.

That a softmax is attention is not guessed from shapes. Its input must descend from a product of two activations (not
of an activation and a parameter, as routers and classifiers are), and its output must weigh values in a second product.
What happens on the way tells which cells a mask hides. Tensors are followed by identity and held weakly.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch import Tensor

from pyattnorg.capture.masks import either, hidden_by_bias, hidden_by_fill, hidden_by_where
from pyattnorg.capture.positions import Rows
from pyattnorg.capture.products import Factors, function_name

if TYPE_CHECKING:
    from pyattnorg.capture.softmax import Candidate

Lie: TypeAlias = "tuple[Rows | None, Rows | None]"  # of queries and keys

_ADD = {"add", "add_", "__add__", "__radd__", "__iadd__"}
_SUB = {"sub", "sub_", "subtract", "subtract_", "__sub__", "__isub__"}
_FILL = {"masked_fill", "masked_fill_"}
_WHERE = {"where"}
_SWAP = {"transpose", "swapaxes", "swapdims", "permute", "t", "T", "mT", "H", "mH", "movedim", "moveaxis"}
_SHAPE = {"view", "reshape", "squeeze", "unsqueeze", "flatten", "unflatten", "contiguous", *_SWAP}
_SLICE = {"__getitem__", "narrow", "slice"}


@dataclass(frozen=True)
class Trail:
    """What is known of a tensor: scores on their way to softmax, or weights on their way to the values."""

    stage: Literal["scores", "weights", "exp", "logs"]
    hidden: Tensor | None = None  # cells that masks hid so far, broadcastable to the tensor
    masks: tuple[str, ...] = ()
    key_heads: int | None = None
    channels_first: bool = False  # in memory, what was summed over lies further apart than the queries
    candidate: Candidate | None = None
    flipped: bool = False  # the last two axes are swapped: keys x queries
    dropout: float = 0.0  # of weights, in training
    depth: int = 0  # of queries and keys: what was summed over
    lie: Lie = (None, None)  # where queries and keys are among the tokens
    source: Tensor | None = None  # of exponentials and logarithms on their way to weights: a copy of the scores


class Trails:
    """The tensors being followed."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], Trail]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()

    def get(self, x: Any) -> Trail | None:
        """The trail of this very tensor, if it is followed."""
        found = self._known.get(id(x))
        return found[1] if found is not None and found[0]() is x else None

    def put(self, x: Tensor, trail: Trail) -> None:
        """Follow a tensor; those that are gone are forgotten now and then, and before a map is added."""
        if len(self._known) >= 128 or trail.candidate is not None:
            self._known = {k: v for k, v in self._known.items() if v[0]() is not None}
        self._known[id(x)] = (weakref.ref(x), trail)

    def first(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Tensor, Trail] | None:
        """The first argument that is followed."""
        for x in _flat(args, kwargs):
            trail = self.get(x)
            if trail is not None:
                return x, trail
        return None

    def born(self, factors: Factors, out: Any, is_parameter: Callable[[Tensor], bool], lie: Lie = (None, None)) -> None:
        """Start a trail: scores are a product of queries and keys, neither being a parameter on the side of keys."""
        keys = factors.key_side
        if not isinstance(out, Tensor) or not out.is_floating_point() or out.ndim < 2 or is_parameter(keys):
            return
        hidden = hidden_by_bias(factors.bias)
        masks = () if hidden is None else ("additive",)
        heads = keys.shape[-3] if factors.equation is None and keys.ndim == out.ndim >= 4 else None
        if heads is not None and heads > 1 and keys.stride(-3) == 0:
            heads = 1  # one head of keys, spread over all
        depth = int(factors.left.shape[factors.summed(factors.left)])
        self.put(out, Trail("scores", hidden, masks, heads, factors.channels_first, lie=lie, depth=depth))

    def follow(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any, x: Tensor, trail: Trail
    ) -> None:
        """Carry the trail of argument `x` over to the result of a function."""
        if not isinstance(out, Tensor) or not out.is_floating_point() or out.ndim < 2:
            return
        name = function_name(func)
        after: Trail | None
        if trail.stage in ("exp", "logs"):
            after = trail if out.shape == x.shape else None
        elif trail.stage == "scores":
            after = self._scores(name, func, args, kwargs, out, x, trail)
        else:
            after = self._weights(name, args, kwargs, out, x, trail)
        if after is not None:
            self.put(out, after)

    def _scores(
        self, name: str, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor, x: Tensor, trail: Trail
    ) -> Trail | None:
        if name in ("cat", "concat", "concatenate", "hstack") and out.shape[:-1] == x.shape[:-1]:
            # a column for attention sinks: it belongs to no key, and no mask hides it
            if trail.hidden is None:
                return trail
            extra = out.shape[-1] - x.shape[-1]
            return replace(trail, hidden=torch.nn.functional.pad(trail.hidden.expand(x.shape), (0, extra)))
        if out.numel() < x.numel():
            return None
        hidden, kind = None, ""
        other = next((a for a in args[:2] if a is not x), kwargs.get("other"))
        if name in _ADD and _spans_keys(other, out):
            hidden, kind = hidden_by_bias(other), "additive"
            second = self.get(other)
            if second is not None and second.stage == "scores":
                hidden = either(hidden, second.hidden)
        elif name in _SUB and args and args[0] is x and isinstance(other, Tensor) and _spans_keys(other, out):
            hidden, kind = hidden_by_bias(-other), "additive"
        elif name in _FILL:
            mask, value = [*args[1:3], None, None][:2]
            hidden, kind = hidden_by_fill(kwargs.get("mask", mask), kwargs.get("value", value)), "boolean"
        elif name in _WHERE:
            condition, chosen, other = _where_arguments(args, kwargs)
            hidden, kind = hidden_by_where(condition, chosen, other, x), "boolean"
        before = trail.hidden
        if before is not None and out.shape != x.shape:
            before = _moved(before, name, func, args, kwargs, out, x)
        masks = trail.masks if hidden is None or kind in trail.masks else (*trail.masks, kind)
        return replace(trail, hidden=either(before, hidden), masks=masks)

    def _weights(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor, x: Tensor, trail: Trail
    ) -> Trail | None:
        if name in _SWAP and out.ndim == x.ndim and _swaps_last_two(name, args, kwargs, x):
            return replace(trail, flipped=not trail.flipped)
        if out.numel() == x.numel():
            return replace(trail, dropout=_dropout(args, kwargs)) if "dropout" in name else trail
        if name in _SLICE and out.shape[:-1] == x.shape[:-1] and out.data_ptr() == x.data_ptr():
            return trail  # the first columns: those of sinks were dropped
        return None


def _flat(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    for a in (*args, *kwargs.values()):
        if isinstance(a, (list, tuple)):
            yield from a
        else:
            yield a


def _spans_keys(other: Any, out: Tensor) -> bool:
    """Whether a bias differs from key to key: what is the same for a whole row masks nothing."""
    return isinstance(other, Tensor) and other.ndim >= 1 and other.shape[-1] == out.shape[-1]


def _where_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """(condition, chosen, other) of ``torch.where`` or ``Tensor.where``."""
    given = list(args)
    condition = kwargs["condition"] if "condition" in kwargs else given.pop(0) if given else None
    if "condition" in kwargs and given and "other" in kwargs:
        return condition, given[0], kwargs["other"]
    if isinstance(condition, Tensor) and condition.dtype.is_floating_point and given:
        # Tensor.where(condition, other)
        chosen, condition = condition, given.pop(0)
        return condition, chosen, kwargs.get("other", given[0] if given else None)
    chosen = kwargs["input"] if "input" in kwargs else given.pop(0) if given else None
    return condition, chosen, kwargs.get("other", given[0] if given else None)


def _moved(
    hidden: Tensor, name: str, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor, x: Tensor
) -> Tensor | None:
    """The hidden cells after a change of shape, or None where they cannot be followed."""
    if name == "pad":
        return _padded(hidden.expand(x.shape), args, kwargs, out)
    if out.numel() > x.numel() and name not in _SHAPE:
        # broadcast against something larger, if trailing axes still match
        return hidden if all(a in (1, b) for a, b in zip(hidden.shape[::-1], out.shape[::-1])) else None
    whole = hidden.expand(x.shape)
    if name in ("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze"):
        return whole.reshape(out.shape)
    if name in _SWAP and args and args[0] is x:
        moved = func(whole, *args[1:], **kwargs)
        return moved if isinstance(moved, Tensor) and moved.shape == out.shape else None
    return None


def _padded(hidden: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> Tensor | None:
    """The hidden cells with those that ``torch.nn.functional.pad`` added, hidden if they hold -inf."""
    given = dict(zip(("input", "pad", "mode", "value"), args)) | dict(kwargs)
    if given.get("mode", "constant") != "constant":
        return None
    value = given.get("value")
    padded = torch.nn.functional.pad(hidden, given["pad"], value=float(value == -torch.inf))
    return padded if padded.shape == out.shape else None


def _swaps_last_two(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], x: Tensor) -> bool:
    n = x.ndim
    if name in ("T", "t", "mT", "H", "mH"):
        return n == 2 or name in ("mT", "mH")
    numbers = [d for a in (*args[1:], *kwargs.values()) for d in (a if isinstance(a, (list, tuple)) else [a])]
    if not all(isinstance(d, int) for d in numbers):
        return False
    dims = [d % n for d in numbers]
    if name == "permute":
        return dims == [*range(n - 2), n - 1, n - 2]
    return len(dims) == 2 and set(dims) == {n - 2, n - 1}


def _dropout(args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """Probability of a call of dropout, 0 outside training."""
    p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
    on = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    return float(p) if on else 0.0


__all__ = ["Lie", "Trail", "Trails"]
