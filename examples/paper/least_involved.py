"""R2, the least involved heads over six inputs: are they the same ones, and does the network need them?

python examples/paper/least_involved.py
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
from networks import MODELS, NULL_SEEDS, SCORES_AND_WEIGHTS, SMOLLM, Model, loaded, organized, prepared
from numpy.typing import NDArray
from page_parts import figure, picture, show, spread, table
from scipy.stats import spearmanr

import pyattnorg as pa

SHARE = 0.1
RANDOM_DRAWS = 5


@cache
def involvement(model: Model, name: str, kind: str) -> NDArray[np.float64]:
    """The paper's entropy of every head of one network."""
    found = organized(model, name, kind)
    return pa.published_head_entropy(found.network.values, found.trees_)


def all_inputs(model: Model, kind: str) -> NDArray[np.float64]:
    """Entropies, (inputs, heads)."""
    return np.stack([involvement(model, name, kind) for name in model.inputs])


@cache
def random_inputs(model: Model, seed: int) -> dict[str, NDArray[np.float64]]:
    """The same of the architecture with random weights, for scores and weights; each input is captured once."""
    twin = model.randomised(seed)
    rows = [{kind: involvement(twin, name, kind) for kind in SCORES_AND_WEIGHTS} for name in model.inputs]
    return {kind: np.stack([row[kind] for row in rows]) for kind in SCORES_AND_WEIGHTS}


def bottom(e: NDArray[np.float64]) -> set[int]:
    """The tenth of the heads of least entropy."""
    return set(np.argsort(e, kind="stable")[: round(SHARE * len(e))].tolist())


def stability(e: NDArray[np.float64]) -> dict[str, Any]:
    """How far the bottom tenths of all inputs agree: heads in all of them, Jaccard and Spearman of pairs."""
    sets = [bottom(row) for row in e]
    pairs = list(combinations(range(len(e)), 2))
    return {
        "always": sorted(set.intersection(*sets)),
        "jaccard": float(np.mean([len(sets[i] & sets[j]) / len(sets[i] | sets[j]) for i, j in pairs])),
        "spearman": float(np.mean([spearmanr(e[i], e[j]).statistic for i, j in pairs])),
    }


def by_chance(n: int) -> float:
    """Jaccard index of two random tenths of n heads, on average."""
    rng = np.random.default_rng(0)
    k = round(SHARE * n)
    common = [len(set(rng.choice(n, k, False)) & set(range(k))) for _ in range(2000)]
    return float(np.mean([c / (2 * k - c) for c in common]))


# -- the experiment that the paper's pruning would need ----------------------------------------------------------------


class Silenced:
    """A context in which some heads write nothing: their part of the output projection's input is 0."""

    def __init__(self, model: Any, per_layer: int, heads: list[int]) -> None:
        ends = (".self_attn.o_proj", ".attention.o_proj", ".attention.output.dense")
        outputs = [m for name, m in model.named_modules() if name.endswith(ends)]
        if len(outputs) != model.config.num_hidden_layers:
            raise ValueError(f"{type(model).__name__}: found {len(outputs)} output projections, one a layer expected")
        self.hooks = []
        for layer, module in enumerate(outputs):
            mine = [h % per_layer for h in heads if h // per_layer == layer]
            if mine:
                self.hooks.append(module.register_forward_pre_hook(self._hook(mine, per_layer)))

    @staticmethod
    def _hook(mine: list[int], per_layer: int) -> Any:
        def silence(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
            x = args[0].clone()
            x.view(*x.shape[:-1], per_layer, -1)[..., mine, :] = 0
            return (x, *args[1:])

        return silence

    def __enter__(self) -> Silenced:
        return self

    def __exit__(self, *error: object) -> None:
        for hook in self.hooks:
            hook.remove()


def runs(model: Model, heads: list[int], per_layer: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Last hidden state and, of a decoder, mean loss a token, for every input, without these heads."""
    import torch

    net = loaded(model).model
    given = [prepared(model, name) for name in model.inputs]
    batch = {key: torch.cat([one[key] for one in given]) for key in given[0]}
    with Silenced(net, per_layer, heads), torch.no_grad():
        result = net(**batch, output_hidden_states=True)
    loss = np.full(len(given), np.nan)
    if model == SMOLLM:
        surprise = torch.log_softmax(result.logits[:, :-1].double(), -1)
        loss = -surprise.gather(2, batch["input_ids"][:, 1:, None]).mean((1, 2)).numpy()
    return result.hidden_states[-1].double().numpy(), loss


@cache
def without(model: Model) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Relative change of the last hidden state, and loss, by input: least, most and random tenths of the heads."""
    first = organized(model, model.inputs[0], "scores").network
    per_layer = int(first.heads.head.max()) + 1
    n = len(first)
    k = round(SHARE * n)
    whole = runs(model, [], per_layer)[0]
    sets: dict[str, list[list[int]]] = {"none": [[]]}
    for kind in SCORES_AND_WEIGHTS:
        e = all_inputs(model, kind)
        order = np.argsort((e / e.max(1, keepdims=True)).mean(0), kind="stable").tolist()
        sets[f"least involved, {kind}"], sets[f"most involved, {kind}"] = [order[:k]], [order[-k:]]
    rng = np.random.default_rng(0)
    sets["random"] = [sorted(rng.choice(n, k, False).tolist()) for _ in range(RANDOM_DRAWS)]
    found = {}
    for what, draws in sets.items():
        change, loss = [], []
        for heads in draws:
            after, lost = runs(model, heads, per_layer)
            for one, other in zip(whole, after):
                change.append(float(np.linalg.norm(other - one) / np.linalg.norm(one)))
            loss.extend(lost)
        found[what] = np.array(change), np.array(loss)
    return found


def section() -> str:
    """The section of the page."""
    rows, silenced = [], []
    made, axes = figure(2, 3, height=2.6)
    for column, model in enumerate(MODELS):
        for row, kind in enumerate(SCORES_AND_WEIGHTS):
            e = all_inputs(model, kind)
            found = stability(e)
            null = [stability(random_inputs(model, seed)[kind]) for seed in NULL_SEEDS]
            labels = organized(model, model.inputs[0], kind).labels
            always = [labels[h] for h in found["always"]]
            shown = ", ".join(always[:8]) + (f" and {len(always) - 8} more" if len(always) > 8 else "")
            rows.append(
                [
                    model.name,
                    kind,
                    f"{len(always)} of {round(SHARE * e.shape[1])}: {shown}" if always else "none",
                    spread([len(one["always"]) for one in null], 0),
                    f"{found['jaccard']:.2f}",
                    spread([one["jaccard"] for one in null], 2),
                    f"{by_chance(e.shape[1]):.2f}",
                    f"{found['spearman']:.2f}",
                    spread([one["spearman"] for one in null], 2),
                ]
            )
            counts = np.zeros(e.shape[1], int)
            for each in e:
                counts[list(bottom(each))] += 1
            ax = axes[row, column]
            ax.bar(np.arange(len(counts)), counts, width=1.0, color=f"C{row}")
            ax.set_title(f"{model.name}, {kind}", fontsize=9)
            ax.set(ylim=(0, len(model.inputs)), xlabel="head", ylabel="inputs")
        for what, (change, loss) in without(model).items():
            if what != "none":
                told = spread(loss, 2) if model == SMOLLM else "–"
                silenced.append([model.name, what, spread(change, 2), told])
    base = without(SMOLLM)["none"][1]
    return "\n\n".join(
        [
            "## R2. The least involved heads",
            "The tenth of the heads with the least published entropy, over six inputs. *Null*: the same architecture "
            f"with random weights, {len(NULL_SEEDS)} seeds, same inputs, median (range). *Chance*: two random tenths.",
            table(
                ["network", "tensor", "in the bottom tenth for all six inputs", "same, null", "Jaccard of pairs",
                 "null", "chance", "Spearman of pairs", "null"],
                rows,
            ),
            picture(made, "r2", "For how many of six inputs every head is in the least involved tenth."),
            "Whether the network needs them: a tenth of the heads is silenced (their part of the output projection's "
            "input set to 0). Relative change of the last hidden state, and for the decoder its loss a token "
            "(untouched: "
            f"{spread(base, 2)}), median (range) over six inputs; random tenths over {RANDOM_DRAWS} draws as well.",
            table(["network", "silenced tenth", "change of hidden state", "loss"], silenced),
        ]
    )  # fmt: skip


if __name__ == "__main__":
    show(section())
