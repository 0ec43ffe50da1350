"""A comparison as rows, as JSON, and as text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pyattnorg.comparison.quantities import DEPTHS, QUANTITIES, SHARES

if TYPE_CHECKING:
    from pyattnorg.comparison.result import Comparison, Pair


LEGEND = "distance: 1 where quantities differ by about one unit each, such as entropies by a tenth (docs/compare.md, 4)"
P_LEGEND = (
    "p: how often as much comes of giving the inputs to the two networks at random. No distance of samples is 0:",
    "compare a network with itself on other inputs to see what counts (docs/compare.md, 8)",
)
JOINT_LEGEND = (
    "joint: heads of both in one embedding, 0 where they lie alike, 1 apart; own neighbours: nearest heads that are of",
    "the same network",
)


def quantity_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """One row for each network and quantity: value, null's value, contrast with interval, and how to read it."""
    rows = []
    for portrait in comparison.portraits:
        for i, quantity in enumerate(QUANTITIES):
            rows.append(
                {
                    "network": portrait.name,
                    "quantity": quantity.name,
                    "value": float(portrait.values[i]),
                    "null": float(portrait.null[i]),
                    "contrast": float(portrait.contrasts[i]),
                    "low": float(portrait.low[i]),
                    "high": float(portrait.high[i]),
                    "interval": portrait.over,
                    "better": quantity.better,
                    "unit": quantity.unit,
                    "size": quantity.size,
                    "means": quantity.means,
                }
            )
    return rows


def pair_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """One row for each pair of networks."""
    rows = []
    for at, pair in comparison.pairs.items():
        chance = pair.chance
        row = {
            "a": pair.a,
            "b": pair.b,
            "distance": pair.distance,
            "low": chance.distance_low,
            "high": chance.distance_high,
            "p": chance.distance_p,
            "least_p": chance.least_p,
            "floor": chance.floor,
            "heads_correlation": pair.heads_correlation,
        }
        if comparison.joint is not None:
            row |= {f"joint_{name}": value for name, value in comparison.joint.pairs[at]._asdict().items()}
        rows.append(row)
    return rows


def as_dict(comparison: Comparison) -> dict[str, Any]:
    """All numbers of a comparison, JSON-ready."""
    found = {
        "kind": comparison.kind,
        "size": dict(zip(("queries", "keys", "heads"), comparison.size)),
        "null": comparison.null,
        "positions": comparison.positions,
        "paired": comparison.paired,
        "shared": comparison.shared,
        "unmeasured": comparison.unmeasured,
        "networks": [
            {
                "name": p.name,
                "shape": p.shape,
                "inputs": p.n_inputs,
                "draws": p.n_draws,
                "heads": dict(zip(p.table.labels, p.heads)),
                "spectrum": p.spectrum,
                "folders": p.folders,
                "errors": p.errors,
                "null_errors": p.null_errors,
            }
            for p in comparison.portraits
        ],
        "quantities": quantity_rows(comparison),
        "pairs": [
            row | {"parts": pair.parts, "differences": _differences(pair)}
            for row, pair in zip(pair_rows(comparison), comparison.pairs.values())
        ],
        "distances": comparison.distances,
        "shares": SHARES,
        "depths": DEPTHS,
    }
    if comparison.joint is not None:
        joint = comparison.joint
        found["joint"] = {
            "network": [comparison.names[i] for i in joint.network],
            "head": joint.labels,
            "coordinates": joint.coordinates,
        }
    plain: dict[str, Any] = _plain(found)
    return plain


def _differences(pair: Pair) -> list[dict[str, Any]]:
    columns = zip(QUANTITIES, pair.shift, pair.chance.low, pair.chance.high, pair.chance.p)
    return [{"quantity": q.name, "difference": d, "low": low, "high": high, "p": p} for q, d, low, high, p in columns]


def _plain(value: Any) -> Any:
    """As JSON has it: lists, numbers, and None for what is not a number."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(one) for one in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def summary(comparison: Comparison) -> str:
    """What was found, as text."""
    q, k, h = comparison.size
    cells = {"row": "the cells of every row of a head", "head": "the cells of every head", "tensor": "all cells"}[
        comparison.null
    ]
    wide = max(10, *(len(name) for name in comparison.names))
    heading = "".join(f"{name:>24s}" for name in ("entropy/null", "needed/null", "smoothness - null"))
    lines = [
        f"{comparison.kind} in sub-tensors of {q} queries x {k} keys x {h} heads, against {cells} permuted",
        "",
        f"{'network'.ljust(wide)}  inputs x draws{heading}",
    ]
    shown = [[one.name for one in QUANTITIES].index(name) for name in ("entropy", "needed", "smoothness")]
    for p in comparison.portraits:
        cell = "".join(f"{_interval(p, i):>24s}" for i in shown)
        lines.append(f"{p.name.ljust(wide)}  {p.n_inputs:6d} x {p.n_draws:<5d}{cell}")
    over = {p.over for p in comparison.portraits}
    said = {"inputs": "95 % intervals over inputs", "draws": "of one input, the middle 90 % of its draws"}
    lines += [
        "against its own numbers permuted: a ratio below 1, or a difference above 0, is better organised",
        f"in brackets {'; '.join(what for name, what in said.items() if name in over)}",
        "",
    ]
    for row, pair in zip(pair_rows(comparison), comparison.pairs.values()):
        lines.append(f"{pair.a} and {pair.b}: " + "; ".join(_said(row)))
        largest = sorted((name for name in pair.parts if pair.parts[name] > 0), key=lambda n: -pair.parts[n])[:3]
        if largest:
            lines.append("    most in " + ", ".join(f"{name} {pair.parts[name]:.2f}" for name in largest))
    if comparison.unmeasured:
        lines.append(f"not measured, so in no distance: {', '.join(comparison.unmeasured)}")
    tested = any(pair.chance.distance_p is not None for pair in comparison.pairs.values())
    lines += ["", LEGEND, *(P_LEGEND if tested else ()), *(JOINT_LEGEND if comparison.joint is not None else ())]
    return "\n".join(lines)


def _interval(portrait: Any, i: int) -> str:
    ratio = QUANTITIES[i].contrast == "ratio"
    numbers = [portrait.contrasts[i], portrait.low[i], portrait.high[i]]
    if not np.isfinite(numbers[0]):
        return "not measured"
    middle, low, high = (math.exp(x) if ratio else x for x in numbers)
    return f"{middle:.3f} ({low:.3f}, {high:.3f})" if np.isfinite(low) else f"{middle:.3f} (one draw)"


def _said(row: dict[str, Any]) -> list[str]:
    said = [f"distance {row['distance']:.2f}"]
    if row["p"] is None:
        said.append("no p value, which needs several inputs of each")
    else:
        said[0] += f" ({row['low']:.2f} to {row['high']:.2f}), {row['floor']:.2f} when inputs change sides"
        few = f" (not decided: of so few inputs the least possible is {row['least_p']:.2g})"
        said.append(f"p = {row['p']:.2g}{few if row['least_p'] > 0.05 else ''}")
    if "joint_energy" in row:
        said.append(
            f"joint {row['joint_energy']:.3f} (p = {row['joint_energy_p']:.2g}), own neighbours "
            f"{row['joint_own']:.0%} ({row['joint_by_chance']:.0%} by chance, p = {row['joint_own_p']:.2g})"
        )
    if row["heads_correlation"] is not None:
        said.append(f"heads' entropies correlate by {row['heads_correlation']:.2f}")
    return said
