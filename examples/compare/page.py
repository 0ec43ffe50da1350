"""``make compare``: real networks compared by docs/compare.md, written to docs/compare/results.md with its picture."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import subjects  # it makes the folder of the paper's page known
from page_parts import picture, table
from subjects import DINO, MINILM, PRETRAINED, RXN, SMOLLM, Subject, tensors

import pyattnorg as pa
from pyattnorg.comparison.quantities import QUANTITIES

SIZE = (48, 48, 48)
KINDS = ("weights", "scores")
OUT = subjects.ROOT / "docs" / "compare"
SAYS = Path(__file__).with_name("says.md")
PICTURED = (*PRETRAINED, MINILM.random(0), DINO.random(0))

pa.set_num_threads(1)  # tensors are small, and results do not depend on it


def compared(these: Sequence[tuple[Subject, str]], kind: str, **options: object) -> pa.Comparison:
    """Networks on sets of inputs."""
    several = len({which for _, which in these}) > 1
    names = [subject.title + (f", {which} set" if several else "") for subject, which in these]
    return pa.compare(*(tensors(*one, kind) for one in these), names=names, size=SIZE, **options)  # type: ignore[arg-type]


def row(comparison: pa.Comparison, a: int, b: int, floor: float | None) -> list[str]:
    """A line of the table: distance, chance, what differs most, the joint embedding, and the verdict."""
    pair = comparison.pairs[a, b]
    chance = pair.chance
    assert None not in (chance.distance_p, chance.least_p, chance.floor), "several inputs of each"
    most = sorted(pair.parts, key=lambda name: -pair.parts[name])[:3]
    joint = comparison.joint_pair(a, b) if comparison.joint is not None else None
    return [
        f"{pair.a} - {pair.b}",
        f"{pair.distance:.2f} ({chance.distance_low:.2f} to {chance.distance_high:.2f})",
        f"{chance.floor:.2f}",
        "-" if floor is None else f"{floor:.2f}",
        f"{chance.distance_p:.3f} ({chance.least_p:.3f})",
        ", ".join(f"{name} {pair.parts[name]:.1f}" for name in most),
        "-" if joint is None else f"{joint.energy:.3f}, p {joint.energy_p:.3f}",
        "-" if joint is None else f"{joint.own:.0%} ({joint.by_chance:.0%}), p {joint.own_p:.3f}",
        "-" if pair.heads_correlation is None else f"{pair.heads_correlation:.2f}",
        "-" if floor is None else verdict(pair.distance, chance.distance_p, floor),
    ]


def verdict(distance: float, p: float, floor: float) -> str:
    """By section 8 of docs/compare.md."""
    if p <= 0.05 and distance > floor:
        return "different"
    return "not above the floor" if p <= 0.05 else "not shown"


def sized(kind: str, floor: Callable[..., float]) -> list[list[str]]:
    """Networks on whole texts and on their first halves, and with every second head: does size still tell?"""
    lines = []
    for subject in (MINILM, SMOLLM):
        both = [tensors(subject, which, kind) for which in ("whole", "first")]
        names = [f"{subject.title}, {what}" for what in ("whole texts", "first halves")]
        lines.append(row(pa.compare(*both, names=names, size=SIZE, paired=True), 0, 1, floor(subject)))
    both = [[one.without([0], renormalize=kind == "weights") for one in x] for x in both]
    names = [f"{SMOLLM.title} without its first token, {what}" for what in ("whole texts", "first halves")]
    lines.append(row(pa.compare(*both, names=names, size=SIZE, paired=True), 0, 1, floor(SMOLLM)))
    whole = tensors(MINILM, "first", kind)
    half = [one.take_heads(range(0, one.shape[2], 2)) for one in whole]
    size = (*SIZE[:2], half[0].shape[2])
    found = pa.compare(whole, half, names=["MiniLM, all heads", "every second head"], size=size, paired=True)
    return [*lines, row(found, 0, 1, floor(MINILM))]


def by_size(kind: str) -> str:
    """Values and contrasts of one network in sub-tensors of several sizes."""
    whole = tensors(MINILM, "whole", kind)
    rows = []
    for size in ((24, 24, 48), (48, 48, 48), (96, 96, 48), (48, 48, 12), (48, 48, 24), (48, 48, 72)):
        found = pa.compare(whole, whole, names=["a", "b"], size=size, n_draws=1, shared=False).portraits[0]
        cells = [f"{v:.3f}; {c:.2f}" for v, c in zip(found.values, found.contrasts)]
        heads = float(np.nanmean(found.heads))
        rows.append([" x ".join(map(str, size)), *cells, f"{heads:.2f}"])
    return table(("size", *(quantity.name for quantity in QUANTITIES), "heads, mean contrast"), rows)


HEAD = (
    "networks", "distance", "by chance", "noise floor", "p (least possible)", "largest parts, in units",
    "joint energy", "own neighbours (chance)", "heads' correlation", "verdict",
)  # fmt: skip


def study(kind: str) -> tuple[str, pa.Comparison]:
    """All comparisons of one kind as Markdown, and the one that is pictured."""
    floors: dict[str, float] = {}
    rows = []
    for subject in (*PRETRAINED, *RXN[1:], MINILM.random(0)):
        found = compared([(subject, "first"), (subject, "second")], kind, paired=False, shared=False)
        floors[subject.title] = found.pairs[0, 1].distance
        rows.append(row(found, 0, 1, None))

    def floor(*some: Subject) -> float:
        """The larger of the noise floors of two networks; of random weights MiniLM's stands for all."""
        known = [floors.get(one.title, floors[MINILM.random(0).title]) for one in some]
        return max(known)

    text = ["### One network on two sets of inputs\n", table(HEAD[:-1], (r[:-1] for r in rows))]
    text += ["\n### One network in two sizes\n", table(HEAD, (sized(kind, floor)))]

    found = compared([(one, "first") for one in RXN], kind, shared=True)
    lines = [row(found, a, b, floor(RXN[a], RXN[b])) for a, b in found.pairs]
    text += ["\n### Three trainings of one architecture\n", table(HEAD, lines)]

    shown = compared([(one, "first") for one in PICTURED], kind, paired=False)
    text += [
        "\n### Architectures\n",
        "Inputs change sides freely: those of texts, images and reactions are not pairs.\n",
    ]
    many = range(len(PRETRAINED))
    lines = [row(shown, a, b, floor(PRETRAINED[a], PRETRAINED[b])) for a in many for b in many if a < b]
    found = compared([(MINILM, "first"), (SMOLLM, "first")], kind, paired=True)
    lines.append(row(found, 0, 1, floor(MINILM, SMOLLM)))
    lines[-1][0] += ", paired by text"
    text.append(table(HEAD, lines))

    lines = []
    for subject in PRETRAINED:
        both = [subject, subject.random(0), subject.random(1)]
        found = compared([(one, "first") for one in both], kind, shared=True)
        lines += [row(found, a, b, floor(both[a], both[b])) for a, b in found.pairs]
    text += ["\n### Trained against random weights\n", table(HEAD, lines)]

    text += ["\n### Every quantity\n", "Value; contrast with the null (95 % interval over six inputs).\n"]
    cells = []
    for portrait in shown.portraits:
        cells.append([portrait.name])
        for i in range(len(QUANTITIES)):
            numbers = [portrait.contrasts[i], portrait.low[i], portrait.high[i]]
            cells[-1].append(f"{portrait.values[i]:.3f}; {numbers[0]:.2f} ({numbers[1]:.2f} to {numbers[2]:.2f})")
    sizes = ["\n### What size does\n", "MiniLM on whole texts: value; contrast with the null.\n", by_size(kind)]
    text.append(table(("network", *(quantity.name for quantity in QUANTITIES)), cells))
    return "\n".join([*text, *sizes]), shown


def main() -> None:
    """Write the page."""
    begun = time.process_time()
    OUT.mkdir(parents=True, exist_ok=True)
    parts = []
    for kind in KINDS:
        text, shown = study(kind)
        if kind == "weights":
            axes = shown.plot()
            q, k, h = SIZE
            caption = (
                f"Attention weights of four pretrained networks and two with random weights, six inputs each, in "
                f"sub-tensors of {q} x {k} x {h}."
            )
            drawn = picture(axes[0].figure, "results", caption, OUT).replace("](compare/", "](")
        parts.append(f"## {kind.capitalize()}\n\n{text}")
    q, k, h = SIZE
    page = f"""# Networks compared: results

Made by `make compare` (examples/compare/), {(time.process_time() - begun) / 60:.0f} minutes of one core. What is
measured, and what would count as different, is in [../compare.md](../compare.md), fixed before these numbers.
Sub-tensors of {q} queries, {k} keys and {h} heads; six inputs of each network: halves of six texts (MiniLM, SmolLM2),
halves of six photographs (DINOv2), six reactions (rxnfp). The *noise floor* is the distance of a network from itself on
six other inputs, the larger of the two networks'; of random weights that of a random MiniLM. *By chance* is the median
distance when inputs change sides. *Different*: p <= .05 and above the floor. Random 0 and 1 are two seeds.

{SAYS.read_text().strip()}

{drawn}

{(chr(10) * 2).join(parts)}
"""
    (OUT / "results.md").write_text(page)


if __name__ == "__main__":
    main()
