"""Names of places: which layer of which stack a module path means.

`encoder.layer.3.attention.self` is layer 3 of the stack `encoder.layer`, and `attention.self` within it. A stack is a
list of modules in which at least two are of the class of the one at hand; towers or steps of a pipeline that happen to
have numbers are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pyattnorg.capture.record import Place

# what families call attention over another sequence; `multihead_attn` is that of torch.nn.TransformerDecoderLayer
_CROSS = re.compile(r"cross|encoder_attn|encoder_attention|encdec|(^|\.)multihead_attn$", re.IGNORECASE)


class Places:
    """Finds a record's place from the modules that were running, outermost first."""

    def __init__(self, modules: Mapping[str, Any]) -> None:
        self._modules = modules
        self._known: dict[str, tuple[str, int, str] | None] = {}
        self._taken: dict[tuple[object, ...], set[int]] = {}  # layers so far, of a series, and of each shape in it

    def place(self, running: Iterable[str]) -> Place:
        """The place that this chain of running modules means.

        The outermost module with a layer number decides: a block shared by several layers has one path of its own.
        """
        chain = list(running)
        module = chain[-1]
        axis = next((a for a in map(self._axis, chain) if a is not None), None)
        cross = self._is_cross(module)
        if axis is None:
            return Place(module, None, module, None, cross)
        prefix, number, _ = axis
        own = self._axis(module)
        suffix = module if own is None else own[2]
        stacked = own is not None and self._stacks(module) > 1  # stages of blocks: no one number counts the layers
        suffix = re.sub(r"\d+", "*", suffix)
        stage = number if "*" in suffix else None
        return Place(module, prefix, suffix, None if stacked else number, cross, stage)

    def next_layer(self, place: Place, shape: tuple[int, int]) -> int:
        """The layer of the next record there, of (queries, keys).

        It is the path's number, or where maps of this shape had that one before (a shared module), the next one.
        """
        alike = (*place.series, *shape)
        taken = self._taken.setdefault(alike, set())
        if place.number is None:
            layer = max(self._taken.get(place.series, ()), default=-1) + 1
        else:
            layer = place.number if place.number not in taken else max(taken) + 1
        taken.add(layer)
        self._taken.setdefault(place.series, set()).add(layer)
        return layer

    def restart(self) -> None:
        """Start numbering again: another forward pass begins."""
        self._taken.clear()

    def _is_cross(self, module: str) -> bool:
        found = _CROSS.search(module)
        if not found or not found[0].endswith("multihead_attn"):
            return bool(found)
        parent = self._modules.get(module.rpartition(".")[0])
        return type(parent).__name__ == "TransformerDecoderLayer" or hasattr(parent, "self_attn")

    def _numbers(self, name: str) -> list[tuple[int, str, Any, bool]]:
        """Numbered steps of a path: where, the container's name, the container, whether it is a stack."""
        parts, out = name.split("."), []
        for i, part in enumerate(parts):
            if not part.isdigit():
                continue
            above = ".".join(parts[:i])
            container = self._modules.get(above)
            child = self._modules.get(".".join(parts[: i + 1]))
            alike = sum(type(c) is type(child) for c in container.children()) if container is not None else 0
            out.append((i, above, container, alike > 1))
        return out

    def _stacks(self, name: str) -> int:
        return sum(stack for *_, stack in self._numbers(name))

    def _axis(self, name: str) -> tuple[str, int, str] | None:
        if name not in self._known:
            steps, parts = self._numbers(name), name.split(".")
            stacks = [s for s in steps if s[3]] or [s for s in steps if type(s[2]).__name__ == "ModuleList"]
            if stacks:
                i, above, _, _ = stacks[0]
                self._known[name] = (above, int(parts[i]), ".".join(parts[i + 1 :]))
            else:
                self._known[name] = None
        return self._known[name]


__all__ = ["Places"]
