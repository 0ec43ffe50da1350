"""Trees from some inputs or heads, coefficients of others; in sample and against other bases beside it.

python examples/entropy/out_of_sample.py
"""

from __future__ import annotations

from functools import cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray
from page_parts_of import figure, picture, show, spread, table
from study import (
    CANDIDATES,
    FIXED,
    HEADS,
    KINDS,
    Fit,
    Model,
    Numbers,
    Tensor,
    cases,
    fits,
    fitted,
    fixed,
    halves,
    inputs_of,
    joint_head_tree,
    numbers,
    permuted,
    tensor,
)

import pyattnorg as pa

TESTS = ("carried", "held out", "all carried")
Table = dict[str, list[Numbers]]  # by kind of tree, one entry a target


@cache
def in_sample(model: Model, kind: str) -> Table:
    """Coefficients of every input in its own trees, and in bases that it has no say in."""
    out: Table = {tree: [] for tree in (*KINDS, "HOSVD", *FIXED)}
    for name in inputs_of(model):
        x = tensor(model, name, kind)
        for tree, found in fitted(model, name, kind).items():
            out[tree].append(numbers(pa.haar(x, found.trees)))
        out["HOSVD"].append(numbers(in_bases(x, singular_bases(x))))
        for basis in FIXED:
            out[basis].append(numbers(fixed(x, basis)))
    return out


@cache
def carried(model: Model, kind: str) -> Table:
    """The head tree of one input in the query and key trees of another: all ordered pairs, by target."""
    out: Table = {tree: [] for tree in (*KINDS, "HOSVD", "leaves permuted", "given order", "identity")}
    bases = {name: singular_bases(tensor(model, name, kind)) for name in inputs_of(model)}
    for i, (target, source) in enumerate(permutations(inputs_of(model), 2)):
        x = tensor(model, target, kind)
        for tree in KINDS:
            own, other = fitted(model, target, kind)[tree], fitted(model, source, kind)[tree]
            out[tree].append(numbers(pa.haar(x, [*own.trees[:HEADS], other.trees[HEADS]])))
        own, other = fitted(model, target, kind)["entropy"], fitted(model, source, kind)["entropy"]
        out["leaves permuted"].append(numbers(pa.haar(x, [*own.trees[:HEADS], permuted(other.trees[HEADS], i)])))
        out["HOSVD"].append(numbers(in_bases(x, [*bases[target][:HEADS], bases[source][HEADS]])))
        for basis in ("given order", "identity"):
            out[basis].append(in_sample(model, kind)[basis][inputs_of(model).index(target)])
    return out


@cache
def joint(model: Model, kind: str) -> Table:
    """One head tree of the four other inputs in the query and key trees of the fifth."""
    out: Table = {tree: [] for tree in KINDS}
    for target in inputs_of(model):
        others = [name for name in inputs_of(model) if name != target]
        for tree in KINDS:
            heads = joint_head_tree(model, others, kind, tree)
            own = fitted(model, target, kind)[tree].trees
            out[tree].append(numbers(pa.haar(tensor(model, target, kind), [*own[:HEADS], heads])))
    return out


@cache
def held_out(model: Model, kind: str) -> Table:
    """Query and key trees of one half of the heads, coefficients of the other half; every input, both ways."""
    out: Table = {tree: [] for tree in (*KINDS, "leaves permuted", "HOSVD", "given order", "shuffled", "identity")}
    for name in inputs_of(model):
        one = held_out_heads(tensor(model, name, kind))
        for tree, found in one.items():
            out[tree] += found
    return out


def held_out_heads(x: Tensor, kinds: tuple[str, ...] = KINDS) -> Table:
    """The test of held-out heads on one tensor, both ways."""
    parts = [np.ascontiguousarray(x[:, :, half]) for half in halves(x.shape[HEADS])]
    grown: list[dict[str, Fit]] = [fits(part, kinds) for part in parts]
    out: Table = {}
    for here, there in ((0, 1), (1, 0)):
        y = parts[there]
        for kind in kinds:
            out.setdefault(kind, []).append(numbers(pa.haar(y, [*grown[here][kind].trees[:HEADS], None])))
        moved = [permuted(tree, seed) for seed, tree in enumerate(grown[here]["entropy"].trees[:HEADS])]
        out.setdefault("leaves permuted", []).append(numbers(pa.haar(y, [*moved, None])))
        u, v = singular_bases(parts[here])[:HEADS]
        out.setdefault("HOSVD", []).append(numbers(in_bases(y, [u, v, None])))
        dyadic = [pa.PartitionTree.dyadic(n) for n in y.shape[:HEADS]]
        out.setdefault("given order", []).append(numbers(pa.haar(y, [*dyadic, None])))
        shuffled = [permuted(tree, seed) for seed, tree in enumerate(dyadic)]
        out.setdefault("shuffled", []).append(numbers(pa.haar(y, [*shuffled, None])))
        out.setdefault("identity", []).append(numbers(y))
    return out


@cache
def all_carried(model: Model, kind: str) -> Table:
    """All three trees of one photograph, coefficients of another; None of it for text."""
    out: Table = {tree: [] for tree in (*KINDS, "HOSVD", *FIXED)}
    if not model.sees_images:
        return {}
    bases = {name: singular_bases(tensor(model, name, kind)) for name in inputs_of(model)}
    for target, source in permutations(inputs_of(model), 2):
        x = tensor(model, target, kind)
        for tree in KINDS:
            out[tree].append(numbers(pa.haar(x, fitted(model, source, kind)[tree].trees)))
        out["HOSVD"].append(numbers(in_bases(x, bases[source])))
        for basis in FIXED:
            out[basis].append(numbers(fixed(x, basis)))
    return out


def singular_bases(x: Tensor) -> list[NDArray[np.float64]]:
    """Left singular vectors of every unfolding, the largest first."""
    found = []
    for axis in range(x.ndim):
        rows = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1).astype(np.float64)
        found.append(np.linalg.eigh(rows @ rows.T)[1][:, ::-1])
    return found


def in_bases(x: Tensor, bases: list[NDArray[np.float64] | None] | list[NDArray[np.float64]]) -> Tensor:
    """Coefficients in an orthonormal basis of every axis; as they are where it has none."""
    c = x
    for axis, basis in enumerate(bases):
        if basis is not None:
            c = np.moveaxis(np.tensordot(basis.T.astype(x.dtype), c, axes=(1, axis)), 0, axis)
    return c


MADE = {"carried": carried, "held out": held_out, "all carried": all_carried}


def scores() -> dict[tuple[str, str, str], dict[str, tuple[float, float]]]:
    """By network, tensor and test: median of ē and of the share over those of flexible trees, for the candidates."""
    out = {}
    for model, kind in cases():
        for test in TESTS:
            found = MADE[test](model, kind)
            if not found:
                continue
            base = found["flexible"]
            out[model.name, kind, test] = {
                tree: (
                    float(np.median([a.entropy / b.entropy for a, b in zip(found[tree], base)])),
                    float(np.median([a.share / b.share for a, b in zip(found[tree], base)])),
                )
                for tree in CANDIDATES
            }
    return out


def decision() -> tuple[str, dict[str, tuple[float, float]]]:
    """The default: the candidate of least median score, by the share where it and ē do not agree; all medians."""
    cells = scores().values()
    medians = {
        tree: (float(np.median([c[tree][0] for c in cells])), float(np.median([c[tree][1] for c in cells])))
        for tree in CANDIDATES
    }
    return min(CANDIDATES, key=lambda tree: medians[tree][1]), medians


def _rows(found: Table, model: Model, kind: str, ratio_to: str = "flexible") -> list[list[str]]:
    rows = []
    for tree, each in found.items():
        against = [a.entropy / b.entropy for a, b in zip(each, found[ratio_to])]
        rows.append(
            [
                model.name,
                kind,
                tree,
                spread([one.entropy for one in each], 4),
                f"{np.median([one.effective for one in each]):,.0f}",
                spread([100 * one.share for one in each], 2),
                f"{np.median(against):.3f}",
            ]
        )
    return rows


def _table(make: object, head: str) -> str:
    rows = []
    for model, kind in cases():
        found = make(model, kind)  # type: ignore[operator]
        if found:
            rows += _rows(found, model, kind)
    return table(["network", "tensor", head, "ē", "N ē²", "share for 5 %, %", "ē / flexible"], rows)


def section() -> str:
    """The section of the page."""
    rows = []
    for (network, kind, test), cell in scores().items():
        rows.append(
            [network, kind, test, *(f"{v:.3f}" for tree in CANDIDATES if tree != "flexible" for v in cell[tree])]
        )
    made, axes = figure(1, 3, height=3.2)
    names = [f"{model.name.split()[0]} {kind}" for model, kind in cases()]
    for ax, test in zip(axes[0], TESTS):
        for place, (model, kind) in enumerate(cases()):
            found = MADE[test](model, kind)
            for tree, colour in (("entropy", "C1"), ("binary", "C2"), ("average", "C0")):
                if found:
                    y = [a.share / b.share for a, b in zip(found[tree], found["flexible"])]
                    label = {"label": tree} if found and not ax.get_legend_handles_labels()[1].count(tree) else {}
                    ax.scatter(y, np.full(len(y), place), s=8, color=colour, alpha=0.6, **label)
        ax.axvline(1, color="0.6", linewidth=0.8)
        ax.set_yticks(range(len(names)), names if test == TESTS[0] else [], fontsize=7)
        ax.set_ylim(-0.5, len(names) - 0.5)
        ax.set_xscale("log")
        ax.set_xticks([0.3, 0.5, 0.7, 1, 1.4], ["0.3", "0.5", "0.7", "1", "1.4"])
        ax.minorticks_off()
        ax.set(title=test, xlabel="share / that of flexible trees")
    axes[0, 2].legend(frameon=False, fontsize=7)
    tree, medians = decision()
    told = "; ".join(f"{name} {e:.3f} and {s:.3f}" for name, (e, s) in medians.items())
    return "\n\n".join(
        [
            "## Out of sample",
            "A kind of tree over flexible trees on the same target, median over targets: below 1 it is sparser.",
            table(["network", "tensor", "test", *(f"{tree}, {what}" for tree in CANDIDATES if tree != "flexible"
                                                   for what in ("ē", "share"))], rows),
            f"Median over all cells, ē and share: {told}. By the rule above the default is **{tree}**.",
            picture(made, "out_of_sample", "Share of coefficients for 5 %, over that of flexible trees: every target."),
            "### In sample, and against other bases",
            _table(in_sample, "basis"),
            "### Head tree carried to another input",
            _table(carried, "head tree"),
            "### Joint head tree of four other inputs",
            _table(joint, "head tree"),
            "### Held-out heads",
            _table(held_out, "query and key trees"),
            "### All trees carried to another photograph",
            _table(all_carried, "trees"),
        ]
    )  # fmt: skip


if __name__ == "__main__":
    show(section())
