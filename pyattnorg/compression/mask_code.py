"""Visible cells as few bytes: nothing where all are, one number for a causal mask, packed bits for any other."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from pyattnorg.compression.numbers import Reader, inflated, varint

BoolArray = NDArray[np.bool_]
FULL, CAUSAL, BITS = 0, 1, 2


def mask_to_bytes(seen: BoolArray | None) -> bytes:
    """Cells (a, b) or (a, b, c), those of every c by themselves; equal ones are stored once."""
    if seen is None:
        return b""
    layers = [seen] if seen.ndim == 2 else [seen[:, :, i] for i in range(seen.shape[2])]
    known: dict[bytes, int] = {}
    which = [known.setdefault(np.packbits(layer).tobytes(), len(known)) for layer in layers]
    firsts = [layers[which.index(i)] for i in range(len(known))]
    out = bytes([seen.ndim]) + varint(len(firsts)) + b"".join(_one_to_bytes(layer) for layer in firsts)
    if len(firsts) > 1:
        packed = zlib.compress(np.array(which, "<u4").tobytes(), 9)
        out += varint(len(packed)) + packed
    return out


def mask_from_bytes(data: bytes, shape: tuple[int, int, int]) -> BoolArray | None:
    """The cells that `mask_to_bytes` wrote: of `shape`, or of its first two axes."""
    if not data:
        return None
    reader = Reader(data)
    ndim = reader.take(1)[0]
    count = reader.varint()
    if not 0 < count <= shape[2]:
        raise ValueError("its mask is damaged")
    layers = [_one_from(reader, shape[:2]) for _ in range(count)]
    if ndim == 2:
        return layers[0]
    if len(layers) == 1:
        return np.repeat(layers[0][:, :, None], shape[2], axis=2)
    which = np.frombuffer(inflated(reader.take(reader.varint()), 4 * shape[2]), "<u4")
    if len(which) != shape[2] or which.max() >= len(layers):
        raise ValueError("its mask is damaged")
    return np.stack([layers[i] for i in which.tolist()], axis=2)


def _one_to_bytes(layer: BoolArray) -> bytes:
    if layer.all():
        return bytes([FULL])
    first = int(layer[0].sum())  # keys that query 0 sees, if the mask is causal
    if np.array_equal(layer, np.tri(layer.shape[0], layer.shape[1], first - 1, dtype=bool)):
        return bytes([CAUSAL]) + varint(first)
    packed = zlib.compress(np.packbits(layer).tobytes(), 9)
    return bytes([BITS]) + varint(len(packed)) + packed


def _one_from(reader: Reader, shape: tuple[int, int]) -> BoolArray:
    kind = reader.take(1)[0]
    if kind == FULL:
        return np.ones(shape, bool)
    if kind == CAUSAL:
        return np.tri(*shape, reader.varint() - 1, dtype=bool)
    if kind != BITS:
        raise ValueError("its mask is damaged")
    bits = np.frombuffer(inflated(reader.take(reader.varint()), shape[0] * shape[1] // 8 + 1), np.uint8)
    return np.unpackbits(bits, count=shape[0] * shape[1]).astype(bool).reshape(shape)
