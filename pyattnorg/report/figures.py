"""The page's figures as plotly describes them: plain dictionaries, drawn in the browser.

Colours of text and lines are not given here: the page sets them for light and dark. Every text is escaped, because
plotly reads a little HTML in its labels.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.organization import HEADS
from pyattnorg.pictures import decay_floor, log_spaced, tree_lines
from pyattnorg.report.blocks import Blocks, cut
from pyattnorg.report.matrices import WIDE, Figure, escaped, numbers
from pyattnorg.report.view import View

# Runs from blue to orange in even steps of lightness that stand out on white and on black.
LAYER_COLOURS = ("#4c6fd1", "#2b9eb3", "#44b37f", "#c9b02e", "#e07b39")
CURVES = {
    "organized": ("organised", "#e07b39"),
    "given": ("as given", "#4c6fd1"),
    "shuffled": ("shuffled", "#8a8f98"),
}
GREY = "#8a8f98"


def tree_figure(view: View) -> Figure:
    """The tree of heads, root on top, a band behind every telling folder."""
    blocks = view.heads
    tree = cut(view.organization.trees_[HEADS], blocks)
    lines = tree_lines(tree)
    gaps = np.full((len(lines.joints), 1, 2), np.nan)
    path = np.concatenate([lines.joints, gaps], 1).reshape(-1, 2)
    folders = tree.folders()
    inner = np.flatnonzero(folders.size > 1)
    bottom = tree.n_levels - 1
    involvement = blocks.mean(np.array([row["involvement"] for row in view.rows]))
    labels = blocks.names(view.names[HEADS])
    size = min(1.0, max(110 / len(blocks), 0.4))
    traces = [
        {
            "type": "scatter", "mode": "lines", "hoverinfo": "skip", "line": {"color": GREY, "width": 1},
            "x": numbers(path[:, 0]), "y": numbers(path[:, 1]),
        },
        {
            "type": "scatter", "mode": "markers", "marker": {"size": 6, "color": GREY},
            "x": numbers(lines.x[inner]), "y": numbers(lines.y[inner]), "hovertemplate": "%{text}<extra></extra>",
            "text": [_folder_text(folders.start[i], folders.size[i], folders.last_level[i], labels) for i in inner],
        },
        {
            "type": "scatter", "mode": "markers", "hovertemplate": "%{text}<extra></extra>", "cliponaxis": False,
            "marker": {"color": view.layers[blocks.first].tolist(), "coloraxis": "coloraxis", "opacity": 1,
                       "size": numbers(size * (6 + 8 * involvement), 3), "line": {"width": 1, "color": GREY}},
            "x": list(range(len(blocks))), "y": [bottom] * len(blocks), "text": head_texts(view, blocks),
        },
    ]  # fmt: skip
    shapes, notes = _bands(view, blocks, bottom)
    layout = {
        "xaxis": {"range": [-1, len(blocks)], "tickangle": -90, "showgrid": False, "zeroline": False},
        "yaxis": {"range": [bottom + 0.35, -0.75], "title": {"text": "level"}, "dtick": max(1, -(-bottom // 15)),
                  "zeroline": False},
        "shapes": shapes, "annotations": notes, "coloraxis": layer_colours(view.layers), "showlegend": False,
        "margin": {"l": 50, "r": 10, "t": 30, "b": 70},
    }  # fmt: skip
    return {"traces": traces, "layout": layout, "ticks": {"xaxis": escaped(labels)}}


def _folder_text(start: int, size: int, level: int, labels: list[str]) -> str:
    names = [escape(name) for name in labels[start : start + min(size, 9)]]
    more = f"<br>and {size - 9} more" if size > 9 else ""
    return f"folder of {size}, splits at level {level}<br>" + "<br>".join(
        " ".join(names[i : i + 3]) for i in range(0, len(names), 3)
    ) + more  # fmt: skip


def _bands(view: View, blocks: Blocks, bottom: int) -> tuple[list[Any], list[Any]]:
    """Shading and number of every telling folder, where they can be told apart."""
    block_of = np.empty(len(view.rows), np.int64)
    block_of[blocks.order] = np.repeat(np.arange(len(blocks)), blocks.sizes)
    shapes, notes = [], []
    for number, heads in enumerate(view.folders):
        left, right = int(block_of[heads].min()), int(block_of[heads].max())
        if number % 2 == 0:
            shapes.append(
                {"type": "rect", "layer": "below", "line": {"width": 0}, "fillcolor": GREY, "opacity": 0.14,
                 "x0": left - 0.5, "x1": right + 0.5, "y0": -0.75, "y1": bottom + 0.35}
            )  # fmt: skip
        if len(heads) > 1:
            notes.append({"x": (left + right) / 2, "y": -0.5, "text": str(number), "showarrow": False})
    return shapes, notes if len(notes) <= WIDE else []


def head_texts(view: View, blocks: Blocks) -> list[str]:
    """What is told of every head under the pointer."""
    texts = []
    for block in range(len(blocks)):
        members = blocks.members(block)
        row = view.rows[members[0]]
        if len(members) > 1:
            names = " ".join(view.names[HEADS][i] for i in members[:6])
            texts.append(f"<b>{len(members)} heads</b><br>{escape(names)}{' …' if len(members) > 6 else ''}")
            continue
        texts.append(
            f"<b>{escape(row['label'])}</b><br>layer {row['layer']}, folder {row['folder']}"
            f"<br>involvement {row['involvement']:.2f}<br>nearest: {escape(row['nearest'])}"
        )
    return texts


def layer_colours(layers: NDArray[np.int64]) -> Figure:
    """A colour axis of layers."""
    low, high = int(layers.min()), int(layers.max())
    shown = np.unique(layers)
    ticks = shown[:: max(1, -(-len(shown) // 12))]
    return {
        "colorscale": [[i / (len(LAYER_COLOURS) - 1), c] for i, c in enumerate(LAYER_COLOURS)],
        "cmin": low, "cmax": max(high, low + 1),
        "colorbar": {"title": {"text": "layer"}, "thickness": 12, "tickvals": ticks.tolist(), "outlinewidth": 0,
                     "len": 0.85},
    }  # fmt: skip


def embedding_figure(view: View) -> Figure | None:
    """Up to three diffusion coordinates of the heads; None for a single head."""
    blocks = view.heads
    names = [name for name in "xyz" if name in view.rows[0]]
    if not names:
        return None
    points = {name: blocks.mean(np.array([row[name] for row in view.rows])) for name in names}
    points.setdefault("y", np.zeros(len(blocks)))
    trace = {
        "type": "scatter3d" if "z" in points else "scatter", "mode": "markers",
        **{name: numbers(values) for name, values in points.items()},
        "text": head_texts(view, blocks), "hovertemplate": "%{text}<extra></extra>",
        "marker": {"size": 5 if "z" in points else 9, "color": view.layers[blocks.first].tolist(),
                   "coloraxis": "coloraxis", "line": {"width": 0.5, "color": GREY}},
    }  # fmt: skip
    titles = {f"{name}axis": {"title": {"text": f"coordinate {i + 1}"}} for i, name in enumerate("xyz"[: len(points)])}
    layout: Figure = {"coloraxis": layer_colours(view.layers), "margin": {"l": 0, "r": 0, "t": 0, "b": 0}}
    if "z" in points:
        layout["scene"] = titles | {
            "aspectmode": "cube",
            "camera": {"eye": {"x": 1.7, "y": 1.7, "z": 0.9}, "center": {"x": 0, "y": 0, "z": -0.1}},
        }
    else:
        layout |= titles | {"margin": {"l": 60, "r": 10, "t": 30, "b": 50}}
    return {"traces": [trace], "layout": layout, "ticks": {}}


def decay_figure(view: View) -> Figure:
    """Coefficient magnitudes, largest first, on logarithmic axes."""
    traces = []
    lowest = []
    for key, (name, colour) in CURVES.items():
        curve = view.decay[key]
        at = log_spaced(len(curve))
        at = at[curve[at] > 0]
        lowest.append(decay_floor(curve))
        traces.append(
            {"type": "scatter", "mode": "lines", "name": name, "line": {"color": colour, "width": 2},
             "x": (at + 1).tolist(), "y": numbers(curve[at]),
             "hovertemplate": "number %{x}: %{y:.2e}<extra>" + name + "</extra>"}
        )  # fmt: skip
    top = max((max(trace["y"], default=1.0) for trace in traces), default=1.0)
    floor = min(lowest) or top
    powers = {"type": "log", "exponentformat": "power", "dtick": 1}
    layout = {
        "xaxis": powers | {"title": {"text": "coefficients, largest first"}},
        "yaxis": powers | {"title": {"text": "magnitude / norm"},
                  "range": [float(np.log10(floor)) - 0.2, float(np.log10(top)) + 0.2]},
        "legend": {"x": 0.02, "y": 0.04}, "margin": {"l": 70, "r": 10, "t": 30, "b": 55},
    }  # fmt: skip
    return {"traces": traces, "layout": layout, "ticks": {}}


__all__ = ["GREY", "WIDE", "Figure", "decay_figure", "embedding_figure", "tree_figure"]
