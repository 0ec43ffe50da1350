"""The file: a header that tells everything but the coefficients, then these in segments, each with a checksum.

A header is read whole, a segment only where one of its strips is asked for. Segments have 4 kB or a little more, which
is what a disk reads at once in any case.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.compression.numbers import Reader, framed, inflated

Ints = NDArray[np.int64]
MAGIC = b"\x89pyatnC1"
FRONT = struct.Struct("<8sII")  # magic, length and CRC-32 of the header
SEGMENT = 4096


@dataclass(frozen=True)
class Parts:
    """What a header holds, as bytes.

    `about` is JSON; ``about["inside"]``, where it is there, has the lengths of whole files that follow the header in
    place of strips. `fixed` holds the numbers that coefficients are made of, `sizes` the bytes of every strip.
    """

    about: dict[str, Any]
    fixed: bytes
    mask: bytes
    trees: list[bytes]
    model: bytes
    sizes: Ints


def written(parts: Parts, strips: Sequence[bytes]) -> bytes:
    """The whole file."""
    about = zlib.compress(
        json.dumps(parts.about, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass"), 9
    )
    trees = framed(parts.trees)
    planes = np.array([len(strip) for strip in strips], "<u4").view(np.uint8).reshape(-1, 4).T
    sizes = zlib.compress(planes.tobytes(), 9)
    payload = b"".join(strips)
    edges = segments(np.array([len(strip) for strip in strips], np.int64))
    checks = [zlib.crc32(payload[a:b]) for a, b in pairwise(edges)]
    packed = np.array(checks, "<u4").tobytes()
    header = framed([about, parts.fixed, parts.mask, trees, parts.model, sizes, packed])
    return FRONT.pack(MAGIC, len(header), zlib.crc32(header)) + header + payload


def segments(sizes: Ints) -> list[int]:
    """Where segments begin, and the end of the last: at strips, as soon as there are enough bytes."""
    edges, at = [0], 0
    for size in sizes.tolist():
        at += size
        if at - edges[-1] >= SEGMENT:
            edges.append(at)
    if at > edges[-1]:
        edges.append(at)
    return edges


class Container:
    """Reads a file, or the bytes of one, piece by piece.

    Attributes
    ----------
    parts : Parts
    section_bytes : dict
        Bytes of every part of the file.
    nbytes : int
        Of the whole file.
    inside : list of Container
        Files within it.

    Raises
    ------
    ValueError
        It is no such file, or a part of it is not what was written.
    """

    def __init__(self, source: bytes | Path, begin: int = 0, nbytes: int | None = None) -> None:
        self._source, self._first = source, begin
        size = len(source) if isinstance(source, bytes) else os.stat(source).st_size
        self.nbytes = size - begin if nbytes is None else nbytes
        self._read_here = 0
        self._front = self._read(0, FRONT.size)
        magic, length, check = FRONT.unpack(self._front)
        if magic != MAGIC:
            raise ValueError("it does not begin as one")
        header = self._read(FRONT.size, length)
        if zlib.crc32(header) != check:
            raise ValueError("its header is damaged")
        self._begin = FRONT.size + length
        reader = Reader(header)
        about, fixed, mask, trees, model, sizes, checks = (reader.framed() for _ in range(7))
        planes = np.frombuffer(inflated(sizes), np.uint8).reshape(4, -1)
        found = planes.T.copy().view("<u4").ravel().astype(np.int64)
        told = json.loads(inflated(about))
        tree_reader = Reader(trees)
        kept = []
        while tree_reader.at < len(trees):
            kept.append(tree_reader.framed())
        self.parts = Parts(told, fixed, mask, kept, model, found)
        self._strip = np.concatenate([[0], np.cumsum(found)])
        self._edges = segments(found)
        self._checks = np.frombuffer(checks, "<u4")
        self.inside: list[Container] = []
        end = self._begin + self._edges[-1]
        for length in told.get("inside", ()):
            if nbytes is not None or length < 0:
                raise ValueError("there is a file within a file within it")
            self.inside.append(Container(source, begin + end, int(length)))
            end += int(length)
        if len(self._checks) != len(self._edges) - 1 or end != self.nbytes:
            raise ValueError(f"it has {self.nbytes} bytes, expected {end}")
        self._known: dict[int, bytes] = {}
        named = {"about": about, "mask": mask, "trees": trees, "model": model, "index": sizes + checks}
        self.section_bytes = {name: len(part) for name, part in named.items()} | {"coefficients": self._edges[-1]}
        for other in self.inside:
            for name in self.section_bytes:
                self.section_bytes[name] += other.section_bytes[name]
        self.section_bytes["rest"] = self.nbytes - sum(self.section_bytes.values())

    def _read(self, at: int, count: int) -> bytes:
        if at + count > self.nbytes:
            raise ValueError("it ends too soon")
        at += self._first
        if isinstance(self._source, bytes):
            found = self._source[at : at + count]
        else:
            with open(self._source, "rb") as file:
                file.seek(at)
                found = file.read(count)
        if len(found) < count:
            raise ValueError("it ends too soon")
        self._read_here += count
        return found

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, the header among them."""
        return self._read_here + sum(other.bytes_read for other in self.inside)

    def strips(self, which: Ints) -> tuple[bytes, Ints]:
        """The bytes of some strips one after the other, and how many each has. Only their segments are read."""
        edges = np.array(self._edges)
        a, b = self._strip[which], self._strip[which + 1]
        some = b > a
        wanted = np.unique(np.searchsorted(edges, a[some], side="right") - 1)
        missing = [int(i) for i in wanted if int(i) not in self._known]
        for run in np.split(np.array(missing, np.int64), np.flatnonzero(np.diff(missing) != 1) + 1) if missing else []:
            first, last = int(run[0]), int(run[-1])
            data = self._read(self._begin + self._edges[first], self._edges[last + 1] - self._edges[first])
            for i in range(first, last + 1):
                self._known[i] = self._checked(i, data, self._edges[first])
        out = []
        for begin, end in zip(a.tolist(), b.tolist()):
            if end > begin:
                i = int(np.searchsorted(edges, begin, side="right") - 1)
                out.append(self._known[i][begin - self._edges[i] : end - self._edges[i]])
        return b"".join(out), b - a

    def _checked(self, segment: int, data: bytes, begin: int) -> bytes:
        """A segment of coefficients that start at `begin`."""
        piece = data[self._edges[segment] - begin : self._edges[segment + 1] - begin]
        if zlib.crc32(piece) != self._checks[segment]:
            raise ValueError("its coefficients are damaged, or another file took its place after it was opened")
        return piece

    def whole(self) -> bytes:
        """All bytes, as they are on disk, if they are those that were written."""
        data = self._read(0, self.nbytes)
        header = data[FRONT.size : self._begin]
        if data[: FRONT.size] != self._front or zlib.crc32(header) != FRONT.unpack(self._front)[2]:
            raise ValueError("another file took its place after it was opened")
        for segment in range(len(self._checks)):
            self._checked(segment, data, -self._begin)
        for other in self.inside:
            other.whole()
        return data
