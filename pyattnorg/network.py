"""The network 3-tensor: queries x keys x heads, with what is known of its cells, heads and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import Array, FloatArray, mask_values, require_finite, to_numpy
from pyattnorg.checks import one_of
from pyattnorg.devices import chosen_device
from pyattnorg.dropping import positions_of, renormalized, said
from pyattnorg.head_table import Heads
from pyattnorg.lazy import HeadValues, SomeHeads, read_values, read_visible
from pyattnorg.visibility import BoolArray, as_deep_as, fill_invisible, visible_cells, warn_of_masks

Kind: TypeAlias = Literal["scores", "weights", "logweights"]
Masked: TypeAlias = Literal["mean", "floor", "raw"]
KINDS = ("scores", "weights", "logweights")


@dataclass(frozen=True, eq=False, init=False)
class NetworkTensor:
    """Attention of a network as one tensor of queries x keys x heads.

    Parameters
    ----------
    values : array, shape (queries, keys, heads)
        Finite wherever a cell is visible; what stands in invisible cells is never used, except by ``masked="raw"``.
        Kept as float32 or float64 and read-only; an array that can still be written is copied. A
        `pyattnorg.lazy.HeadValues` is kept as it is and read head by head: ``network["L3H0"]`` reads one head, and
        ``network.values`` reads them all into memory, where they stay.
    kind : {"scores", "weights", "logweights"}
        Before softmax, after softmax, or the logarithm of the latter.
    visible : bool array, shape (queries, keys) or (queries, keys, heads), optional
        Cells the model can see. Without it every cell is visible, but for -inf and the dtype's lowest number in
        scores and logweights, which mark masked cells. Other numbers that look like a mask (-10000, -1e9) warn.
    heads : Heads or mapping of columns, optional
        Which head is which: layer, head, kv_group, group, module.
    queries, keys : sequences of str, optional
        Names of the tokens.
    meta : mapping, optional
        Anything else worth keeping, JSON-ready. ``meta["raw"] = True`` says that the values in invisible cells are
        what the model computed before masking.

    Raises
    ------
    ValueError
        Not three axes, an empty axis, NaN (the message says where), infinities in visible cells.
    """

    values: FloatArray
    kind: Kind
    visible: BoolArray | None
    heads: Heads
    queries: tuple[str, ...] | None
    keys: tuple[str, ...] | None
    meta: dict[str, Any]
    _source: HeadValues | None = field(repr=False)
    device: ClassVar[str | None] = None  # where `organize` computes; set by `cuda`

    def __init__(
        self,
        values: Array,
        kind: Kind = "scores",
        visible: Array | None = None,
        heads: Heads | Mapping[str, Sequence[Any]] | None = None,
        queries: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        one_of(kind, "kind", KINDS)
        put = object.__setattr__
        put(self, "kind", kind)
        put(self, "meta", dict(meta or {}))
        put(self, "_source", values if isinstance(values, HeadValues) else None)
        if isinstance(values, HeadValues):
            if visible is not None:
                raise TypeError("visible: got an array beside values that are read head by head and bring their own")
            q, k, h = values.shape
            if 0 in values.shape:
                raise ValueError(f"values: got shape {values.shape}, expected no empty axis")
        else:
            q, k, h = self._given(values, visible)
        put(self, "heads", Heads.of(heads, h))
        put(self, "queries", _names(queries, q, "queries"))
        put(self, "keys", _names(keys, k, "keys"))

    def _given(self, values: Array, visible: Array | None) -> tuple[int, int, int]:
        """Check and keep an array of values and what is visible of it; its shape."""
        x = raw = to_numpy(values, "values", quietly=True)  # a network keeps its values here
        if x.ndim != 3 or 0 in x.shape:
            raise ValueError(f"values: got shape {x.shape}, expected (queries, keys, heads) with no empty axis")
        masks = () if self.kind == "weights" else mask_values(values)
        x = x.astype(np.float64 if x.dtype.kind != "f" or x.dtype.itemsize >= 8 else np.float32, copy=False)
        seen = visible_cells(x, visible, masks)
        checked = x if seen is None else np.where(as_deep_as(seen, x), x, 0)
        require_finite(checked, "values")
        if self.kind == "scores" and visible is None:
            warn_of_masks(x, seen)
        put = object.__setattr__
        put(self, "values", _frozen(x.copy() if x.flags.writeable and np.may_share_memory(x, raw) else x))
        put(self, "visible", None if seen is None else _frozen(seen))
        return x.shape[0], x.shape[1], x.shape[2]

    def __getattr__(self, name: str) -> Any:
        """`values` and `visible` of a network that is read head by head, read whole when first asked for."""
        source = self.__dict__.get("_source")
        if source is None or name not in ("values", "visible"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found: Any
        if name == "values":
            found = _frozen(read_values(source))
            self._check(found, None)
        else:
            cells = read_visible(source)
            found = None if cells is None else _frozen(cells)
        object.__setattr__(self, name, found)
        return found

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int, int]:
        """(queries, keys, heads)."""
        if self._source is not None:
            return self._source.shape
        q, k, h = self.values.shape
        return q, k, h

    @property
    def in_memory(self) -> bool:
        """Whether all values are in memory; those of a network that is read head by head are not at first."""
        return "values" in self.__dict__

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of every head, such as ``L5H3``."""
        return self.heads.labels

    def index(self, label: str | int) -> int:
        """Position of the head with this label; a position is itself, counted from the end if negative."""
        if hasattr(label, "__index__"):
            at = int(label)
            if not -len(self) <= at < len(self):
                raise KeyError(f"no head {at}; this network has {len(self)}, counted from 0")
            return at % len(self)
        label = str(label)
        try:
            return self.labels.index(label)
        except ValueError:
            near = [name for name in self.labels if name.endswith(label.split(".")[-1])] or list(self.labels[:3])
            raise KeyError(
                f"no head {label!r}; this network has {len(self.labels)}, such as {', '.join(near)}"
            ) from None

    def __getitem__(self, label: str | int) -> FloatArray:
        """One head's matrix, (queries, keys), by its label or position."""
        return self.head(label)

    def head(self, label: str | int, rows: slice = slice(None)) -> FloatArray:
        """One head's matrix, (queries, keys), or some rows of it; of a network on disk only these are read."""
        at = self.index(label)
        if self._source is None or self.in_memory:
            return self.values[rows, :, at]
        found = self._source.head(at, rows)
        self._check(found, at, rows)
        return found

    def _check(self, values: FloatArray, head: int | None, rows: slice = slice(None)) -> None:
        """Refuse NaN and infinities in visible cells of what was just read, by the head's name."""
        assert self._source is not None
        for i in range(self.shape[2]) if head is None else [head]:
            one = values[:, :, i] if head is None else values
            if np.isfinite(one.sum()):
                continue
            seen = self._source.visible(i)
            bad = ~np.isfinite(one) if seen is None else ~np.isfinite(one) & seen[rows]
            require_finite(np.where(bad, one, 0), f"values of {self.labels[i]}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __len__(self) -> int:
        return self.shape[2]

    def __reduce__(self) -> tuple[Any, ...]:
        lazy = self._source is not None
        given = (
            self._source if lazy else self.values,
            self.kind,
            None if lazy else self.visible,
            self.heads,
            self.queries,
            self.keys,
            self.meta,
        )
        return NetworkTensor, given

    def visible_cells(self) -> BoolArray:
        """Visible cells as (queries, keys, heads), whatever was given."""
        if self.visible is None:
            return np.broadcast_to(np.True_, self.shape)
        cells = self.visible[:, :, None] if self.visible.ndim == 2 else self.visible
        return np.broadcast_to(cells, self.shape)

    def shown(self, head: str | int | None = None) -> FloatArray:
        """One head's matrix (all of them without `head`) for the eye: NaN in cells that the model cannot see."""
        values = self.values if head is None else self[head]
        if head is not None and self._source is not None:
            cells = self._source.visible(self.index(head))
        elif self.visible is None:
            cells = None
        else:
            cells = self.visible_cells() if head is None else self.visible_cells()[:, :, self.index(head)]
        return values if cells is None else np.where(cells, values, values.dtype.type(np.nan))

    def take_heads(self, which: Sequence[int] | Sequence[str] | NDArray[Any]) -> NetworkTensor:
        """The network of some heads, by index or label, in that order."""
        at = [self.index(w) for w in which]
        if not at:
            raise ValueError("which: got no heads, expected at least one")
        if self._source is not None and not self.in_memory:
            return self._with(values=SomeHeads(self._source, at), visible=None, heads=self.heads.take(at))
        visible = self.visible[:, :, at] if self.visible is not None and self.visible.ndim == 3 else self.visible
        return self._with(values=self.values[:, :, at], visible=visible, heads=self.heads.take(at))

    def without(
        self, tokens: Literal["special"] | Sequence[int | str] = "special", *, renormalize: bool = False
    ) -> NetworkTensor:
        """The network without some tokens, as queries and as keys.

        Parameters
        ----------
        tokens : "special" or sequence of positions and names
            "special" means those that ``meta["special"]`` names: a tokenizer's special tokens, class tokens and
            registers of images. A name means the token wherever it occurs.
        renormalize : bool
            Divide the rows of weights by what is left of them, so that they sum to 1 again. Without it they keep what
            the model computed and sum to less. Scores stay as they are.

        Returns
        -------
        NetworkTensor
            ``meta["dropped"]`` holds the positions that were left out, whether rows were renormalised, and the mean
            mass that the rows had lost.

        Raises
        ------
        ValueError
            No token would be left, or nothing says which tokens are special.
        """
        n_q, n_k, _ = self.shape
        if isinstance(tokens, str):
            special = self.meta.get("special")
            if tokens != "special" or special is None:
                raise ValueError(
                    f"tokens: got {tokens!r}, and this network does not say which tokens are special; give positions "
                    "or names, such as tokens=['[CLS]', '[SEP]']"
                )
            q, k = (np.array(special[axis], np.int64) for axis in ("queries", "keys"))
        else:
            q, k = positions_of(tokens, self.queries, n_q, "queries"), positions_of(tokens, self.keys, n_k, "keys")
        rows, columns = np.setdiff1d(np.arange(n_q), q), np.setdiff1d(np.arange(n_k), k)
        if not len(rows) or not len(columns):
            raise ValueError(f"tokens: got {len(q)} queries and {len(k)} keys to leave out, expected some to be left")
        values, seen = self.values[rows][:, columns], self.visible_cells()[rows][:, columns]
        mass = None
        if self.kind != "scores":
            hidden = (
                0.0 if self.kind == "weights" else -np.inf
            )  # before exp: what stands in hidden cells may be anything
            given = np.where(self.visible_cells()[rows][:, k], self.values[rows][:, k], hidden)
            lost = (given if self.kind == "weights" else np.exp(given)).sum(1)
            mass = float(lost.mean()) if lost.size else 0.0
            if renormalize:
                values, seen = renormalized(values, seen, self.kind)
        meta = {name: value for name, value in self.meta.items() if name != "special"}
        meta["dropped"] = said({"queries": q.tolist(), "keys": k.tolist()}, renormalize and mass is not None, mass)
        return self._with(
            values=values,
            visible=None if seen.all() else seen,
            queries=None if self.queries is None else [self.queries[i] for i in rows],
            keys=None if self.keys is None else [self.keys[i] for i in columns],
            meta=meta,
        )

    def cuda(self, device: str = "cuda") -> NetworkTensor:
        """The same network, to be organised on a GPU; its values stay here until then.

        Raises
        ------
        ImportError
            There is no GPU that can be used, or this build has no kernels for it.
        """
        found = self._with()
        object.__setattr__(found, "device", chosen_device(device))
        return found

    # -- making it ready for numbers -------------------------------------------------------------------------------

    def filled(self, masked: Masked = "mean") -> NetworkTensor:
        """The same network with a number in every cell, ready for affinities.

        Invisible cells of weights become 0. Those of scores and logweights become the mean of the row's visible cells
        in that head (``"mean"``), their minimum (``"floor"``), or stay what the model computed before masking
        (``"raw"``). Queries and keys that no head can see are left out; ``meta["left_out"]`` names them.
        `visible` still says which cells are real, and ``meta["masked"]`` how the others were filled.
        """
        one_of(masked, "masked", ("mean", "floor", "raw"))
        if self.visible is None or "masked" in self.meta:
            return self
        if masked == "raw" and self.kind != "weights" and not (self.kind == "scores" and self.meta.get("raw")):
            raise ValueError(
                "masked: 'raw' needs the scores from before masking, which this network does not hold; "
                "use 'mean' or 'floor', or capture a model whose masks are applied by a function we can see"
            )
        seen = self.visible_cells()
        queries: BoolArray = np.asarray(seen.any((1, 2)))
        keys: BoolArray = np.asarray(seen.any((0, 2)))
        if not queries.any():
            raise ValueError("visible: no cell is visible, so there is nothing to organise; check the mask")
        at = np.ix_(queries, keys, np.arange(self.shape[2]))
        if masked == "raw" and self.kind == "scores":
            values = self.values[at]
            require_finite(values, "values")
        else:
            values = fill_invisible(self.values[at], seen[at], "zero" if self.kind == "weights" else masked)
        meta = dict(self.meta)
        meta.pop("raw", None)
        meta["masked"] = "zero" if self.kind == "weights" else masked
        if not (queries.all() and keys.all()):
            meta["left_out"] = {"queries": np.flatnonzero(~queries).tolist(), "keys": np.flatnonzero(~keys).tolist()}
            if "special" in meta:  # their positions among those that are left
                left = {"queries": np.cumsum(queries) - 1, "keys": np.cumsum(keys) - 1}
                on = {"queries": queries, "keys": keys}
                meta["special"] = {a: [int(left[a][i]) for i in at if on[a][i]] for a, at in meta["special"].items()}
        return self._with(
            values=values,
            visible=seen[at],
            queries=None if self.queries is None else [q for q, on in zip(self.queries, queries) if on],
            keys=None if self.keys is None else [k for k, on in zip(self.keys, keys) if on],
            meta=meta,
        )

    def _with(self, **changes: Any) -> NetworkTensor:
        names = ("values", "kind", "visible", "heads", "queries", "keys", "meta")
        found = NetworkTensor(**{name: changes[name] if name in changes else getattr(self, name) for name in names})
        object.__setattr__(found, "device", self.device)
        return found

    def __repr__(self) -> str:
        q, k, h = self.shape
        if not self.in_memory:
            hidden = ", read head by head"
        else:
            hidden = "" if self.visible is None else f", {self.visible_cells().mean():.0%} visible"
        layers = len({(g, int(n)) for g, n in zip(self.heads.group, self.heads.layer)})
        dropped = self.meta.get("dropped")
        if dropped is not None:
            hidden += f", {len(dropped['keys'])} key(s) left out{', rows renormalised' * dropped['renormalized']}"
        return f"NetworkTensor({self.kind}, {q} queries x {k} keys x {h} heads of {layers} layer(s){hidden})"


def _frozen(x: NDArray[Any]) -> NDArray[Any]:
    view = x.view()
    view.flags.writeable = False
    return view


def _names(names: Sequence[str] | None, n: int, what: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or len(names) != n:
        raise ValueError(f"{what}: got {len(names)} name(s), the tensor has {n} {what}")
    return tuple(str(name) for name in names)


__all__ = ["Heads", "Kind", "Masked", "NetworkTensor", "fill_invisible"]
