"""The whole page: every result of the paper on three real networks, to docs/paper.md.

python examples/paper/page.py
"""

from __future__ import annotations

import time
from pathlib import Path

import decay
import head_curves
import head_kernel
import invariance
import least_involved
import network_entropy
import numpy as np
import one_head
from networks import DINO, MINILM, MODELS, NULL_SEEDS, SCORES_AND_WEIGHTS, SMOLLM
from page_parts import ROOT, spread, table

SECTIONS = (network_entropy, least_involved, head_curves, decay, head_kernel, one_head, invariance)
PAGE = ROOT / "docs" / "paper.md"


def introduction() -> str:
    """What this is, and on what."""
    return "\n\n".join(
        [
            "# The paper, re-created",
            "[arXiv 2506.15541](https://arxiv.org/abs/2506.15541) organises the attention of a language and a vision "
            "transformer by hierarchical trees and makes claims about sparsity, pruning, comparison of architectures "
            "and an invariance to softmax. Its tensors are not public. This page repeats every result on three "
            "pretrained networks that run offline: MiniLM (6 layers × 12 heads, a text encoder), SmolLM2-135M "
            "(30 × 9, a causal decoder, weights rounded to 4 bits by its package) and DINOv2 ViT-S (12 × 6, images), "
            "on six texts of 96 tokens and six photographs. Spread is median (least–largest). Everything here is "
            "written by `make paper`, numbers and verdicts included; each section has a script of its own in "
            "`examples/paper/`.",
            "*Scores* are before softmax, *weights* after. Cells that a causal model cannot see are filled with the "
            "mean of the row in scores, and are 0 in weights.",
        ]
    )


def claims() -> str:
    """The claims of the abstract and what is found, in one table."""
    return "\n\n".join(
        [
            "## The claims of the abstract",
            table(
                ["claim", "found", "verdict"],
                [_invariant(), _regular(), _heads_organise(), _sparse_heads(), _pruning(), _architectures()],
            ),
        ]
    )


def _invariant() -> list[str]:
    found = [invariance.found(model, name) for model in MODELS for name in model.inputs]
    residual = np.concatenate([one["residual"] for one in found])
    agree = {pair: [one["agreement"][pair]["cophenetic"] for one in found] for pair in invariance.PAIRS}
    slope = {name: [one["slope"][name] for one in found] for name in ("argument", "residual")}
    smoother = sum(d > g for g, d in zip(slope["argument"], slope["residual"]))
    same = [r for model in MODELS for r in invariance.between_inputs(model)]
    return [
        "Self-attention is invariant to softmax, up to a smoother residual",
        "Exactly: scores and log-weights share all bi-Haar coefficients with a key function that is not constant (to "
        f"{max(one['shared'] for one in found):.0e}, {len(found)} networks). The theorem's gain is there on functions "
        "that satisfy its assumptions: twofold on one axis, on two axes by half as much again along the diagonal. On "
        f"real scores the residual keeps {spread(residual, 2)} of what varies. Head trees of scores and weights agree "
        f"by r = {spread(agree['scores', 'weights'], 2)}; those of scores for two inputs by {spread(same, 2)}. Decay "
        f"exponents along the diagonal of equal scales: log-weights {spread(slope['argument'], 2)}, residual "
        f"{spread(slope['residual'], 2)}.",
        "the exact part holds; "
        + _verdict(float(np.median(residual)) < 0.1, "so does the approximation",
                   "as an approximation of softmax at the size of real scores it does not")
        + "; "
        + _verdict(np.median(slope["argument"]) > 0, "scores decay as the theorem assumes",
                   "real scores do not decay towards fine scales, as the theorem assumes")
        + ", "
        + f"and the residual is smoother than they are in {smoother} of {len(found)} networks",
    ]  # fmt: skip


def _regular() -> list[str]:
    parts, better, under, total = [], 0, 0, 0
    for model in MODELS:
        for kind in SCORES_AND_WEIGHTS:
            n = [network_entropy.numbers(model, name, kind) for name in model.inputs[: network_entropy.N_INPUTS]]
            ratio = [one["organized"] / one["given"] for one in n]
            better += sum(r < 1 for r in ratio)
            under += sum(one["organized"] < one["shuffled"] for one in n)
            total += len(ratio)
            parts.append(f"{model.name} {kind} {spread(ratio, 2)}")
    return [
        "Organised network tensors are regular: sparse in the tri-Haar basis",
        "Normalised l1 entropy, organised over the order that came: " + "; ".join(parts) + ".",
        f"against shuffled data in {under} of {total} networks; against dyadic trees on the order that came in "
        f"{better}",
    ]


def _heads_organise() -> list[str]:
    parts, p, r = [], [], []
    for model in MODELS:
        for kind in SCORES_AND_WEIGHTS:
            each = [head_kernel.layers_told(model, name, kind) for name in model.inputs]
            p += [one["mantel_p"] for one in each]
            r += [one["mantel"] for one in each]
            rand = spread([one["rand"] for one in each], 2)
            parts.append(f"{model.name} {kind} {spread([one['mantel'] for one in each], 2)}, ARI {rand}")
    beyond = sum(value <= 0.01 for value in p)
    return [
        "The head tree and the diffusion map show a hierarchical organisation of heads",
        "Head distances against distance in layers, Mantel r, and agreement of the best level of the head tree with "
        "the "
        "layers: " + "; ".join(parts) + ". The published scatter is not a diffusion map (R5).",
        f"beyond chance in {beyond} of {len(p)} networks (p ≤ 0.01), but the layers explain little of it: median "
        f"r² = {np.median(np.square(r)):.2f}",
    ]


def _sparse_heads() -> list[str]:
    parts, p = [], []
    for model in MODELS:
        for kind in SCORES_AND_WEIGHTS:
            each = [decay.shares(model, name, kind) for name in model.inputs]
            organised = [100 * one["organised"][3] for one in each]
            null = [100 * one["leaves permuted"][3] for one in each]
            entries = [100 * one["entries"][3] for one in each]
            p.append(np.median(organised) < np.median(entries))
            parts.append(
                f"{model.name} {kind} {spread(organised, 1)} (leaves permuted {np.median(null):.1f}, "
                f"no transform {np.median(entries):.1f})"
            )
    return [
        "Expansion coefficients of heads and network are sparse",
        "Coefficients needed for an error of 5 %, in per cent: " + "; ".join(parts) + ".",
        f"sparser than with permuted leaves; than the entries themselves in {sum(p)} of {len(p)} cases",
    ]


def _pruning() -> list[str]:
    loss = {what: np.median(lost) for what, (_, lost) in least_involved.without(SMOLLM).items()}
    parts, beyond = [], 0
    for model in MODELS:
        for kind in SCORES_AND_WEIGHTS:
            s = least_involved.stability(least_involved.all_inputs(model, kind))
            null = [
                least_involved.stability(least_involved.random_inputs(model, seed)[kind])["jaccard"]
                for seed in NULL_SEEDS
            ]
            beyond += s["jaccard"] > max(null)
            parts.append(f"{model.name} {kind} {s['jaccard']:.2f} (random weights {spread(null, 2)})")
    told = "; ".join(f"{what} {value:.2f}" for what, value in loss.items())
    worse = [kind for kind in SCORES_AND_WEIGHTS if loss[f"least involved, {kind}"] >= loss["random"]]
    return [
        "Sparsity of the network can be used to prune heads",
        "Bottom tenths of two inputs agree by Jaccard: " + "; ".join(parts) + ". Loss of SmolLM2 without a tenth of "
        f"its heads: {told}.",
        f"the least involved heads are more stable than with random weights in {beyond} of {len(parts)} tensors; "
        + _verdict(
            not worse,
            "silencing them costs less than silencing random ones",
            f"silencing them costs no less than random ones by {' and '.join(worse)}, so involvement alone is no "
            "criterion for pruning",
        ),
    ]


def _architectures() -> list[str]:
    n = {
        (model.name, kind): network_entropy.over_inputs(model, kind) for model in MODELS for kind in SCORES_AND_WEIGHTS
    }
    units = np.median(n[MINILM.name, "scores"]["published"]) / np.median(n[MINILM.name, "weights"]["published"])
    told = "; ".join(
        f"{name} {kind} {spread(each['effective'], 0)} and {spread(each['organized'] / each['shuffled'], 2)}"
        for (name, kind), each in n.items()
    )
    forms = {
        (what, kind): {model.name: np.median(make(n[model.name, kind])) for model in MODELS}
        for kind in SCORES_AND_WEIGHTS
        for what, make in (
            ("effective number", lambda each: each["effective"]),
            ("entropy over shuffled", lambda each: each["organized"] / each["shuffled"]),
        )
    }
    first = [
        f"{what} of {kind}" for (what, kind), each in forms.items() if min(each, key=each.__getitem__) == DINO.name
    ]
    return [
        "Entropies compare architectures: the vision transformer is sparser",
        f"The published number is {units:,.0f} times as large for MiniLM's scores as for its own weights; the "
        "published gap between scores of a language model and weights of a vision model is about 400. Effective "
        "number of coefficients, and entropy over "
        f"shuffled: {told}.",
        f"the published gap is one of units; in forms without units {DINO.name} is the sparsest by {len(first)} of "
        f"{len(forms)} ({', '.join(first)})",
    ]


def _verdict(holds: bool, yes: str, no: str) -> str:
    return yes if holds else no


def write(path: Path = PAGE) -> None:
    """Make all sections and write the page."""
    made = []
    for section in SECTIONS:
        started = time.perf_counter()
        made.append(section.section())
        print(f"{section.__name__}: {time.perf_counter() - started:.0f} s", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join([introduction(), claims(), *made]) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    write()
