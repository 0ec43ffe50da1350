"""R1, network entropies over five inputs: as published, as described, and in forms that can be compared.

python examples/paper/network_entropy.py
"""

from __future__ import annotations

from functools import cache

import numpy as np
from networks import MODELS, SCORES_AND_WEIGHTS, Model, captured, organized
from page_parts import figure, picture, show, spread, table

import pyattnorg as pa

N_INPUTS = 5
COUNT = 100
FLOOR = 1e-2  # of the logarithmic axis; published numbers may be 0
NAMES = ("published", "described", "organized", "given", "shuffled", "entries", "effective", "needed")


@cache
def numbers(model: Model, name: str, kind: str) -> dict[str, float]:
    """All entropies of one network."""
    as_published = organized(model, name, kind, "paper")
    values, trees = as_published.network.values, as_published.trees_
    found = organized(model, name, kind)
    c = found.coefficients()
    return {
        "published": pa.published_network_entropy(values, trees, count=COUNT),
        "described": pa.coarsest_entropy(values, trees, count=COUNT),
        **found.entropies(),
        "effective": pa.effective_number(c),
        "needed": pa.coefficients_needed(c, 0.05) / c.size,
    }


def over_inputs(model: Model, kind: str) -> dict[str, np.ndarray]:
    """Each number as an array over five inputs."""
    rows = [numbers(model, name, kind) for name in model.inputs[:N_INPUTS]]
    return {name: np.array([row[name] for row in rows]) for name in NAMES}


def section() -> str:
    """The section of the page."""
    published, comparable = [], []
    made, axes = figure(1, 3)
    for place, model in enumerate(MODELS):
        for kind in SCORES_AND_WEIGHTS:
            n = over_inputs(model, kind)
            published.append([model.name, kind, *(f"{v:,.2f}" for v in n["published"]), spread(n["described"], 1)])
            shape = captured(model, model.inputs[0])[kind].shape
            comparable.append(
                [
                    f"{model.name}, {' × '.join(map(str, shape))}",
                    kind,
                    *(spread(n[name]) for name in ("organized", "given", "shuffled", "entries")),
                    spread(n["organized"] / n["shuffled"]),
                    spread(n["effective"], 0),
                    spread(100 * n["needed"], 1),
                ]
            )
            x = np.full(N_INPUTS, place + (0.15 if kind == "weights" else -0.15))
            mark = {"color": "C1" if kind == "weights" else "C0", "marker": "o", "s": 18}
            label = {"label": kind} if place == 0 else {}
            axes[0, 0].scatter(x, np.maximum(n["published"], FLOOR), **mark, **label)
            axes[0, 1].scatter(x, n["organized"] / n["shuffled"], **mark)
            axes[0, 2].scatter(x, n["effective"], **mark)
    titles = (
        "as published, in units of the data",
        "entropy over that of the shuffled tensor",
        "effective coefficients",
    )
    for ax, title in zip(axes[0], titles):
        ax.set_xticks(range(len(MODELS)), [model.name for model in MODELS], fontsize=8)
        ax.set_title(title, fontsize=9)
    axes[0, 0].set_yscale("log")
    axes[0, 2].set_yscale("log")
    axes[0, 0].legend(frameon=False, fontsize=8)
    return "\n\n".join(
        [
            "## R1. Network entropies",
            "The published network entropy follows the units: the same network has another one before and after "
            "softmax. It is no sum over the largest functions either (the code takes the first head functions against "
            "one query–key function, `pa.published_network_entropy`), and it is 0 where that function has a "
            "constant key "
            "part and the rows are weights, which sum to 1, or where it lies in cells that a causal model cannot see. "
            "*Described* is the sum that the text speaks of (`pa.coarsest_entropy`). Both on the trees of the schedule "
            "`paper`.",
            table(
                ["network", "tensor", *(f"input {i + 1}" for i in range(N_INPUTS)), "described, median (range)"],
                published,
            ),
            "Forms that can be compared, on the trees of the schedule `refined`, median (range) over the same five "
            "inputs. Normalised l1 entropy of the tri-Haar coefficients on the found trees, on dyadic trees over the "
            "order that came, on the same after a random permutation, and of the entries themselves (no transform); "
            "the effective number of coefficients; the share of coefficients that rebuilds the tensor up to 5 %.",
            table(
                ["network", "tensor", "organised", "given", "shuffled", "entries", "organised / shuffled",
                 "effective number", "needed, %"],
                comparable,
            ),
            picture(made, "r1", "Network entropies of five inputs each: as published and in two comparable forms."),
        ]
    )  # fmt: skip


if __name__ == "__main__":
    show(section())
