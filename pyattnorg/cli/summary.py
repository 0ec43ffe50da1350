"""The summary at the end: for people a table, for programs JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyattnorg.head_folders import counted
from pyattnorg.organization import Organization

MOST = 5  # heads named as the most and the least involved
SHOWN = 10  # folders in the table


def as_dict(organization: Organization, most: int = MOST) -> dict[str, Any]:
    """What was found, as plain values."""
    o = organization
    axes = ("queries", "keys", "heads")
    rows = sorted(o.head_table(), key=lambda row: (-row["involvement"], row["position"]))
    ranked = [{"head": row["label"], "involvement": round(row["involvement"], 6)} for row in rows]
    entropies = o.entropies()
    left_out = o.network.meta.get("left_out") or {}
    return {
        "kind": o.network.kind,
        "shape": dict(zip(axes, o.network.shape)),
        "trees": {a: {"levels": t.n_levels, "folders": t.n_folders} for a, t in zip(axes, o.trees_)},
        "head_folders": o.head_folders(),
        "entropy": {"before": entropies["given"], "after": entropies["organized"]}
        | {name: entropies[name] for name in ("shuffled", "entries")},
        "most_involved": ranked[:most],
        "least_involved": ranked[::-1][:most],
        "iterations": o.n_iter_,
        "converged": o.converged_,
        "left_out": {a: len(left_out.get(a, ())) for a in axes[:2]},
    }


def print_json(told: Mapping[str, Any]) -> None:
    """Plain JSON on standard output."""
    print(json.dumps(told, indent=2, ensure_ascii=False))


def print_table(told: Mapping[str, Any], report: Path) -> None:
    """A table on standard output."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    shape, entropy = told["shape"], told["entropy"]
    table = Table(
        title=escape(f"{told['model']}: how its attention is organised"), title_justify="left", show_header=False
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")

    def add(name: str, *lines: str) -> None:
        table.add_row(name, escape("\n".join(lines)))

    add("network", f"{shape['queries']} queries x {shape['keys']} keys x {shape['heads']} heads, {told['kind']}")
    if any(told["left_out"].values()):
        add("left out", ", ".join(f"{n} {axis} that nothing can see" for axis, n in told["left_out"].items()))
    trees = (f"{axis:8s} {t['levels']:2d} levels, {t['folders']:4d} folders" for axis, t in told["trees"].items())
    settled = "no tree changed in the last" if told["converged"] else "trees still changed in the last"
    add("trees", *trees, f"after {told['iterations']} iteration{'s' * (told['iterations'] > 1)}, {settled}")
    add("folders", counted(told["head_folders"]), *_folders(told["head_folders"]))
    add(
        "l1 entropy",
        f"{entropy['before']:.4f} before, {entropy['after']:.4f} after organisation",
        f"({entropy['shuffled']:.4f} shuffled, {entropy['entries']:.4f} without a basis; lower: more order)",
    )
    for name in ("most_involved", "least_involved"):
        heads = ", ".join(f"{item['head']} {item['involvement']:.2f}" for item in told[name])
        add(name.replace("_involved", " involved"), heads)
    add("seconds", ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in told["seconds"].items()))
    add("report", str(report))
    # A terminal tells its own width; a file or a pipe has room for every line.
    Console(width=None if sys.stdout.isatty() else 100, highlight=False).print(table)


def _folders(folders: list[list[str]], named: int = 6) -> list[str]:
    lines = []
    shared = [(number, heads) for number, heads in enumerate(folders) if len(heads) > 1]
    for number, heads in shared[:SHOWN]:
        lines.append(f"{number:2d}: {len(heads):3d}  {_named(heads, named)}")
    if len(shared) > SHOWN:
        lines.append(f"and {len(shared) - SHOWN} more")
    alone = [heads[0] for heads in folders if len(heads) == 1]
    if alone:
        lines.append(f"alone:   {_named(alone, named)}")
    return lines


def _named(heads: list[str], most: int) -> str:
    return " ".join(heads[:most]) + (f" and {len(heads) - most} more" if len(heads) > most else "")


__all__ = ["as_dict", "print_json", "print_table"]
