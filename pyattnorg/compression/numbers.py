"""Whole numbers as bytes, small ones as few, and reading them back with an end that is watched."""

from __future__ import annotations

import zlib

MOST = 1 << 26  # bytes that names, or sizes of strips, may have: forged ones would take memory without end
LONGEST = 7 * 12  # bits: no number needs as many, and without end they would take time without end


def varint(value: int) -> bytes:
    """A number that is not negative, seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 127:
        out.append(128 | value & 127)
        value >>= 7
    out.append(value)
    return bytes(out)


def framed(parts: list[bytes]) -> bytes:
    """Byte strings one after the other, each behind its length."""
    return b"".join(varint(len(part)) + part for part in parts)


def inflated(data: bytes, most: int = MOST) -> bytes:
    """What zlib made `data` of, if that is no more than `most` bytes."""
    stream = zlib.decompressobj()
    out = stream.decompress(data, most)
    if stream.unconsumed_tail or not stream.eof:
        raise ValueError("a part of it is longer than it can be, or ends too soon")
    return out


class Reader:
    """Reads what `varint` and `framed` wrote; ValueError at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if self.at + count > len(self.data):
            raise ValueError("it ends too soon")
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self) -> int:
        """The next number."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if shift > LONGEST:
                raise ValueError("a number in it is damaged")
            if byte < 128:
                return value
            shift += 7

    def framed(self) -> bytes:
        """The next byte string."""
        return self.take(self.varint())
