"""What a comparison found: a portrait of every network, every pair, tables, text, and a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.comparison.chance import DRAWS_LEVEL
from pyattnorg.comparison.distance import COUNTED, PARTS, Bools, Chance, mean_interval, parts_of
from pyattnorg.comparison.joint import Joint, JointPair
from pyattnorg.comparison.networks import Network
from pyattnorg.comparison.quantities import QUANTITIES, Measured
from pyattnorg.head_table import Heads
from pyattnorg.threads import one_blas_thread

Floats = NDArray[np.float64]
N = len(QUANTITIES)


@dataclass(frozen=True, eq=False)
class Portrait:
    """One network.

    Attributes
    ----------
    name : str
    shape : (int, int, int)
        Of its first input.
    table : Heads
        Which head is which.
    n_inputs, n_draws : int
        `n_draws` of every input.
    values, null, contrasts, low, high : ndarray, shape (quantities,)
        Means over inputs, and the interval of the contrasts; NaN where something cannot be measured, and as the ends of
        an interval of one draw of one input.
    over : {"inputs", "draws"}
        What the interval is over: a bootstrap of inputs, or, with one input, the middle 90 % of its draws.
    heads : ndarray, shape (heads,)
        Mean logarithm of every head's entropy over the null's; NaN of heads that were not drawn.
    errors, null_errors : ndarray
        Relative error at the shares `comparison.quantities.SHARES` of coefficients.
    folders : ndarray
        Mean share of the heads in a head's folder at the relative depths `comparison.quantities.DEPTHS`.
    spectrum : ndarray
        Eigenvalues of the head affinity over their sum.
    """

    name: str
    shape: tuple[int, int, int]
    table: Heads
    n_inputs: int
    n_draws: int
    values: Floats
    null: Floats
    contrasts: Floats
    low: Floats
    high: Floats
    over: str
    heads: Floats
    errors: Floats
    null_errors: Floats
    folders: Floats
    spectrum: Floats


def portrait_of(
    network: Network, measured: list[tuple[list[Measured], list[Any]]], features: Floats, *, n_resamples: int, seed: int
) -> Portrait:
    """The portrait of a network from what was measured in the draws of its inputs."""

    def mean(name: str) -> Floats:
        found: Floats = np.mean([np.mean([getattr(one, name) for one in draws], axis=0) for draws, _ in measured], 0)
        return found

    if len(measured) > 1:
        with one_blas_thread():
            over, (low, high) = "inputs", mean_interval(features[:, :N], n_resamples, seed)
    else:
        tail = 50 * (1 - DRAWS_LEVEL)
        rows = np.array([one.contrasts for one in measured[0][0]])
        over, (low, high) = "draws", np.percentile(rows, [tail, 100 - tail], axis=0)
        if len(rows) < 2:  # one draw says nothing of how much draws differ
            low, high = np.full((2, N), np.nan)
    total, count = np.zeros(network.n_heads), np.zeros(network.n_heads)
    for draws, heads in measured:
        for one, at in zip(draws, heads):
            total[at] += one.heads
            count[at] += 1
    return Portrait(
        name=network.name,
        shape=network.inputs[0].shape,
        table=network.inputs[0].heads,
        n_inputs=len(measured),
        n_draws=len(measured[0][0]),
        values=mean("values"),
        null=mean("null"),
        contrasts=features[:, :N].mean(0),
        low=low,
        high=high,
        over=over,
        heads=np.where(count > 0, total / np.maximum(count, 1), np.nan),
        errors=mean("errors"),
        null_errors=mean("null_errors"),
        folders=mean("folders"),
        spectrum=mean("spectrum"),
    )


@dataclass(frozen=True, eq=False)
class Pair:
    """Two networks, a and b.

    Attributes
    ----------
    distance : float
        Root mean square of the counted `parts`.
    parts : dict of float
        Size of every difference in its unit; NaN where it cannot be measured in some network of the comparison.
    shift : ndarray, shape (quantities,)
        Contrasts of a less those of b.
    chance : Chance
        Intervals and p values over inputs.
    heads_correlation : float or None
        Spearman's, of the heads' entropies over the nulls', where both have the same
        heads in the same modules.
    """

    a: str
    b: str
    distance: float
    parts: dict[str, float]
    shift: Floats
    chance: Chance
    heads_correlation: float | None

    @classmethod
    def of(cls, a: Portrait, b: Portrait, shift: Floats, distance: float, chance: Chance, counted: Bools) -> Pair:
        """The pair of two portraits, from the difference of their features and which parts of it count."""
        sizes = np.where(counted | ~COUNTED, parts_of(shift), np.nan)
        parts = {name: float(size) for name, size in zip(PARTS, sizes)}
        return cls(a.name, b.name, distance, parts, shift[:N], chance, _correlation_of_heads(a, b))


def _correlation_of_heads(a: Portrait, b: Portrait) -> float | None:
    if a.table != b.table or not any(a.table.module):
        return None
    from scipy.stats import rankdata

    both = np.isfinite(a.heads) & np.isfinite(b.heads)
    x, y = rankdata(a.heads[both]), rankdata(b.heads[both])
    if len(x) < 3 or x.std() == 0 or y.std() == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


@dataclass(frozen=True, eq=False)
class Comparison:
    """Result of `pyattnorg.compare`.

    Attributes
    ----------
    kind, null, positions : str
    size : (int, int, int)
        Queries, keys and heads of the sub-tensors.
    paired, shared : bool
        Whether input i was the same for all networks; whether its tokens were.
    portraits : tuple of Portrait
    pairs : dict
        `Pair` of the networks (i, j), i < j.
    joint : Joint or None
        The joint embedding, where tokens were shared.
    """

    kind: str
    size: tuple[int, int, int]
    null: str
    positions: str
    paired: bool
    shared: bool
    portraits: tuple[Portrait, ...]
    pairs: Mapping[tuple[int, int], Pair]
    joint: Joint | None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(portrait.name for portrait in self.portraits)

    @cached_property
    def distances(self) -> Floats:
        """Distances of all pairs, (networks, networks), symmetric."""
        out = np.zeros((len(self.portraits),) * 2)
        for (a, b), pair in self.pairs.items():
            out[a, b] = out[b, a] = pair.distance
        return out

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """What could not be measured in some network, and so is in no distance of this comparison."""
        parts = next(iter(self.pairs.values())).parts
        return tuple(name for name, size in parts.items() if np.isnan(size))

    def pair(self, a: str | int, b: str | int) -> Pair:
        """The pair of two networks by name or number, in the order in which they were given."""
        i, j = sorted((self._index(a), self._index(b)))
        if i == j:
            raise ValueError(f"b: got {b!r}, the same network as a; expected another one")
        return self.pairs[i, j]

    def joint_pair(self, a: str | int, b: str | int) -> JointPair:
        """Two networks in the joint embedding."""
        if self.joint is None:
            raise ValueError("joint: there is none, since the networks were not given the same tokens (see shared=)")
        pair = self.pair(a, b)
        return self.joint.pairs[self._index(pair.a), self._index(pair.b)]

    def _index(self, name: str | int) -> int:
        if isinstance(name, str):
            if name not in self.names:
                raise ValueError(f"name: got {name!r}, expected one of {list(self.names)}")
            return self.names.index(name)
        if not 0 <= name < len(self.portraits):
            raise ValueError(f"name: got {name}, expected 0 to {len(self.portraits) - 1}")
        return int(name)

    def table(self) -> list[dict[str, Any]]:
        """One row for each network and quantity; see `pyattnorg.comparison.tables`."""
        from pyattnorg.comparison.tables import quantity_rows

        return quantity_rows(self)

    def to_frame(self) -> Any:
        """`table` as a pandas DataFrame, indexed by network and quantity."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_frame needs pandas: pip install pandas, or use table()") from None
        return pandas.DataFrame(self.table()).set_index(["network", "quantity"])

    def to_dict(self) -> dict[str, Any]:
        """All numbers, JSON-ready; what could not be measured is None."""
        from pyattnorg.comparison.tables import as_dict

        return as_dict(self)

    def summary(self) -> str:
        """What was found, in a screen of text."""
        from pyattnorg.comparison.tables import summary

        return summary(self)

    def plot(self, *, ax: Any = None) -> Any:
        """One picture: decay, quantities with intervals, heads in the joint embedding (or their quantiles), distances.

        Parameters
        ----------
        ax : four matplotlib Axes, optional

        Returns
        -------
        array of four Axes
        """
        from pyattnorg.comparison.picture import draw_comparison

        return draw_comparison(self, ax=ax)

    def __repr__(self) -> str:
        q, k, h = self.size
        return f"Comparison({', '.join(self.names)}; {self.kind}, {q} x {k} x {h})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>"
