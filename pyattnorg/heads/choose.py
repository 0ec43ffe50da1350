"""Which heads are meant: labels, numbers by layer, tables of heads; and finding them while a model runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pyattnorg.head_table import Heads

if TYPE_CHECKING:
    from pyattnorg.capture.record import Place

HeadsMeant: TypeAlias = "str | Iterable[str] | Mapping[int, int | Iterable[int]] | Heads"

_LABEL = re.compile(r"(?:(?P<group>.+)\.)?L(?P<layer>\d+)(?P<window>W\d+)?H(?P<head>\d+|\*)")


@dataclass(frozen=True)
class Named:
    """One head (every head of a layer where `head` is None), as the user named it.

    `module` is known where the name came from a table of heads, `group` where the label says it.
    """

    label: str
    layer: int
    head: int | None
    group: str | None = None
    module: str | None = None


@dataclass
class Choice:
    """Heads that were chosen, looked for as calls of attention come by."""

    named: tuple[Named, ...]
    _where: dict[str, set[str]] = field(default_factory=dict)  # label -> module paths
    _seen: dict[str, set[tuple[int, int]]] = field(default_factory=dict)  # part of the model -> layers, their heads

    def among(self, place: Place, layer: int, first: int, heads: int) -> list[int]:
        """The chosen ones of `heads` heads that a call gives, the first of which is number `first` of its layer.

        Raises
        ------
        ValueError
            A label means heads of several modules.
        """
        from pyattnorg.capture.groups import base_name

        base = base_name(place)
        names = {f"{base}.cross", "cross"} if place.cross else {base}
        self._seen.setdefault(f"{base}.cross" if place.cross else base, set()).add((layer, first + heads))
        found = set()
        for one in self.named:
            if one.layer != layer or not (one.head is None or first <= one.head < first + heads):
                continue
            if one.module is not None and one.module != place.module:
                continue
            if one.module is None and one.group is not None and one.group not in names:
                continue
            where = self._where.setdefault(one.label, set())
            where.add(place.module)
            if len(where) > 1:
                raise ValueError(
                    f"heads: {one.label!r} is a head of several parts of the model ({', '.join(sorted(where))}); "
                    "say the part, as a capture's labels do (encoder.L0H1), and pass inputs= so that these are known"
                )
            found |= set(range(heads)) if one.head is None else {one.head - first}
        return sorted(found)

    def require_all(self) -> None:
        """Raise if a head was never met, of a model that has run.

        Raises
        ------
        ValueError
            The message says which heads there were.
        """
        lost = self.lost()
        if lost:
            raise ValueError(
                f"heads: {', '.join(map(repr, lost[:4]))} did not occur in what the model ran; {self.told()}"
            )

    def lost(self) -> list[str]:
        """Labels of heads that were not met."""
        return [one.label for one in self.named if one.label not in self._where]

    def told(self) -> str:
        """Which heads came by."""
        there = [
            f"{name} has layers {min(n for n, _ in found)} to {max(n for n, _ in found)} of up to "
            f"{max(h for _, h in found)} heads"
            for name, found in sorted(self._seen.items())
        ]
        return "; ".join(there) or "no attention was seen in it"


def choose(heads: HeadsMeant, table: Heads | None = None) -> Choice:
    """The heads that are meant.

    Parameters
    ----------
    heads : str, sequence of str, mapping of layers to heads, or Heads
        Labels such as ``L3H5``, ``encoder.L0H2``, ``L3H*`` (all heads of a layer); ``{3: [5, 6]}``; rows of a table of
        heads, which name their modules.
    table : Heads, optional
        All heads of the model, as a capture labels them. Then labels are looked up there.

    Raises
    ------
    ValueError, TypeError
        No heads, a label that is none or that the table does not have, a window of a head.
    """
    if isinstance(heads, Heads):
        rows = zip(heads.labels, heads.layer.tolist(), heads.head.tolist(), heads.group, heads.module, strict=True)
        named = [Named(label, layer, head, group, module or None) for label, layer, head, group, module in rows]
        named = list({(n.module, n.layer, n.head): n for n in named}.values())  # every window of a head is the head
    else:
        named = [_read(label) for label in _labels(heads)]
        if table is not None:
            named = [found for one in named for found in _look_up(one, table)]
    if not named:
        raise ValueError("heads: got none, expected at least one, such as 'L3H5'")
    return Choice(tuple(dict.fromkeys(named)))


def _labels(heads: Any) -> Sequence[str]:
    if isinstance(heads, str):
        return [part for part in re.split(r"[,\s]+", heads) if part]
    if isinstance(heads, Mapping):
        out = []
        for layer, numbers in heads.items():
            if not hasattr(layer, "__index__"):
                raise TypeError(f"heads: got the layer {layer!r}, expected a whole number, as in {{3: [5, 6]}}")
            several = [numbers] if hasattr(numbers, "__index__") else list(numbers)
            out += [f"L{int(layer)}H{int(n)}" for n in several]
        return out
    if not isinstance(heads, Iterable):
        raise TypeError(f"heads: got {type(heads).__name__}, expected labels such as ['L3H5', 'L3H6'] or {{3: [5, 6]}}")
    found = list(heads)
    wrong = next((label for label in found if not isinstance(label, str)), None)
    if wrong is not None:
        raise TypeError(
            f"heads: got {wrong!r}, expected labels such as 'L3H5'; numbers go by layer, as in {{3: [5, 6]}}"
        )
    return found


def _read(label: str) -> Named:
    match = _LABEL.fullmatch(label.strip())
    if match is None:
        raise ValueError(f"heads: got {label!r}, expected a label such as 'L3H5', 'encoder.L3H5' or 'L3H*'")
    if match["window"]:
        whole = label.replace(match["window"], "")
        raise ValueError(f"heads: got {label!r}, a head in one window; a head is the same in all of them: {whole!r}")
    head = None if match["head"] == "*" else int(match["head"])
    return Named(label.strip(), int(match["layer"]), head, match["group"])


def _look_up(one: Named, table: Heads) -> list[Named]:
    groups = sorted(set(table.group))
    if one.group is None and len(groups) > 1:
        raise ValueError(
            f"heads: got {one.label!r} for a model with parts {groups}; say the part, such as '{groups[0]}.{one.label}'"
        )
    rows = zip(table.layer.tolist(), table.head.tolist(), table.group, table.module, strict=True)
    found = {
        (layer, head, module)
        for layer, head, group, module in rows
        if layer == one.layer and one.head in (None, head) and one.group in (None, group)
    }
    if not found:
        raise ValueError(
            f"heads: there is no {one.label!r}; the model has {len(table)} heads, such as {table.labels[0]}"
        )
    return [Named(one.label, layer, head, one.group, module) for layer, head, module in sorted(found)]


__all__ = ["Choice", "HeadsMeant", "Named", "choose"]
