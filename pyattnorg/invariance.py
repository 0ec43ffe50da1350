"""Softmax invariance: how much of a network's organisation is the same before and after softmax, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import Array
from pyattnorg.checks import whole
from pyattnorg.haar import haar
from pyattnorg.network import Kind, Masked, NetworkTensor
from pyattnorg.organization import HEADS, KEYS, QUERIES, Organization, organize
from pyattnorg.paraproduct import Paraproduct, log_sum_exp, paraproduct
from pyattnorg.sparsity import head_entropies
from pyattnorg.tree_comparison import mantel

AXES = {"queries": QUERIES, "keys": KEYS, "heads": HEADS}
KINDS = ("scores", "logweights", "weights", "approximation")


@dataclass(frozen=True, eq=False)
class SoftmaxInvariance:
    """What `softmax_invariance` found.

    Attributes
    ----------
    table : list of dict
        One row a head: label; ``residual``, ``|Delta| / |A(g) - B|`` of its paraproduct; ``shift``, the share of its
        scores' energy that only softmax's row sums move; and its normalised l1 entropy in each of the four tensors,
        on the trees of each.
    shared : float
        Largest difference between Haar coefficients of scores and of log-weights with a key function that is not
        constant, over the largest coefficient: rounding alone, since they are equal.
    agreement : list of dict
        One row for every pair of tensors and axis: ``cophenetic``, correlation of their trees' distances, and
        ``affinity``, correlation of their affinities (Mantel), with ``cophenetic_p`` and ``affinity_p`` under random
        permutations. For heads also ``involvement`` and ``entropy``, Spearman correlations of the paper's and the
        normalised head entropies, with ``involvement_p`` and ``entropy_p``.
    organizations : dict of Organization
        By name of tensor: scores, logweights, weights, approximation.
    paraproduct : Paraproduct
        Of the log-weights with exp, on the query and key trees of the scores, head by head.
    """

    table: list[dict[str, Any]]
    shared: float
    agreement: list[dict[str, Any]]
    organizations: dict[str, Organization]
    paraproduct: Paraproduct

    def between(self, one: str, other: str, axis: str = "heads") -> dict[str, Any]:
        """The row of `agreement` for two tensors and an axis."""
        for row in self.agreement:
            if {row["one"], row["other"]} == {one, other} and row["axis"] == axis:
                return row
        raise KeyError(f"no pair {one!r}, {other!r} on axis {axis!r}; tensors are {KINDS}, axes {tuple(AXES)}")

    def summary(self) -> str:
        """What was found, in one screen of text."""
        residual = np.array([row["residual"] for row in self.table])
        low, middle, high = np.quantile(residual, [0.1, 0.5, 0.9])
        lines = [
            f"coefficients shared by scores and log-weights, but for key constants: equal to {self.shared:.1e}",
            f"residual of the paraproduct by head, |Delta| / |A(g) - B|: median {middle:.2f} ({low:.2f} to {high:.2f})",
            "agreement of heads        trees     p   affinities     p   involvement     p",
        ]
        for row in self.agreement:
            if row["axis"] == "heads":
                name = f"{row['one']}, {row['other']}"
                lines.append(
                    f"{name:25s} {row['cophenetic']:5.2f} {row['cophenetic_p']:5.3f}   {row['affinity']:10.2f} "
                    f"{row['affinity_p']:5.3f}   {row['involvement']:11.2f} {row['involvement_p']:5.3f}"
                )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"SoftmaxInvariance({len(self.table)} heads, {len(self.agreement)} comparisons)"


def softmax_invariance(
    network: NetworkTensor | Array,
    *,
    masked: Masked = "mean",
    n_permutations: int = 199,
    seed: int = 0,
    **options: Any,
) -> SoftmaxInvariance:
    """Organise scores, log-weights, weights and the paraproduct's approximation of the weights, and compare them.

    Softmax takes the log-sum-exp off every row and the exponential of the rest. The first step changes only Haar
    coefficients whose key function is the constant, so that scores and log-weights share all others exactly. The second
    is what the paraproduct of arXiv 2506.15541 speaks of: ``exp(g) = B + Pi_1 + Pi_2 + Delta`` with a Delta smoother
    than g, in theory; how small it is on real scores is measured here, head by head. What is left of the organisation
    is measured on all axes against random permutations.

    Parameters
    ----------
    network : NetworkTensor or array, shape (queries, keys, heads)
        Scores, before softmax.
    masked : {"mean", "floor"}
        What stands in invisible cells of scores and log-weights; softmax runs over visible ones only.
    n_permutations : int
        For every p-value, ``(1 + number at least as large) / (1 + n_permutations)``.
    seed : int
    **options
        Those of `pyattnorg.Questionnaire`.
    """
    n_permutations, seed = whole(n_permutations, "n_permutations", at_least=1), whole(seed, "seed", at_least=0)
    tensor = network if isinstance(network, NetworkTensor) else NetworkTensor(network)
    if tensor.kind != "scores":
        raise ValueError(f"network: got {tensor.kind}, expected scores; they give all the others, not the reverse")
    if masked == "raw":
        raise ValueError("masked: got 'raw', expected 'mean' or 'floor'; what softmax never saw has no log-weights")
    filled = tensor.filled(masked)
    visible = None if filled.visible is None else filled.visible_cells()
    f = filled.values.astype(np.float64)
    g = f - log_sum_exp(f, 1, visible)
    dtype = filled.values.dtype

    def of(values: NDArray[np.float64], kind: Kind) -> NetworkTensor:
        if kind == "weights" and visible is not None:
            values = np.where(visible, values, 0.0)
        about = {**filled.meta, **({"masked": "zero"} if kind == "weights" and visible is not None else {})}
        cells, heads = filled.visible, filled.heads
        return NetworkTensor(values.astype(dtype), kind, cells, heads, filled.queries, filled.keys, about)

    found = {"scores": organize(filled, **options)}
    trees = [found["scores"].trees_[QUERIES], found["scores"].trees_[KEYS], None]
    parts = paraproduct(g, trees)
    tensors = {
        "logweights": of(g, "logweights"),
        "weights": of(parts.value, "weights"),
        "approximation": of(parts.approximation, "weights"),
    }
    found |= {name: organize(each, **options) for name, each in tensors.items()}
    before, after = haar(f, trees), haar(g, trees)
    apart = np.abs(before - after)
    shared = float(apart[:, 1:].max(initial=0.0) / (max(np.abs(before).max(), np.abs(after).max()) or 1.0))
    numbers = {name: head_entropies(each.network.values, each.trees_[:2]) for name, each in found.items()}
    return SoftmaxInvariance(
        _table(filled, parts, before, numbers), shared, _agreement(found, numbers, n_permutations, seed), found, parts
    )


def _table(
    network: NetworkTensor,
    parts: Paraproduct,
    coefficients: NDArray[np.float64],
    numbers: Mapping[str, Mapping[str, NDArray[np.float64]]],
) -> list[dict[str, Any]]:
    residual = parts.relative_residual(axis=HEADS)
    energy = np.square(coefficients).sum((0, 1))
    shift = np.square(coefficients[:, 0]).sum(0) / np.where(energy > 0, energy, 1.0)
    return [
        {"label": label, "residual": float(residual[h]), "shift": float(shift[h])}
        | {name: float(numbers[name]["entropy"][h]) for name in KINDS}
        for h, label in enumerate(network.labels)
    ]


def _agreement(
    found: Mapping[str, Organization],
    numbers: Mapping[str, Mapping[str, NDArray[np.float64]]],
    n_permutations: int,
    seed: int,
) -> list[dict[str, Any]]:
    rows = []
    null = {"n_permutations": n_permutations, "seed": seed}
    for one, other in combinations(KINDS, 2):
        for name, axis in AXES.items():
            a, b = found[one], found[other]
            trees = mantel(a.trees_[axis], b.trees_[axis], **null)  # type: ignore[arg-type]
            affinities = mantel(a.affinities_[axis], b.affinities_[axis], **null)  # type: ignore[arg-type]
            row: dict[str, Any] = {"one": one, "other": other, "axis": name}
            row |= {"cophenetic": trees.correlation, "cophenetic_p": trees.p_value}
            row |= {"affinity": affinities.correlation, "affinity_p": affinities.p_value}
            if axis == HEADS:
                for what in ("involvement", "entropy"):
                    row[what], row[f"{what}_p"] = rank_correlation(
                        numbers[one][what], numbers[other][what], n_permutations, seed
                    )
            rows.append(row)
    return rows


def rank_correlation(
    a: NDArray[np.float64], b: NDArray[np.float64], n_permutations: int, seed: int
) -> tuple[float, float]:
    """Spearman's correlation and its p-value under permutations, greater is more extreme; 0 where one is constant."""
    from scipy.stats import rankdata

    x, y = (rank - rank.mean() for rank in (rankdata(a), rankdata(b)))
    length = float(np.linalg.norm(x) * np.linalg.norm(y))
    if not length:
        return 0.0, 1.0
    observed = float(x @ y) / length
    rng = np.random.default_rng(seed)
    null = np.array([x @ rng.permutation(y) for _ in range(n_permutations)]) / length
    return observed, float((1 + (null >= observed - 1e-12).sum()) / (1 + n_permutations))
