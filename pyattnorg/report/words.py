"""The page's text: facts, explanations, gallery and tables as HTML. Whatever came from outside is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.organization import HEADS, KEYS, QUERIES
from pyattnorg.report.blocks import by_runs
from pyattnorg.report.thumbnails import data_uri
from pyattnorg.report.view import MOST_FOLDERS, MOST_HEADS, View, layer_span

TIMES = "\N{MULTIPLICATION SIGN}"
INPUT_LENGTH = 600
AT_ONCE, FOLDED = 51, 34  # heads of a folder that are shown at once; how many where there are more
BASES = {
    "organized": "the Haar basis of the trees found",
    "given": "the Haar basis of the order as given",
    "shuffled": "the same after shuffling every axis",
    "entries": "the cells themselves, no basis",
}
COLUMNS = ("label", "layer", "head", "folder", "position", "involvement", "entropy", "effective", "nearest")


def given_input(view: View) -> str:
    """What the model was given, where the network remembers it."""
    text = str(view.organization.network.meta.get("input") or "")
    more = "…" if len(text) > INPUT_LENGTH else ""
    return f'<p class="soft input">{escape(text[:INPUT_LENGTH])}{more}</p>' if text else ""


def facts(view: View) -> str:
    """The numbers at the top."""
    o = view.organization
    q, k, h = o.network.shape
    layers = len({(g, int(n)) for g, n in zip(o.network.heads.group, view.layers)})
    entropies = {name: f"{value:.3f}" for name, value in o.entropies().items()}
    alone = len(view.folders) - len(view.shared)
    top = max(view.rows, key=lambda row: row["involvement"])
    order = f"l1 entropy organised; {entropies['given']} as given, {entropies['shuffled']} shuffled (lower: more order)"
    cards = [
        (
            _many(h, "head"),
            f"in {_many(layers, 'layer')}, {_many(q, 'query', 'queries')} {TIMES} {_many(k, 'key')}, "
            f"attention {o.network.kind}",
        ),
        (
            _many(len(view.shared), "folder"),
            "of heads that attend alike"
            + (f", {_many(alone, 'head')} alone," if alone else ",")
            + f" in a tree of {_many(o.trees_[HEADS].n_levels, 'level')}",
        ),
        (entropies["organized"], order),
        (top["label"], "the most involved head: none carries more of the coarse structure"),
    ]
    boxes = "".join(f'<div class="fact"><b>{escape(b)}</b><span>{escape(text)}</span></div>' for b, text in cards)
    return f'<div class="facts">{boxes}</div>'


def _many(n: int, what: str, several: str = "") -> str:
    return f"{n:,} {what if n == 1 else several or what + 's'}"


def about_unseen(view: View) -> str:
    """What grey means, where there is some."""
    return "" if view.organization.network.visible is None else " Grey: what the model cannot see."


def about_embedding(view: View) -> str:
    """What the picture of the heads' coordinates shows."""
    count = sum(name in view.rows[0] for name in "xyz")
    if not count:
        return "<p>A single head has no others to be near to.</p>"
    what = ("One diffusion coordinate", "Two diffusion coordinates", "Three diffusion coordinates")[count - 1]
    turn = " Drag to turn." if count == 3 else ""
    near = "heads lie close together where many chains of similar heads join them."
    return f'<p class="soft">{what}: {near}{turn}</p>'


def about_head(view: View) -> str:
    """The shown head in a sentence."""
    row = next(row for row in view.rows if row["label"] == view.head)
    nearest = escape(row["nearest"]) or "none"
    folder = f"folder {row['folder']}" if row["folder"] in view.shared else "alone, in a folder of its own"
    return f"Involvement {row['involvement']:.2f}, {folder}, nearest heads {nearest}."


def gallery(view: View) -> str:
    """Every folder of heads: its mean, where its attention goes, its heads as small pictures; then heads alone."""
    by_size = sorted(view.shared, key=lambda i: (-len(view.folders[i]), i))
    shown = sorted(by_size[:MOST_FOLDERS])
    n_heads = len(view.rows)
    side = 64 if n_heads <= 128 else 48 if n_heads <= 256 else 32
    most = {row["label"] for row in sorted(view.rows, key=lambda row: -row["involvement"])[:5]}
    values = view.organization.network.shown()
    parts = []
    for number in shown:
        heads = view.folders[number]
        mean = small(_mean(values[:, :, heads]), 64)
        pictures = []
        if n_heads <= MOST_HEADS:
            pictures = [_picture(view.rows[i], small(values[:, :, i], side), most) for i in heads]
        parts.append(
            f'<div class="folder"><img alt="mean of folder {number}" src="{data_uri(mean)}"><div>'
            f"<h3>Folder {number}: {_many(len(heads), 'head')}, {layer_span(view.layers[heads])}</h3>"
            f'<div class="soft">{escape(_habits(view, heads))}</div>{_row_of(pictures)}</div></div>'
        )
    alone = [folder[0] for folder in view.folders if len(folder) == 1]
    if alone:
        pictures = [_picture(view.rows[i], small(values[:, :, i], side), most) for i in alone if n_heads <= MOST_HEADS]
        parts.append(
            f'<div class="folder"><div></div><div><h3>Alone: {_many(len(alone), "head")}, '
            f'{layer_span(view.layers[alone])}</h3><div class="soft">{_why_alone(view)}</div>'
            f"{_row_of(pictures)}</div></div>"
        )
    return "".join(parts)


def _why_alone(view: View) -> str:
    if len(view.rows) == 1:
        return "the only head"
    largest = view.organization.largest_folder
    return f"each a folder of its own: the next larger one that it is in holds more than {_many(largest, 'head')}"


def _row_of(pictures: list[str]) -> str:
    """Pictures side by side; of very many the first, the rest folded away."""
    shown = len(pictures) if len(pictures) <= AT_ONCE else FOLDED
    row = f'<div class="heads">{"".join(pictures[:shown])}</div>'
    if rest := pictures[shown:]:
        row += f'<details><summary>{len(rest)} more</summary><div class="heads">{"".join(rest)}</div></details>'
    return row


def _habits(view: View, heads: list[int]) -> str:
    habits = view.habits(heads)
    if not habits:
        return ""
    telling = [f"{share:.0%} to {place}" for place, share in habits if share >= 0.05][:3]
    if not telling:
        return "on average, neither the first, last, same, previous nor next token gets a twentieth of the attention"
    return "of the attention, on average, " + ", ".join(telling)


def _picture(row: Mapping[str, Any], matrix: NDArray[Any], most: set[str]) -> str:
    label = escape(str(row["label"]))
    title = escape(f"{row['label']}: involvement {row['involvement']:.2f}, nearest {row['nearest']}")
    kind = "top" if row["label"] in most else "other"
    return (
        f'<figure class="{kind}" title="{title}"><img alt="{label}" loading="lazy" '
        f'src="{data_uri(matrix)}"><figcaption>{label}</figcaption></figure>'
    )


def _mean(values: NDArray[Any]) -> NDArray[np.float64]:
    """Mean over heads of the cells that each can see."""
    known = ~np.isnan(values)
    sums = np.where(known, values, 0).sum(2, dtype=np.float64)
    counts = known.sum(2)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def small(matrix: NDArray[Any], side: int) -> NDArray[np.float64]:
    """A matrix averaged down to at most `side` cells a side."""
    q, k = matrix.shape
    return by_runs(k, side).mean(by_runs(q, side).mean(matrix, 0), 1)


def head_table(view: View) -> str:
    """Heads, most involved first, in a table that sorts when a column's head is pressed."""
    rows = sorted(view.rows, key=lambda row: (-row["involvement"], row["position"]))[:MOST_HEADS]
    columns = [name for name in COLUMNS if name in view.rows[0]]
    head = "".join(
        f"<th{_number(rows[0][name])}{' aria-sort=descending' if name == 'involvement' else ''}>"
        f"<button type=button>{name}</button></th>"
        for name in columns
    )
    body = "".join("<tr>" + "".join(_cell(name, row[name]) for name in columns) + "</tr>" for row in rows)
    return _table(head, body, "sortable")


def _table(head: str, body: str, kind: str = "plain") -> str:
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _number(value: Any) -> str:
    return ' class="number"' if isinstance(value, (int, float)) else ""


def _cell(name: str, value: Any) -> str:
    if name == "involvement":
        share = f"{100 * float(value):.1f}%"
        return f'<td class="number bar" style="--share:{share}" data-value="{value:.6g}">{value:.3f}</td>'
    if isinstance(value, float):
        return f'<td class="number" data-value="{value:.6g}">{value:,.4g}</td>'
    return f"<td{_number(value)}>{escape(str(value))}</td>"


def sparsity_table(view: View) -> str:
    """Entropy and number of coefficients in the four bases."""
    entropies = view.organization.entropies()
    rows = "".join(
        f'<tr><td>{BASES[name]}</td><td class="number">{entropies[name]:.4f}</td>'
        f'<td class="number">{100 * view.needed[name]:.1f} %</td></tr>'
        for name in BASES
    )
    head = '<th>written in</th><th class="number">l1 entropy</th><th class="number">coefficients for 5 % error</th>'
    return _table(head, rows)


def verdict(view: View) -> str:
    """The sparsity table in one sentence."""
    organized, given, shuffled = (100 * view.needed[name] for name in ("organized", "given", "shuffled"))
    return (
        f"Organised, {organized:.1f} % of the coefficients describe the network with 5 % error; "
        f"as given {given:.1f} %, shuffled {shuffled:.1f} %."
    )


def particulars(view: View, seconds: Mapping[str, float]) -> str:
    """How the page came about: options, iterations, left-out points, what is drawn with less detail, times."""
    o = view.organization
    kinds = dict.fromkeys(o.questionnaire.tree_kinds_)
    params = o.questionnaire.get_params() | {
        "tree": o.questionnaire.tree_kinds_ if len(kinds) > 1 else next(iter(kinds))
    }
    unsaid = ("verbose", *(name for name, value in params.items() if value is None))
    options = ", ".join(f"{name} {value}" for name, value in params.items() if name not in unsaid)
    history = " → ".join(f"{iteration['entropy']:.4f}" for iteration in o.history_)
    trees = "; ".join(
        f"{what}: {_many(o.trees_[axis].n_levels, 'level')}, {_many(o.trees_[axis].n_folders, 'folder')}"
        for what, axis in (("queries", QUERIES), ("keys", KEYS), ("heads", HEADS))
    )
    tol = o.questionnaire.tol
    still = f"the last one moved no tree by more than {tol:g}" if tol else "the last one changed no tree"
    settled = still if o.converged_ else "trees still changed in the last one"
    items = [
        ("iterations", f"{o.n_iter_}; {settled}; l1 entropy after each: {history}"),
        ("trees", trees),
        ("options", options),
    ]
    left_out = o.network.meta.get("left_out")
    if left_out:
        names = f"{len(left_out['queries'])} queries and {len(left_out['keys'])} keys that nothing can see"
        items.append(("left out", names))
    if o.network.visible is not None:
        how = {
            "zero": "0, which their weight is",
            "mean": "the mean of what their row sees",
            "raw": "what was computed",
        }
        filled = how.get(o.network.meta.get("masked", ""), "the least of what their row sees")
        items.append(("not seen by the model", f"the cells shown grey; to organise, they hold {filled}"))
    if view.collapsed:
        items.append(("drawn with less detail", "; ".join(view.collapsed)))
    if seconds:
        items.append(("seconds", ", ".join(f"{stage} {time:.2f}" for stage, time in seconds.items())))
    return "<dl>" + "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in items) + "</dl>"


def capture_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The capture's report, one row a layer; columns that say nothing in any row are left out."""
    if not rows:
        return ""
    known = dict.fromkeys(name for row in rows for name in row)
    names = [name for name in known if any(_said(row.get(name)) for row in rows)]
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_said(row.get(name)))}</td>" for name in names) + "</tr>" for row in rows
    )
    return f"<h3>What was captured, by layer</h3>{_table(head, body)}"


def _said(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, (list, tuple)):
        between = f" {TIMES} " if all(isinstance(v, int) for v in value) else " to "
        return between.join(_said(v) for v in value)
    return str(value)


__all__ = [
    "about_embedding", "about_head", "about_unseen", "capture_table", "facts", "gallery", "given_input", "head_table",
    "particulars", "sparsity_table", "verdict",
]  # fmt: skip
