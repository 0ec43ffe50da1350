"""Why another method needs fewer bytes where it does: experiments, each with its own table.

python examples/compression/reasons.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from coding import FLOAT, Reals, coded, rounded, tree_bytes
from methods import Case, _step, of_heads
from page_parts_of import show, table
from study import ERRORS, Model, cases, compressed, entropy_trees, network
from study import case as case_of

import pyattnorg as pa

ERROR = 0.05
INPUTS = 2  # that share trees
RANK = 2  # singular vectors a head, the rest by coefficients


def rank_of_heads(x: Reals, error: float) -> float:
    """Mean number of singular vectors a head for a relative error of the whole."""
    s = np.sort(np.linalg.svd(np.moveaxis(x, 2, 0), compute_uv=False), axis=None)
    left = np.cumsum(np.square(s))
    return float((left > error**2 * left[-1]).sum() / x.shape[2])


def phases_kept(x: Reals, seed: int = 0) -> Reals:
    """A tensor with the singular values of every head, and vectors at random: as low in rank, and nothing else."""
    rng = np.random.default_rng(seed)
    s = np.linalg.svd(np.moveaxis(x, 2, 0), compute_uv=False)
    u = np.linalg.qr(rng.standard_normal((len(s), x.shape[0], s.shape[1])))[0]
    v = np.linalg.qr(rng.standard_normal((len(s), x.shape[1], s.shape[1])))[0]
    return np.ascontiguousarray(np.moveaxis((u * s[:, None]) @ v.transpose(0, 2, 1), 0, 2))


def permuted(x: Reals, seed: int = 0) -> Reals:
    """The entries of every head at random places: as sparse, and nothing else."""
    rng = np.random.default_rng(seed)
    return np.ascontiguousarray(rng.permuted(x.reshape(-1, x.shape[2]), axis=0).reshape(x.shape))


def few_entries(x: Reals, seen: Any, error: float = ERROR) -> float:
    """Share of the visible entries that hold all but an error."""
    return pa.coefficients_needed(x if seen is None else x[seen], error) / (x.size if seen is None else int(seen.sum()))


def factored(model: Model, kind: str, *, organised: bool) -> int:
    """Bytes of the singular vectors of every head, with or without the Haar bases of queries and keys on them."""
    trees = entropy_trees(model, kind) if organised else [None] * 3
    return pa.compress(network(model, kind), error=ERROR, trees=trees, form="factors").nbytes


def residual(one: Case, error: float, rank: int) -> float:
    """Bytes of `rank` singular vectors of every head, and of the tri-Haar coefficients of what they leave."""
    x = one.values
    u, s, v = np.linalg.svd(np.moveaxis(x, 2, 0), full_matrices=False)
    left, right = (np.moveaxis(u, 1, 0) * s)[:, :, :rank], (np.moveaxis(v, 2, 0) * s)[:, :, :rank]
    trees = list(one.trees["entropy"])

    def both(step: float) -> tuple[Reals, Reals]:
        a, b = rounded(left, step), rounded(right, step)
        low = np.einsum("qhr,khr->qkh", a / np.maximum(s[:, :rank], 1e-30), b, optimize=True)
        return low, pa.haar(x - low, trees)

    def error_of(step: float) -> float:
        low, c = both(step)
        return one.error(low + pa.ihaar(rounded(c, step), trees) - x)

    step = _step(error_of, error, 2 * error * float(np.sqrt(np.mean(np.square(x)))))
    size = sum(coded(part, step)[0] for part in (left, right)) + FLOAT * s[:, :rank].size
    return size + coded(both(step)[1], step, trees)[0] + tree_bytes(trees)


def section() -> str:
    """The section of the page."""
    ranks, few, mixed = [], [], []
    for model, kind in cases():
        one = case_of(model, kind)
        x, seen = one.values, one.seen
        ranks.append([model.name, kind, *(f"{rank_of_heads(x, e):.1f}" for e in ERRORS), f"{min(x.shape[:2])}",
                      f"{100 * few_entries(x, seen):.1f}"])  # fmt: skip
        if seen is not None:
            continue
        forms = {"as it is": x, "vectors of heads at random": phases_kept(x), "entries permuted": permuted(x)}
        for name, y in forms.items() if model == cases()[0][0] else ():
            fit = pa.Questionnaire().fit(y.astype(np.float32)).trees_
            other = Case(y, None, {"entropy": fit})
            ours = pa.compress(y, error=ERROR, trees=fit).nbytes
            few.append([model.name, kind, name, kb(ours), kb(of_heads(other, ERROR)[0])])
        mixed.append(
            [model.name, kind, kb(compressed(model, kind, ERROR).nbytes), kb(factored(model, kind, organised=False)),
             kb(factored(model, kind, organised=True)), kb(residual(one, ERROR, RANK))]
        )  # fmt: skip
    return "\n\n".join(
        [
            "## Why, where others need less",
            "*How low the rank is, and how few the entries.* Singular vectors a head for each error, out of how many; "
            "and the share of visible entries, in per cent, that hold all but 5 % of the norm.",
            table(["network", "tensor", *(f"{e:.0%}" for e in ERRORS), "of", "entries for 5 %, %"], ranks),
            "*What each method lives on*, kB at 5 %, on the smallest network. With the singular values of every head "
            "kept and the vectors drawn at random only low rank is left; with the entries of every head permuted only "
            "sparse entries are left.",
            table(["network", "tensor", "what", "pa.compress", "singular vectors of every head"], few),
            "*Both at once*, kB at 5 %: singular vectors of every head, plain and in the Haar bases of the query and "
            "key trees (`form=\"factors\"`); and two of them a head with the tri-Haar coefficients of what they leave.",
            table(["network", "tensor", "pa.compress", "singular vectors", "… in Haar bases",
                   f"{RANK} + Haar"], mixed),
        ]
    )  # fmt: skip


def kb(size: float) -> str:
    """Thousands of bytes."""
    return f"{size / 1e3:,.1f}"


def amortised() -> str:
    """One set of trees for several inputs of a network."""
    rows = []
    for model, kind in cases():
        if network(model, kind).visible is not None:
            continue  # the largest, and like the others
        trees = entropy_trees(model, kind)
        own = [compressed(model, kind, ERROR, at=i) for i in range(INPUTS)]
        shared = [pa.compress(network(model, kind, i), error=ERROR, trees=fitting(trees, network(model, kind, i)))
                  for i in range(INPUTS)]  # fmt: skip
        spare = sum(one.sizes["trees"] for one in shared[1:])
        heads = [
            pa.compress(network(model, kind, i), error=ERROR, trees=[*entropy_trees(model, kind, i)[:2], trees[2]])
            for i in range(INPUTS)
        ]
        rows.append([model.name, kind, kb(sum(c.nbytes for c in own)), f"{sum(c.sizes['trees'] for c in own):,}",
                     kb(sum(c.nbytes for c in heads)), kb(sum(c.nbytes for c in shared) - spare)])  # fmt: skip
    return "\n\n".join(
        [
            "## One set of trees for several inputs",
            "kB of two inputs at 5 %: each with its own trees (bytes of all trees beside it), with the head tree of "
            "the first, and with all trees of the first, counted once.",
            table(["network", "tensor", "own trees", "trees, bytes", "first head tree", "first trees, once"], rows),
        ]
    )


def fitting(trees: Any, other: pa.NetworkTensor) -> Any:
    """Trees of one input for another of the same length."""
    if tuple(tree.n_leaves for tree in trees) != other.shape:
        raise ValueError(f"{other.shape}: the inputs differ in length")
    return trees


if __name__ == "__main__":
    show(section())
    show(amortised())
