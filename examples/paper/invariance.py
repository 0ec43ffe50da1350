"""R7, softmax invariance in numbers: what is exact, what the paraproduct leaves, what organisations share.

python examples/paper/invariance.py
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
from networks import MINILM, MODELS, Model, captured, organized
from numpy.typing import NDArray
from page_parts import figure, picture, show, spread, table

import pyattnorg as pa

AMPLITUDES = (0.01, 0.03, 0.1, 0.3, 1.0)
PAIRS = (
    ("scores", "logweights"),
    ("scores", "weights"),
    ("logweights", "weights"),
    ("scores", "approximation"),
    ("weights", "approximation"),
)
ALPHAS = (0.3, 0.5, 0.7)
SEEDS = range(10)


@cache
def found(model: Model, name: str) -> dict[str, Any]:
    """The numbers of one network; what is large is let go."""
    scores = captured(model, name)["scores"]
    result = pa.softmax_invariance(scores, tree="flexible")
    filled = scores.filled()
    centred = filled.values - filled.values.mean(1, keepdims=True)
    logs = result.organizations["logweights"].network.values
    recentred = logs - logs.mean(1, keepdims=True)
    one, two = (pa.organize(x.astype(np.float64), tree="flexible") for x in (centred, recentred))
    return {
        "shared": result.shared,
        "residual": np.array([row["residual"] for row in result.table]),
        "shift": np.array([row["shift"] for row in result.table]),
        "agreement": {(row["one"], row["other"]): row for row in result.agreement if row["axis"] == "heads"},
        "slope": result.paraproduct.regularity().slope,
        "range": (float(result.paraproduct.approximation.min()), float(result.paraproduct.approximation.max())),
        "centred": pa.cophenetic_correlation(one.trees_[2], two.trees_[2]),
    }


def amplitudes(model: Model, name: str) -> NDArray[np.float64]:
    """Relative residual of every head of t times the scores, by amplitude t."""
    network = captured(model, name)["scores"].filled()
    trees = [*organized(model, name, "scores").trees_[:2], None]
    return np.array(
        [pa.paraproduct(t * network.values, trees, "softmax").relative_residual(axis=2) for t in AMPLITUDES]
    )


def field(n: int, order: int, alpha: float, seed: int) -> NDArray[np.float64]:
    """A mixed-Hoelder function of standard deviation 0.4: Gaussian coefficients at the rate of alpha."""
    tree = pa.PartitionTree.dyadic(n)
    c = np.random.default_rng(seed).standard_normal((n,) * order)
    for axis in range(order):
        rate = pa.haar_layout(tree).volume ** (alpha + 0.5)
        c = c * rate.reshape([-1 if axis == other else 1 for other in range(order)])
    f = pa.ihaar(c, [tree] * order)
    return np.asarray(0.4 * f / f.std())


def slopes(order: int, alpha: float) -> dict[str, list[float]]:
    """Decay exponents of f, of the residual, and of it without second derivatives, over ten seeds."""
    out: dict[str, list[float]] = {"argument": [], "residual": [], "first order": []}
    for seed in SEEDS:
        f = field(512, order, alpha, seed)
        slope = pa.paraproduct(f).regularity().slope
        out["argument"].append(slope["argument"])
        out["residual"].append(slope["residual"])
        if order > 1:
            out["first order"].append(pa.paraproduct(f, None, (np.exp, np.exp)).regularity().slope["residual"])
    return out


def between_inputs(model: Model) -> list[float]:
    """Cophenetic correlation of head trees of scores for two inputs, all pairs of six: what to measure others by."""
    trees = [organized(model, name, "scores").trees_[2] for name in model.inputs]
    return [pa.cophenetic_correlation(a, b) for a, b in combinations(trees, 2)]


def section() -> str:
    """The section of the page."""
    theory = []
    for order in (1, 2):
        for alpha in ALPHAS:
            s = slopes(order, alpha)
            gate = f"≥ {2 * alpha - 0.15:.2f}" if order == 1 else f"f + {0.6 * alpha:.2f}"
            last = spread(s["first order"], 2) if order > 1 else "–"
            gate = gate if alpha >= 0.45 else "–"
            theory.append([order, alpha, spread(s["argument"], 2), spread(s["residual"], 2), gate, last])
    exact, agreement = [], []
    for model in MODELS:
        each = [found(model, name) for name in model.inputs]
        exact.append(
            [
                model.name,
                f"{max(one['shared'] for one in each):.0e}",
                spread(np.concatenate([one["shift"] for one in each]), 2),
                spread([one["centred"] for one in each], 3),
                spread(np.concatenate([one["residual"] for one in each]), 2),
                spread([one["slope"]["argument"] for one in each], 2),
                spread([one["slope"]["residual"] for one in each], 2),
                f"{min(one['range'][0] for one in each):.2f} to {max(one['range'][1] for one in each):.2f}",
            ]
        )
        agreement.append([model.name, "scores of two inputs", spread(between_inputs(model), 2), "–", "–", "–"])
        for pair in PAIRS:
            rows = [one["agreement"][pair] for one in each]
            agreement.append(
                [
                    model.name,
                    ", ".join(pair),
                    spread([row["cophenetic"] for row in rows], 2),
                    spread([row["affinity"] for row in rows], 2),
                    spread([row["involvement"] for row in rows], 2),
                    " / ".join(
                        f"{sum(row[p] <= 0.01 for row in rows)}"
                        for p in ("cophenetic_p", "affinity_p", "involvement_p")
                    ),
                ]
            )
    made, axes = figure(1, 2, width=9.0)
    curves = amplitudes(MINILM, MINILM.inputs[0])
    axes[0, 0].loglog(AMPLITUDES, curves, color="C0", alpha=0.25, linewidth=0.7)
    axes[0, 0].loglog(AMPLITUDES, np.median(curves, axis=1), color="k")
    axes[0, 0].set(xlabel="amplitude of the scores", ylabel="|Δ| / |A(g) − B|", title="MiniLM, every head")
    axes[0, 1].boxplot(
        [np.concatenate([found(m, name)["residual"] for name in m.inputs]) for m in MODELS],
        tick_labels=[m.name for m in MODELS], showfliers=False,
    )  # fmt: skip
    axes[0, 1].set(ylabel="|Δ| / |A(g) − B|", title="real scores, all heads, six inputs", ylim=(0, None))
    return "\n\n".join(
        [
            "## R7. Softmax invariance",
            "**The theorem on functions that satisfy it.** Mixed-Hölder functions on dyadic trees of 512 points an "
            "axis, exp, standard deviation 0.4: decay exponents over levels (on two axes along the diagonal of equal "
            "scales, where f has 2α), median (range) of ten seeds.",
            table(["axes", "α", "f", "Δ", "gate for Δ", "Δ without A″"], theory),
            "**Real scores.** *Shared*: largest difference between Haar coefficients of scores and log-weights "
            "whose key "
            "function is not constant, over the largest coefficient. *Row sums*: share of the scores' energy in the "
            "coefficients that softmax's row sums move. *Row means removed*: cophenetic correlation of the head trees "
            "of scores and log-weights when the mean of every row is taken off both. Then |Δ| / |A(g) − B| by head, "
            "decay exponents of g and Δ, and the range of B + Π₁ + Π₂, which stands for weights in [0, 1]; medians "
            "(ranges) over six inputs, and all heads where they are by head.",
            table(
                ["network", "shared", "row sums", "row means removed", "relative residual", "slope of g", "slope of Δ",
                 "range of B + Π₁ + Π₂"],
                exact,
            ),
            picture(made, "r7", "The residual over what varies, by amplitude of the scores and at their own."),
            "**Organised separately.** Agreement of heads, median (range) over six inputs; the last column counts "
            "inputs with p ≤ 0.01 for trees / affinities / involvement (199 permutations).",
            table(
                ["network", "tensors", "trees, cophenetic r", "affinities, Mantel r", "involvement, Spearman",
                 "inputs p ≤ .01"],
                agreement,
            ),
        ]
    )  # fmt: skip


if __name__ == "__main__":
    show(section())
