"""The report: one HTML page with all it needs inside, no larger than its budget, safe whatever the tokens say."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, BinaryIO

from pyattnorg._version import __version__
from pyattnorg.organization import Organization
from pyattnorg.report import figures, matrices, words
from pyattnorg.report.view import View
from pyattnorg.store import write_atomically

# Nothing may be fetched or sent; plotly draws in three dimensions with code that it writes itself.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "worker-src blob:; font-src data:; form-action 'none'; base-uri 'none'"
)


def report(
    organization: Organization,
    path: str | os.PathLike[str],
    *,
    head: str | None = None,
    title: str | None = None,
    overwrite: bool = False,
    seconds: Mapping[str, float] | None = None,
    layers: Sequence[Mapping[str, Any]] | None = None,
) -> Path:
    """Write one self-contained HTML page about an organisation.

    It holds the folders and the tree of the heads, their diffusion coordinates and affinity, one head as given and
    organised, the decay of the coefficients, the table of heads and how it all came about. It needs no network and no
    other file. It stays below 12 MB: axes longer than 256 points are drawn as folders of their tree, and the page says
    so.

    Parameters
    ----------
    organization : Organization
    path : path
        Of the page; its folder must exist.
    head : str, optional
        Label of the head to show; the most involved one without it.
    title : str, optional
        Of the page.
    overwrite : bool
        Replace the file if it exists.
    seconds : mapping of stage to seconds, optional
        Named on the page.
    layers : sequence of mappings, optional
        The report of a capture, one row a layer; shown as a table.

    Returns
    -------
    Path
        Of the page.

    Raises
    ------
    KeyError
        No head has that label.
    FileExistsError
        The file exists and `overwrite` is False.
    ImportError
        plotly is not installed.
    """
    if not isinstance(organization, Organization):
        raise TypeError(f"organization: got {type(organization).__name__}, expected what pyattnorg.organize returns")
    target = Path(path)
    if head is not None:
        organization.network.index(head)  # refuses a label that is not there
    if target.exists() and not overwrite:
        raise FileExistsError(f"path: {target} exists; pass overwrite=True to replace it")
    view = View.of(organization, head)
    model = str(organization.network.meta.get("model") or "a network")
    text = page(view, title or f"How the attention of {model} is organised", seconds or {}, list(layers or ()))

    def write(file: BinaryIO) -> None:
        file.write(text.encode())

    write_atomically(target, write, overwrite=overwrite)
    return target


def page(view: View, title: str, seconds: Mapping[str, float], layers: Sequence[Mapping[str, Any]]) -> str:
    """The page as text."""
    plotly = plotly_script()
    given, organized = matrices.head_figures(view)
    embedding = figures.embedding_figure(view)
    drawn = {
        "tree": figures.tree_figure(view),
        "affinity": matrices.affinity_figure(view),
        "given": given,
        "organized": organized,
        "decay": figures.decay_figure(view),
    } | ({} if embedding is None else {"embedding": embedding})
    parts = {
        "title": escape(title),
        "input": words.given_input(view),
        "facts": words.facts(view),
        "gallery": words.gallery(view),
        "unseen": words.about_unseen(view),
        "embedding": words.about_embedding(view)
        + ("" if embedding is None else '<div class="figure tall" data-figure="embedding"></div>'),
        "head": escape(view.head),
        "about_head": words.about_head(view),
        "verdict": words.verdict(view),
        "sparsity": words.sparsity_table(view),
        "heads": words.head_table(view),
        "particulars": words.particulars(view, seconds),
        "layers": words.capture_table(layers),
        "data": as_json(drawn),
    }
    # The same page has the same identity and another page another one, without a clock and without chance.
    root = "pyattnorg-" + hashlib.sha256("\0".join(parts.values()).encode()).hexdigest()[:12]
    return Template(_asset("page.html")).substitute(
        parts,
        policy=POLICY,
        version=__version__,
        root=root,
        css=_asset("page.css"),
        js=_asset("page.js").replace("@ROOT@", root),
        plotly=plotly,
    )


def plotly_script() -> str:
    """The text of plotly.js, as the plotly package ships it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ImportError("plotly is needed for the report: pip install 'pyattnorg[viz]'") from None
    text: str = get_plotlyjs()
    return text


def as_json(data: Any) -> str:
    """JSON that can stand inside a script element: no text in it can end the element or begin another."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return files("pyattnorg.report").joinpath(name).read_text(encoding="utf-8")


__all__ = ["page", "plotly_script", "report"]
