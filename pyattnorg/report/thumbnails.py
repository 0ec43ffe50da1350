"""Small pictures of matrices as PNG data, written here so that a page needs no other library to show them."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.pictures import UNSEEN, colour_limits

VIRIDIS = (
    "#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725",
)  # fmt: skip


HIDDEN = 255  # the colour of cells that the model cannot see: grey


def palette(stops: tuple[str, ...] = VIRIDIS) -> NDArray[np.uint8]:
    """255 colours between evenly spaced stops, shape (255, 3)."""
    rgb = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops], float)
    at = np.linspace(0, len(stops) - 1, HIDDEN)
    mixed = np.stack([np.interp(at, np.arange(len(stops)), rgb[:, c]) for c in range(3)], 1)
    found: NDArray[np.uint8] = np.rint(mixed).astype(np.uint8)
    return found


def png(matrix: NDArray[Any]) -> bytes:
    """A matrix as an indexed PNG, one pixel a cell; colours run from its 1st to its 97th percentile."""
    # one bright column and one bright diagonal of 64 cells are 3 % of them: the rest must still be seen
    low, high = colour_limits(matrix, (1, 97))
    hidden = np.isnan(matrix)
    share = np.clip((np.where(hidden, low, matrix) - low) / (high - low), 0, 1)
    pixels = np.where(hidden, HIDDEN, np.rint(share * (HIDDEN - 1))).astype(np.uint8)
    height, width = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels], 1)  # 0: this row is not filtered

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)  # 8 bits, indexed colours
    parts = (
        (b"IHDR", header),
        (b"PLTE", palette().tobytes() + bytes.fromhex(UNSEEN[1:])),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def data_uri(matrix: NDArray[Any]) -> str:
    """A matrix as the address of an image inside the page."""
    return "data:image/png;base64," + base64.b64encode(png(matrix)).decode()


__all__ = ["VIRIDIS", "data_uri", "palette", "png"]
