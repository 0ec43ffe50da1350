"""Which head is which: the table of heads of a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Heads:
    """The table of heads, layer-major: one entry a head in every column.

    `layer` and `head` count from 0 in the model's own numbering, `kv_group` says which heads share keys (the head
    itself where none do), `group` names the part of the model (``""`` where there is one), `module` its module path,
    `window` the window that the head looks at in this matrix, -1 where it looks at all tokens.
    """

    layer: NDArray[np.int64]
    head: NDArray[np.int64]
    kv_group: NDArray[np.int64]
    group: tuple[str, ...]
    module: tuple[str, ...]
    window: NDArray[np.int64]

    COLUMNS = ("layer", "head", "kv_group", "group", "module", "window")

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[Any]] | Heads | None, n: int) -> Heads:
        """A table of `n` heads from columns; without any, head ``i`` of layer 0."""
        if isinstance(columns, Heads):
            columns = columns.to_dict()
        columns = {} if columns is None else dict(columns)
        unknown = sorted(set(columns) - set(cls.COLUMNS))
        if unknown:
            raise ValueError(f"heads: unknown column(s) {unknown}, expected some of {list(cls.COLUMNS)}")
        for name, column in columns.items():
            if len(column) != n:
                raise ValueError(f"heads: column {name!r} has {len(column)} entries, the tensor has {n} heads")

        def whole(name: str, default: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.asarray(columns.get(name, default)).astype(np.int64).reshape(n)

        head = whole("head", np.arange(n))
        table = cls(
            layer=whole("layer", np.zeros(n, np.int64)),
            head=head,
            kv_group=whole("kv_group", head),
            group=tuple(str(g) for g in columns.get("group", [""] * n)),
            module=tuple(str(m) for m in columns.get("module", [""] * n)),
            window=whole("window", np.full(n, -1, np.int64)),
        )
        twice = [label for label, count in Counter(table.labels).items() if count > 1]
        if twice:
            raise ValueError(f"heads: {twice[0]} occurs more than once; layer, head and group must name one head")
        return table

    def __len__(self) -> int:
        return len(self.layer)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """``L5H3``, ``L5W2H3`` within a window, with the group before it (``encoder.L5H3``) where there are several."""
        several = len(set(self.group)) > 1
        return tuple(
            f"{group + '.' if several and group else ''}L{layer}{f'W{window}' if window >= 0 else ''}H{head}"
            for layer, head, group, window in zip(self.layer, self.head, self.group, self.window)
        )

    def take(self, indices: Sequence[int] | NDArray[Any]) -> Heads:
        """The heads at `indices`, in that order."""
        at = np.asarray(indices, dtype=np.int64).reshape(-1)
        return Heads(
            self.layer[at],
            self.head[at],
            self.kv_group[at],
            tuple(self.group[i] for i in at),
            tuple(self.module[i] for i in at),
            self.window[at],
        )

    def to_dict(self) -> dict[str, list[Any]]:
        return {name: list(np.asarray(getattr(self, name)).tolist()) for name in self.COLUMNS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Heads) and self.to_dict() == other.to_dict()
