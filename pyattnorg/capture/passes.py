"""What one forward pass left: records, notes of what was not attention, and what its inputs say of tokens."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.capture.arena import Arena
from pyattnorg.capture.record import Record

_IDS = ("input_ids", "decoder_input_ids")
# the inputs' names for padding; True where a token is real
_KEEP = {
    "attention_mask": False,
    "decoder_attention_mask": False,
    "src_key_padding_mask": True,
    "key_padding_mask": True,
}


@dataclass
class Note:
    """A softmax that was seen; `taken` once it turned out to be attention."""

    module: str
    shape: tuple[int, ...]
    reason: str
    like_attention: bool = False  # its shape and its module's name look like attention
    taken: bool = False


@dataclass
class Inputs:
    """Of the model's inputs, what later names tokens and removes padding. Small NumPy arrays, no tensors."""

    ids: dict[str, NDArray[np.int64]] = field(default_factory=dict)  # (batch, tokens)
    real: dict[str, NDArray[np.bool_]] = field(default_factory=dict)  # (batch, tokens), False at padding
    image: tuple[int, int] | None = None  # height, width

    def read(self, module: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Read what a forward was given, by the names of its arguments."""
        for name, value in by_name(module, args, kwargs).items():
            if getattr(value, "ndim", 0) == 4 and bool(value.is_floating_point()):
                self.image = (int(value.shape[-2]), int(value.shape[-1]))
            if getattr(value, "ndim", 0) != 2:
                continue
            if name in _IDS:
                self.ids[name] = value.detach().cpu().numpy().astype(np.int64)
            elif name in _KEEP and not (value.is_floating_point() and bool((value < 0).any())):
                real = value.detach().cpu().numpy() != 0
                self.real[name] = ~real if _KEEP[name] else real

    def padding_of(self, name: str, example: int) -> NDArray[np.bool_] | None:
        """Real tokens of an example by this mask; None without the mask or where all are real."""
        mask = self.real.get(name)
        if mask is None or not -len(mask) <= example < len(mask):
            return None
        row = mask[example]
        return None if row.all() or not row.any() else row


def by_name(module: Any, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a module's forward, by name."""
    names = _parameters(module.forward) if args else ()
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _parameters(forward: Any) -> tuple[str, ...]:
    """Names of a forward's parameters; those of a method are read once, since reading takes long."""
    function = getattr(forward, "__func__", None)
    found = None if function is None else _known.get(function)
    if found is None:
        try:
            found = tuple(inspect.signature(forward).parameters)
        except (TypeError, ValueError):
            found = ()
        if function is not None:
            _known[function] = found
    return found


_known: weakref.WeakKeyDictionary[Any, tuple[str, ...]] = weakref.WeakKeyDictionary()


@dataclass
class Pass:
    """One forward of the model."""

    model: str
    records: list[Record] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)  # layers, whether they were kept or not
    inputs: Inputs = field(default_factory=Inputs)
    complete: bool = False
    arena: Arena = field(default_factory=Arena, repr=False)  # where its maps lie
    left_out: list[str] = field(default_factory=list)  # attention over channels, say
    calls: dict[object, tuple[int, int]] = field(default_factory=dict)  # of those that gave maps: layer, heads so far

    def continues(self, call: object) -> tuple[int | None, int]:
        """Layer and heads so far of a call that gave maps before."""
        return (None, 0) if call is None else self.calls.get(call, (None, 0))

    def note_call(self, call: object, layer: int, heads: int) -> None:
        """Remember that a call gave maps."""
        if call is not None:
            self.calls[call] = layer, heads

    def add_note(self, note: Note) -> None:
        """Keep a note; of many alike the first few."""
        if sum(n.module == note.module for n in self.notes) < 4:
            self.notes.append(note)

    def lost(self) -> Note | None:
        """A softmax that looks like attention and was not taken, so that the capture would lack it."""
        return next((n for n in self.notes if n.like_attention and not n.taken), None)

    def not_taken(self) -> str:
        """What was seen and not taken, for an error."""
        left = [n for n in self.notes if not n.taken]
        said = [f"softmax of shape {n.shape} in {n.module}: {n.reason}" for n in left[:3]]
        return "; ".join(said) + (f"; and {len(left) - 3} more" if len(left) > 3 else "")


__all__ = ["Inputs", "Note", "Pass", "by_name"]
