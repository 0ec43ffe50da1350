"""Figures that are matrices, as plotly describes them: the affinity of the heads, and one head before and after."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.organization import HEADS, KEYS, QUERIES
from pyattnorg.pictures import UNSEEN, colour_limits
from pyattnorg.report.blocks import Blocks
from pyattnorg.report.thumbnails import VIRIDIS
from pyattnorg.report.view import View

Figure = dict[str, Any]
PLURAL = {"query": "queries", "key": "keys", "head": "heads"}
WIDE = 40  # folders that are marked in a figure at most


def affinity_figure(view: View) -> Figure:
    """The affinity of the heads in tree order; the largest colour is that of the 99th percentile off the diagonal."""
    blocks = view.head_matrix_blocks
    affinity = blocks.mean(blocks.mean(view.organization.affinities_[HEADS], 0), 1)
    off = affinity[~np.eye(len(affinity), dtype=bool)]
    limits = colour_limits(off) if len(off) and off.min() < off.max() else (0.0, 1.0)  # all alike: all bright
    names = blocks.names(view.names[HEADS])
    figure = matrix_figure(affinity, names, names, limits, ("head", "head", "affinity"))
    figure["layout"]["shapes"] = _rules(view.folders, blocks)
    return figure


def head_figures(view: View) -> tuple[Figure, Figure]:
    """The chosen head as given and organised, in the same colours."""
    matrix = view.organization.network.shown(view.head)
    limits = colour_limits(matrix)
    out = []
    for rows, columns in (
        (view.as_given(QUERIES), view.as_given(KEYS)),
        (view.organized(QUERIES), view.organized(KEYS)),
    ):
        shown = columns.mean(rows.mean(matrix, 0), 1)
        names = rows.names(view.names[QUERIES]), columns.names(view.names[KEYS])
        places = rows.first.tolist(), columns.first.tolist()
        out.append(matrix_figure(shown, *names, limits, ("query", "key", view.organization.network.kind), places))
    return out[0], out[1]


def matrix_figure(
    matrix: NDArray[Any],
    rows: list[str],
    columns: list[str],
    limits: tuple[float, float],
    what: tuple[str, str, str],
    places: tuple[list[int], list[int]] | None = None,
) -> Figure:
    """A heat map whose cells name their row and column under the pointer, tokens with their place in the input."""

    def categories(names: list[str], at: list[int] | None) -> list[str]:
        # plotly merges equal categories, and tokens come back: the place makes each one unique
        return escaped([f"{name} ({i})" for name, i in zip(names, at)] if at is not None else names)

    at_rows, at_columns = places or (None, None)
    trace = {
        "type": "heatmap", "z": [numbers(row, 3) for row in matrix],
        "y": categories(rows, at_rows), "x": categories(columns, at_columns),
        "zmin": limits[0], "zmax": limits[1],
        "colorscale": [[i / (len(VIRIDIS) - 1), colour] for i, colour in enumerate(VIRIDIS)],
        "colorbar": {"thickness": 12, "outlinewidth": 0},
        "hovertemplate": f"{what[0]} %{{y}}<br>{what[1]} %{{x}}<br>{what[2]} %{{z}}<extra></extra>",
    }  # fmt: skip

    def axis(name: str, **more: Any) -> Figure:
        title = {"text": PLURAL[name], "standoff": 8}
        return {"type": "category", "showgrid": False, "zeroline": False, "automargin": True, "title": title} | more

    layout: Figure = {
        "xaxis": axis(what[1], tickangle=-90),
        "yaxis": axis(what[0], autorange="reversed"),
        "margin": {"l": 60, "r": 10, "t": 30, "b": 60},
    }
    if np.isnan(matrix).any():  # gaps show what lies behind
        layout["plot_bgcolor"] = UNSEEN
    return {"traces": [trace], "layout": layout, "ticks": {"xaxis": escaped(columns), "yaxis": escaped(rows)}}


def _rules(folders: list[list[int]], blocks: Blocks) -> list[Any]:
    """Lines between the telling folders of a matrix in tree order."""
    if len(folders) > WIDE:
        return []
    ends = np.cumsum([len(heads) for heads in folders])[:-1]
    at = np.searchsorted(blocks.starts, ends) - 0.5
    line = {"type": "line", "line": {"color": "#ffffff", "width": 1}, "opacity": 0.7}
    across = [line | {"xref": "paper", "x0": 0, "x1": 1, "y0": p, "y1": p} for p in at.tolist()]
    return across + [line | {"yref": "paper", "y0": 0, "y1": 1, "x0": p, "x1": p} for p in at.tolist()]


def numbers(values: NDArray[Any], digits: int = 4) -> list[float | None]:
    """Numbers in as few characters as they need; NaN, which JSON lacks, is a gap."""
    return [None if v != v else float(f"{v:.{digits}g}") for v in values.tolist()]


def escaped(names: list[str]) -> list[str]:
    """Names as plotly shows them letter by letter."""
    return [escape(name) for name in names]


__all__ = ["WIDE", "Figure", "affinity_figure", "escaped", "head_figures", "matrix_figure", "numbers"]
