"""Maps of windows laid out on the grid of tokens, with the mask that follows: tokens of other windows are not seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyattnorg.capture.errors import CaptureError
from pyattnorg.capture.record import Tokens
from pyattnorg.network import NetworkTensor


def on_grid(
    tensor: NetworkTensor, tokens: Sequence[Tokens | None], layers: Sequence[int], image: tuple[int, int] | None
) -> NetworkTensor:
    """A tensor (queries, keys, layers * windows * heads) as (tokens, tokens, layers * heads).

    `tokens` says where the windows of each record lie, `layers` how many matrices of the tensor each record has.
    Tokens that several windows hold (overlapping ones) have each cell from the first window that shows it.
    """
    found = [t for t in tokens if t is not None]
    if len(found) < len(tokens):
        raise CaptureError(
            "on_grid: where the windows lie is not known; capture() follows tokens, capturing() does with "
            "windows=True, and where they are lost on the way the windows are only there one by one"
        )
    axes = [[_numbered(t.queries), _numbered(t.keys)] for t in found]
    sizes = {(int(q.max()) + 1, int(k.max()) + 1) for q, k in axes}
    if len(sizes) > 1:
        raise CaptureError(f"on_grid: layers have grids of different sizes ({sorted(sizes)}), expected one")
    n_q, n_k = sizes.pop()
    columns = {name: [] for name in ("layer", "head", "kv_group", "group", "module")}  # type: dict[str, list[object]]
    values, seen, at = [], [], 0
    given = tensor.visible_cells()
    table = tensor.heads.to_dict()
    for (q, k), count in zip(axes, layers, strict=True):
        heads = count // len(q)
        x = tensor.values[:, :, at : at + count].reshape(*tensor.shape[:2], len(q), heads)
        v = given[:, :, at : at + count].reshape(x.shape)
        out = np.zeros((n_q, n_k, heads), tensor.values.dtype)
        shown = np.zeros((n_q, n_k, heads), bool)
        for w in reversed(range(len(q))):
            rows, cells = q[w] >= 0, k[w] >= 0
            here = np.ix_(q[w][rows], k[w][cells])
            mine = v[:, :, w][np.ix_(rows, cells)]
            out[here] = np.where(mine, x[:, :, w][np.ix_(rows, cells)], out[here])
            shown[here] |= mine
        values.append(out)
        seen.append(shown)
        for name, column in columns.items():
            column.extend(table[name][at : at + heads])
        at += count
    queries, keys = (_names(n, image) for n in (n_q, n_k))
    meta = {**tensor.meta, "on_grid": True, "raw": False}
    return NetworkTensor(np.concatenate(values, 2), tensor.kind, np.concatenate(seen, 2), columns, queries, keys, meta)


def _numbered(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tokens numbered from 0 in the order of the grid, without gaps; padding stays -1."""
    known = np.unique(tokens[tokens >= 0])
    return np.where(tokens >= 0, np.searchsorted(known, tokens), -1)


def grid_of(n: int, image: tuple[int, int] | None) -> tuple[int, int] | None:
    """Rows and columns of `n` tokens of an image of this height and width; None where they do not fit."""
    if image is None:
        return None
    rows = round((n * image[0] / image[1]) ** 0.5)
    return (rows, n // rows) if rows > 0 and n % rows == 0 and rows * image[1] == n // rows * image[0] else None


def _names(n: int, image: tuple[int, int] | None) -> list[str] | None:
    grid = grid_of(n, image)
    return None if grid is None else [f"r{r}c{c}" for r in range(grid[0]) for c in range(grid[1])]


__all__ = ["grid_of", "on_grid"]
