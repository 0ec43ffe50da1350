"""R4, the decay of coefficients: organised, given, shuffled, and on the found trees with their leaves permuted.

python examples/paper/decay.py
"""

from __future__ import annotations

from functools import cache

import numpy as np
from least_involved import involvement
from networks import MODELS, SCORES_AND_WEIGHTS, Model, organized
from numpy.typing import NDArray
from page_parts import figure, picture, show, spread, table

import pyattnorg as pa

BASES = ("organised", "given", "shuffled", "leaves permuted", "entries")
SHARES = (0.01, 0.05, 0.1)
SIDE = 20  # coarsest functions a side of the published expansion of a head


def coefficients(model: Model, name: str, kind: str) -> dict[str, NDArray[np.floating]]:
    """Coefficients of a network in the bases that are compared."""
    found = organized(model, name, kind)
    values = found.network.values
    rng = np.random.default_rng(0)
    shuffled = values[np.ix_(*(rng.permutation(n) for n in values.shape))]
    dyadic = [pa.PartitionTree.dyadic(n) for n in values.shape]
    return {
        "organised": found.coefficients(),
        "given": pa.haar(values, dyadic),
        "shuffled": pa.haar(shuffled, dyadic),
        "leaves permuted": pa.haar(shuffled, found.trees_),
        "entries": values,
    }


@cache
def shares(model: Model, name: str, kind: str) -> dict[str, list[float]]:
    """By basis: energy in the largest 1, 5 and 10 %, and the share of coefficients needed for an error of 5 %."""
    out = {}
    for basis, c in coefficients(model, name, kind).items():
        curve = pa.energy_curve(c)
        out[basis] = [float(curve[max(int(s * c.size), 1) - 1]) for s in SHARES]
        out[basis].append(pa.coefficients_needed(c, 0.05) / c.size)
    return out


def expansion(model: Model, name: str, kind: str) -> tuple[str, NDArray[np.float64]]:
    """The most involved head and its 400 coarsest coefficients over the largest, by falling support."""
    found = organized(model, name, kind)
    head = int(np.argmax(involvement(model, name, kind)))
    queries, keys = found.trees_[:2]
    c = np.abs(pa.haar(found.network[head], [queries, keys]))[:SIDE, :SIDE]
    support = np.multiply.outer(pa.haar_layout(queries).support[:SIDE], pa.haar_layout(keys).support[:SIDE])
    ordered = c.ravel()[np.argsort(-support.ravel(), kind="stable")].astype(np.float64)
    return found.labels[head], ordered / ordered.max()


def section() -> str:
    """The section of the page."""
    rows, heads = [], []
    made, axes = figure(2, 3, height=2.6)
    single, panels = figure(1, 3, height=2.4)
    for column, model in enumerate(MODELS):
        for row, kind in enumerate(SCORES_AND_WEIGHTS):
            found = [shares(model, name, kind) for name in model.inputs]
            for basis in BASES:
                each = 100 * np.array([one[basis] for one in found])
                rows.append([model.name, kind, basis, *(spread(each[:, i], 1) for i in range(4))])
            ax = axes[row, column]
            for basis, c in coefficients(model, model.inputs[0], kind).items():
                magnitude = np.sort(np.abs(c), axis=None)[::-1].astype(np.float64)
                at = np.unique(np.geomspace(1, magnitude.size, 300).astype(int)) - 1
                ax.loglog(at + 1, magnitude[at] / np.linalg.norm(magnitude) + 1e-12, label=basis, linewidth=1)
            ax.set_title(f"{model.name}, {kind}", fontsize=9)
            ax.set(ylim=(1e-7, 1.5), xlabel="number of the coefficient", ylabel="magnitude / norm")
            counts = [int((expansion(model, name, kind)[1] > 0.1).sum()) for name in model.inputs]
            heads.append([model.name, kind, spread(counts, 0)])
        label, curve = expansion(model, model.inputs[0], "scores")
        panels[0, column].plot(curve, ".", markersize=3)
        panels[0, column].set_title(f"{model.name}, {label}, scores", fontsize=9)
        panels[0, column].set(xlabel="function, by falling support", ylabel="|c| / largest")
    axes[0, 0].legend(frameon=False, fontsize=7)
    return "\n\n".join(
        [
            "## R4. Decay of coefficients",
            "Energy in the largest coefficients, and the share of coefficients that rebuilds the tensor up to 5 %, in "
            "per cent, median (range) over six inputs. *Leaves permuted* keeps the shape of the found trees and gives "
            "their leaves random places: what organisation adds is the difference between it and *organised*.",
            table(["network", "tensor", "basis", "top 1 %", "top 5 %", "top 10 %", "needed for 5 %"], rows),
            picture(made, "r4", "Coefficient magnitudes over their norm, largest first, one input."),
            f"As published, one head: its {SIDE * SIDE} coarsest bi-Haar coefficients over the largest. Number of them "
            "above a tenth of the largest, in the most involved head of six inputs:",
            table(["network", "tensor", f"above 0.1, of {SIDE * SIDE}"], heads),
            picture(single, "r4_head", "The coarsest bi-Haar coefficients of the most involved head, one input."),
        ]
    )


if __name__ == "__main__":
    show(section())
