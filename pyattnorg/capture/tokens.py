"""Names of queries and keys, and which of them are padding."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.capture.groups import side, tower
from pyattnorg.capture.passes import Inputs
from pyattnorg.capture.record import Record
from pyattnorg.capture.scatter import grid_of

BoolArray = NDArray[np.bool_]
_PATCH = re.compile(r"r\d+c\d+")
_MOST_PREFIX_TOKENS = 16  # class token and registers before an image's patches


@dataclass(frozen=True)
class Patches:
    """What a vision model says of its tokens: patch size and registers, None where it says nothing."""

    size: tuple[int, int] | None = None
    registers: int = 0
    prefix: int | None = None

    @classmethod
    def of(cls, model: Any) -> Patches:
        """Read a transformers or timm model."""
        config = getattr(model, "config", None)
        embed = getattr(model, "patch_embed", None)
        size = getattr(embed, "patch_size", None)
        size = getattr(config, "patch_size", None) if size is None else size
        prefix = getattr(model, "num_prefix_tokens", None)
        registers = getattr(config, "num_register_tokens", None) or getattr(model, "num_reg_tokens", 0)
        return cls(
            (size, size) if isinstance(size, int) else _pair(size),
            registers if isinstance(registers, int) else 0,
            prefix if isinstance(prefix, int) else None,
        )

    def names(self, n: int, image: tuple[int, int] | None) -> list[str] | None:
        """Names of `n` tokens of an image: ``cls``, ``reg1``, …, ``r0c0``; None where they cannot be told."""
        if self.size is None or image is None:
            return None
        rows, columns = image[0] // self.size[0], image[1] // self.size[1]
        prefix = n - rows * columns
        if not 0 <= prefix <= _MOST_PREFIX_TOKENS or (self.prefix is not None and self.prefix != prefix):
            return None
        if prefix == self.registers + 1:
            first = ["cls", *(f"reg{i + 1}" for i in range(self.registers))]
        elif prefix <= 1 or self.prefix == prefix:
            first = ["cls"] if prefix == 1 else [f"prefix{i + 1}" for i in range(prefix)]
        else:
            return None  # tokens that are no patches, and nothing says that they come first (YOLOS has some last)
        return first + [f"r{r}c{c}" for r in range(rows) for c in range(columns)]

    def of_stage(self, n: int, other: int, image: tuple[int, int] | None) -> list[str] | None:
        """Names of `n` tokens of a coarser or finer grid of the image, where both axes of a map are such grids."""
        prefix = self.prefix or 0
        grid, beside = (grid_of(m - prefix, image) if m > 1 else None for m in (n, other))
        if grid is None or beside is None or image is None or image[0] % grid[0]:
            return None
        first = ["cls"] if prefix == 1 else [f"prefix{i + 1}" for i in range(prefix)]
        return first + [f"r{r}c{c}" for r in range(grid[0]) for c in range(grid[1])]


def given_names(tokens: Any) -> tuple[str, ...] | None:
    """The names of tokens that a caller gave."""
    if isinstance(tokens, (str, bytes)):
        raise TypeError(f"tokens: got the text {tokens!r}, expected a list with a name a token")
    return None if tokens is None else tuple(str(t) for t in tokens)


def _pair(size: Any) -> tuple[int, int] | None:
    if isinstance(size, (list, tuple)) and len(size) == 2 and all(isinstance(s, int) for s in size):
        return size[0], size[1]
    return None


@dataclass(frozen=True)
class Vocabulary:
    """What a tokenizer calls the tokens of one input: all of it that a store needs to keep."""

    ids: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, tokenizer: Any, inputs: Inputs) -> Vocabulary:
        """The names of all tokens in the inputs."""
        ids = sorted({int(i) for array in inputs.ids.values() for i in array.reshape(-1)})
        return cls(tuple(ids), tuple(str(t) for t in tokenizer.convert_ids_to_tokens(ids)))

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        """As a tokenizer does."""
        known = dict(zip(self.ids, self.names, strict=True))
        return [known[i] for i in ids]


@dataclass(frozen=True)
class Naming:
    """Everything that can name tokens, for one example of one forward pass."""

    inputs: Inputs
    example: int = 0
    tokens: tuple[str, ...] | None = None
    tokenizer: Any = None
    patches: Patches = field(default_factory=Patches)
    special_ids: frozenset[int] = frozenset()

    def special(
        self, records: Sequence[Record], queries: Any, keys: Any, keep_q: BoolArray | None, keep_k: BoolArray | None
    ) -> dict[str, list[int]] | None:
        """Positions of special tokens on both axes; None where nothing says which are."""
        found = []
        for names, keep, on_keys in ((queries, keep_q, False), (keys, keep_k, True)):
            source = self._source(records[0], on_keys)
            ids = self.inputs.ids.get(source) if source is not None else None
            n = records[0].shape[2 if on_keys else 1]
            if ids is not None and ids.shape[1] == n and self.special_ids:
                row = ids[self.example]
                row = row if keep is None else row[keep]
                found.append([i for i, t in enumerate(row.tolist()) if t in self.special_ids])
            elif ids is None and names is not None and self.tokens is None:
                found.append([i for i, name in enumerate(names) if not _PATCH.fullmatch(name)])
            else:
                return None
        return {"queries": found[0], "keys": found[1]}

    def axis(self, records: Sequence[Record], *, keys: bool) -> tuple[BoolArray | None, list[str] | None]:
        """(tokens to keep, their names) of the queries or keys of a group; None keeps all, or names none."""
        n = records[0].shape[2 if keys else 1]
        source = self._source(records[0], keys)
        real = None
        if source is not None:
            real = self.inputs.padding_of(
                "decoder_attention_mask" if source.startswith("decoder") else "attention_mask", self.example
            )
        if real is None or len(real) != n:
            real = _common_padding(records, n, keys)
        other, windowed = records[0].shape[1 if keys else 2], records[0].windows > 0
        names = self._names(n, int(real.sum()) if real is not None else n, source, other, windowed)
        if names is not None and real is not None and len(names) == n:
            names = [name for name, keep in zip(names, real, strict=True) if keep]
        return real, names

    def _source(self, record: Record, keys: bool) -> str | None:
        """Which token ids an axis of this record follows; None for images and sound."""
        path = record.place.module
        if tower(path) in ("vision", "audio"):
            return None
        two = "decoder_input_ids" in self.inputs.ids or "decoder_attention_mask" in self.inputs.real
        decoding = two and side(path) == "decoder" and not (keys and record.place.cross)
        return "decoder_input_ids" if decoding else "input_ids"

    def _names(
        self, n: int, n_real: int, source: str | None, other: int = 0, windowed: bool = False
    ) -> list[str] | None:
        if self.tokens is not None and len(self.tokens) in (n, n_real):
            return list(self.tokens)
        ids = self.inputs.ids.get(source) if source is not None else None
        if (
            ids is not None
            and ids.shape[1] == n
            and self.tokenizer is not None
            and -len(ids) <= self.example < len(ids)
        ):
            return [str(t) for t in self.tokenizer.convert_ids_to_tokens(ids[self.example].tolist())]
        if ids is not None or windowed:
            return None
        return self.patches.names(n, self.inputs.image) or self.patches.of_stage(n, other, self.inputs.image)


def _common_padding(records: Sequence[Record], n: int, keys: bool) -> BoolArray | None:
    """Padding that every call of the group was told of."""
    pads = [r.padding for r in records]
    first = pads[0]
    if first is None or len(first) != n or first.all() or not first.any():
        return None
    return ~first if all(p is not None and np.array_equal(p, first) for p in pads) else None


__all__ = ["Naming", "Patches", "Vocabulary"]
