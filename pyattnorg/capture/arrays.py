"""Attention that another tool returned: lists, tuples, stacked arrays, dicts. No torch needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import to_numpy
from pyattnorg.capture.stacking import stack
from pyattnorg.head_table import Heads
from pyattnorg.network import Kind, NetworkTensor

_DEFAULT_LAYOUTS = {3: "hqk", 4: "lhqk", 5: "lbhqk"}
_LAYER_LAYOUTS = {3: "hqk", 4: "bhqk"}


def from_arrays(
    data: Any,
    kind: Kind = "weights",
    *,
    visible: Any = None,
    example: int | None = None,
    layout: str | None = None,
    heads: Heads | Mapping[str, Sequence[Any]] | None = None,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> NetworkTensor:
    """A network tensor from what tools return.

    Parameters
    ----------
    data : array, sequence or mapping of arrays
        One array a layer, each (heads, q, k) or (batch, heads, q, k), in a list, a tuple or a dict of names; or one
        stacked array (heads, q, k), (layers, heads, q, k) or (layers, batch, heads, q, k). NumPy, or torch on any
        device and of any precision. An object with `attentions` (what transformers models return) stands for those.
    kind : {"weights", "scores", "logweights"}
        What the numbers are: after softmax, before softmax, or the logarithm of the former.
    visible : bool array, optional
        Cells the model can see, (q, k) or (q, k, heads of all layers).
    example : int, optional
        Which example of the batch; needed where there are several.
    layout : str, optional
        The axes' order, where it is another: letters of ``l`` layers, ``b`` batch, ``h`` heads, ``q``, ``k``, such as
        ``"qkh"`` or ``"blhqk"``. For a sequence or dict it is that of one layer's array.
    heads, queries, keys, meta :
        As in `NetworkTensor`; without `heads` they are numbered layer by layer.

    Returns
    -------
    NetworkTensor

    Raises
    ------
    ValueError, TypeError
        Nothing in it, shapes that do not fit together, several examples and none picked, weights that are none.
    """
    numbers, names, layers = _layers(data, layout, example)
    shapes = {layer.shape[1:] for layer in layers}
    if len(shapes) > 1:
        called = [name or f"layer {i}" for i, name in zip(numbers, names, strict=True)]
        seen = ", ".join(f"{n}: {a.shape[1]}x{a.shape[2]}" for n, a in list(zip(called, layers, strict=True))[:6])
        raise ValueError(
            f"data: layers have different queries x keys ({seen}), expected one size; pass one group at a time"
        )
    table: Any = heads
    if heads is None:
        count = [len(a) for a in layers]
        table = {
            "layer": np.repeat(numbers, count),
            "head": np.concatenate([np.arange(c) for c in count]),
            "module": [name for name, c in zip(names, count, strict=True) for _ in range(c)],
        }
    values = stack(layers)
    if kind == "weights":
        _check_weights(values, visible)
    return NetworkTensor(values, kind, visible, table, queries, keys, {"source": "arrays", **dict(meta or {})})


def _layers(data: Any, layout: str | None, example: int | None) -> tuple[list[int], list[str], list[NDArray[Any]]]:
    """Layer numbers, their names and arrays (heads, q, k)."""
    if not isinstance(data, (list, tuple)) and hasattr(data, "attentions"):
        data = data.attentions
        if data is None:
            raise ValueError("data: its attentions are None, expected maps; ask the model for output_attentions=True")
    if isinstance(data, Mapping):
        items = [(i, str(name), a) for i, (name, a) in enumerate(data.items())]
    elif isinstance(data, (list, tuple)):
        items = [(i, "", a) for i, a in enumerate(data)]
    else:
        return _stacked(to_numpy(data, "data"), layout, example)
    # transformers puts None where a layer gave no map
    items = [item for item in items if item[2] is not None]
    if not items:
        raise ValueError(
            f"data: got an empty {type(data).__name__}, expected one array a layer; transformers returns none under "
            "sdpa, where pyattnorg.capture works, or load the model with attn_implementation='eager'"
        )
    if isinstance(data, (list, tuple)) and all(isinstance(a, (list, tuple)) and _depth(a) < 3 for _, _, a in items):
        return _stacked(to_numpy(data, "data"), layout, example)  # nested lists of numbers
    layers = []
    for i, name, a in items:
        what = f"data[{name!r}]" if name else f"data[{i}]"
        x = to_numpy(a, what)
        axes = layout or _LAYER_LAYOUTS.get(x.ndim)
        if axes is None:
            raise ValueError(f"{what}: got shape {x.shape}, expected (heads, q, k) or (batch, heads, q, k)")
        layers.append(_ordered(x, axes, "hqk", example, what))
    return [i for i, _, _ in items], [name for _, name, _ in items], layers


def _depth(x: Any) -> int:
    return 1 + _depth(x[0]) if isinstance(x, (list, tuple)) and len(x) else int(getattr(x, "ndim", 0))


def _stacked(
    x: NDArray[Any], layout: str | None, example: int | None
) -> tuple[list[int], list[str], list[NDArray[Any]]]:
    axes = layout or _DEFAULT_LAYOUTS.get(x.ndim)
    if axes is None:
        raise ValueError(
            f"data: got shape {x.shape}, expected (heads, q, k), (layers, heads, q, k) or (layers, batch, heads, q, "
            "k); say layout= for another order"
        )
    whole = _ordered(x, axes, "lhqk", example, "data")
    return list(range(len(whole))), [""] * len(whole), list(whole)


def _ordered(x: NDArray[Any], axes: str, wanted: str, example: int | None, what: str) -> NDArray[Any]:
    """`x` with its axes named by `axes`, brought to `wanted`; the batch axis is resolved, absent axes get length 1."""
    if len(set(axes)) != len(axes) or not set(axes) <= set("lbhqk") or not set("qk") <= set(axes):
        raise ValueError(f"layout: got {axes!r}, expected letters of 'lbhqk', each once, with q and k among them")
    if len(axes) != x.ndim:
        raise ValueError(f"layout: got {axes!r} for {what} of shape {x.shape}, expected one letter an axis")
    if 0 in x.shape:
        raise ValueError(f"{what}: got shape {x.shape}, expected no empty axis")
    if "b" in axes:
        at = axes.index("b")
        n = x.shape[at]
        if example is None and n > 1:
            raise ValueError(f"{what}: got a batch of {n} examples, expected one; pick it with example=0 to {n - 1}")
        if example is not None and not -n <= example < n:
            raise ValueError(f"example: got {example}, {what} has {n} example(s), counted from 0")
        x, axes = np.take(x, example or 0, axis=at), axes.replace("b", "")
    if "l" in axes and "l" not in wanted:
        raise ValueError(f"layout: got {axes!r} for one layer, expected no l in it; pass the stacked array itself")
    for letter in wanted:
        if letter not in axes:
            x, axes = x[None], letter + axes
    return x.transpose([axes.index(letter) for letter in wanted])


def _check_weights(values: NDArray[Any], visible: Any) -> None:
    seen = np.ones(values.shape, bool)
    if visible is not None:
        mask = to_numpy(visible, "visible").astype(bool)
        if mask.shape in (values.shape, values.shape[:2]):
            seen = np.broadcast_to(mask if mask.ndim == 3 else mask[:, :, None], values.shape)
    low, high = float(values.min(initial=0.0, where=seen)), float(values.max(initial=0.0, where=seen))
    if low < 0 or high > 1.01:
        raise ValueError(
            f"kind: got 'weights' and numbers from {low:.3g} to {high:.3g}, expected 0 to 1; "
            "say kind='scores' for numbers before softmax or kind='logweights' for logarithms"
        )
    if visible is None and not _sums_to_one(values, 1) and _sums_to_one(values, 0):
        q, k, h = values.shape
        raise ValueError(
            f"data: read as {q} queries x {k} keys x {h} heads, its rows do not sum to 1, but its columns do; "
            "say layout='qkh' for an array of (queries, keys, heads)"
        )


def _sums_to_one(values: NDArray[Any], axis: int) -> bool:
    return bool(np.abs(values.sum(axis, dtype=np.float64) - 1).max() < 0.01)


__all__ = ["from_arrays"]
