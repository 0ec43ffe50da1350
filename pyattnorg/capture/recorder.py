"""The recorder: sees every attention that a PyTorch model computes, and changes nothing.

A torch function mode sees the calls (softmax, scaled_dot_product_attention, multi_head_attention_forward), `forwards`
says whose they are. Whatever goes wrong in here is kept and raised after the forward, never inside it.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pyattnorg.capture.banded import Band, see_band
from pyattnorg.capture.compiled import as_written
from pyattnorg.capture.errors import CaptureError, UnsupportedAttentionError
from pyattnorg.capture.forwards import Forwards, Guard
from pyattnorg.capture.handmade import see_handmade
from pyattnorg.capture.keeping import Keeping
from pyattnorg.capture.layout import Batches, Layout, Scene, tensors_in
from pyattnorg.capture.maths import unseen
from pyattnorg.capture.measure import make_record
from pyattnorg.capture.memory import Budget
from pyattnorg.capture.mha import see_mha
from pyattnorg.capture.parameters import address, storages
from pyattnorg.capture.passes import Note, Pass
from pyattnorg.capture.positions import Positions
from pyattnorg.capture.products import NAMES as PRODUCTS
from pyattnorg.capture.products import factors, function_name
from pyattnorg.capture.qk import QueriesKeys
from pyattnorg.capture.reading import lie_of, watched
from pyattnorg.capture.record import BoolArray
from pyattnorg.capture.sdpa import see_sdpa
from pyattnorg.capture.select import Selection
from pyattnorg.capture.shelf import MemoryShelf, Shelf
from pyattnorg.capture.slots import Part, Slot, need
from pyattnorg.capture.softmax import see_product, see_softmax
from pyattnorg.capture.trails import Lie, Trails
from pyattnorg.capture.windows import locate
from pyattnorg.capture.writing import Writer

_SOFTMAX = {"softmax", "special_softmax", "_softmax"}
_QUIET = {"size", "dim", "shape", "device", "dtype", "ndim", "is_floating_point", "is_meta"}  # they give no tensors
_HIDDEN_KERNELS = ("flash", "efficient_attention", "cudnn_attention", "flex_attention", "_native_multi_head_attention")


class Recorder(TorchFunctionMode):  # type: ignore[misc]  # torch leaves it untyped
    """Records the attention of one model while it is entered; `passes` holds what was recorded."""

    is_recorder = True  # how `without_recorders` knows us
    shapes_only = False  # looks at shapes and at no numbers: see `survey`

    def __init__(
        self,
        model: nn.Module,
        selection: Selection,
        keeping: Keeping,
        example: int | None,
        max_bytes: int | None,
        writer: Writer | None = None,
    ) -> None:
        super().__init__()
        self.selection, self.keeping, self.example, self.max_bytes = selection, keeping, example, max_bytes
        self.writer = writer
        self.implementation = str(getattr(getattr(model, "config", None), "_attn_implementation", None) or "")
        self.trails = Trails()
        self.bands: dict[int, Band] = {}  # softmaxes of Longformer modules that are running
        self.positions: Positions | None = None
        self.may_restart = False  # whoever runs the model can run it again, if positions are wanted
        self.guard = Guard(self.trails.clear)
        self.forwards = Forwards(model, self.guard, self.trails.clear, shapes_only=self.shapes_only)
        self._cleanup = ExitStack()
        self._last: tuple[object, weakref.ref[Tensor], weakref.ref[Tensor]] | None = None

    @property
    def passes(self) -> list[Pass]:
        """One entry a forward of the model."""
        return self.forwards.passes

    @property
    def batches(self) -> Batches:
        """Batch sizes that the inputs of the running forward allow."""
        return self.forwards.batches

    @property
    def problem(self) -> Exception | None:
        """What went wrong first, if anything did."""
        return self.guard.problem

    def __enter__(self) -> Recorder:
        self._budget = Budget(self.max_bytes)
        with ExitStack() as stack:
            stack.callback(self.trails.clear)
            stack.enter_context(as_written())
            self.forwards.on_return = self._returned
            self._parameters = storages(self.forwards.open(stack))
            super().__enter__()
            self._cleanup = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            self._cleanup.close()

    # -- what is called -----------------------------------------------------------------------------------------------

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self.forwards.running or self.guard.problem is not None:
            return func(*args, **kwargs)
        name = function_name(func)
        if self.positions is not None:
            return self._with_positions(name, func, args, kwargs)
        return self._look(name, func, args, kwargs)

    def _with_positions(self, name: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        out = self._look(name, func, args, kwargs)
        if name == "__iter__":  # unpacking: what comes out has to be seen before it is given on
            out = list(out)
            self.guard(self._move, func, args, kwargs, out)
            return iter(out)
        self.guard(self._move, func, args, kwargs, out)
        return out

    def _move(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        x = next((t for t in tensors_in([out])), None)
        if self.positions is not None and x is not None:
            with unseen(x.device):
                self.positions.follow(func, args, kwargs, out)

    def _look(self, name: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if name == "scaled_dot_product_attention":
            return self._see(see_sdpa, func, args, kwargs)
        if func is F.multi_head_attention_forward:
            return self._see(see_mha, func, args, kwargs)
        if name in _SOFTMAX:
            return self._see(see_softmax, func, args, kwargs)
        if name in PRODUCTS:
            out = func(*args, **kwargs)
            self.guard(self._product, name, args, kwargs, out)
            return out
        if any(kernel in name for kernel in _HIDDEN_KERNELS) and not name.startswith("can_use"):
            self.guard(self._refuse_kernel, name)
        if not self.trails or name in _QUIET:
            return func(*args, **kwargs)
        followed = self.trails.first(args, kwargs)
        out = func(*args, **kwargs)
        if followed is not None:
            self.guard(self._follow, func, args, kwargs, out, *followed)
        return out

    def _see(self, see: Callable[..., None], func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        out = func(*args, **kwargs)
        scene = self.forwards.scene()
        if scene is not None:
            self.guard(watched, self, see, scene, args, kwargs, out)
        return out

    def _product(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        found = factors(name, args, kwargs)
        if found is None:
            return
        for x in (found.left, found.right):
            trail = self.trails.get(x)
            candidate = None if trail is None or trail.stage != "weights" else trail.candidate
            if candidate is not None and watched(self, see_product, candidate.scene, found, x, trail):
                return
        with unseen(found.left.device):
            self.trails.born(found, out, self._is_parameter, lie_of(self.positions, found))

    def _follow(self, func: Any, args: Any, kwargs: Any, out: Any, x: Tensor, trail: Any) -> None:
        with unseen(x.device):
            if not see_handmade(self, func, out, x, trail, args, kwargs):
                self.trails.follow(func, args, kwargs, out, x, trail)

    def _refuse_kernel(self, name: str) -> None:
        scene = self.forwards.scene()
        if scene is not None:
            raise UnsupportedAttentionError(
                f"{scene.name}: calls the kernel {name} directly, whose scores cannot be seen; use "
                "scaled_dot_product_attention or plain attention (attn_implementation='sdpa' or 'eager')"
            )

    def _returned(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        if self.bands:
            see_band(self, module, args, kwargs)

    def _is_parameter(self, x: Tensor) -> bool:
        return isinstance(x, nn.Parameter) or address(x) in self._parameters

    # -- what is kept -------------------------------------------------------------------------------------------------

    def example_of(self, layout: Layout) -> int:
        """The example to keep of a batch."""
        if self.example is None:
            if layout.batch > 1:
                raise CaptureError(
                    f"inputs: got a batch of {layout.batch} examples, expected one; "
                    f"pick it with example=0 to {layout.batch - 1}"
                )
            return 0
        if not -layout.batch <= self.example < layout.batch:
            raise CaptureError(f"example: got {self.example}, the batch has {layout.batch} example(s), counted from 0")
        return self.example % layout.batch

    def budget_allows(self, layout: Layout, queries: int, keys: int) -> None:
        """Raise if one layer's maps alone are too large to copy."""
        self._budget.check(0, 0, (layout.rows, queries, keys), layout.rows * queries * keys * 8)

    def follow_positions(self) -> None:
        """Follow where tokens lie, from the next forward on."""
        self.positions = Positions()
        self.forwards.on_call = self.positions.start

    def again(self, model: nn.Module) -> Recorder:
        """A new recorder like this one, that follows where tokens lie."""
        if self.writer is not None:
            self.writer.restart()
        new = Recorder(model, self.selection, self.keeping, self.example, self.max_bytes, self.writer)
        new.follow_positions()
        return new

    def clear(self) -> None:
        """Forget what was recorded."""
        self.passes.clear()
        self._budget.taken = 0

    def open(
        self,
        scene: Scene,
        backend: str,
        layout: Layout,
        queries: int,
        keys: int,
        key_heads: int | None,
        started: float | None = None,
        sizes: tuple[int, int] | None = None,
        lie: Lie = (None, None),
    ) -> Slot | None:
        """Number the layer and let it in; None if it was not asked for, or is on disk.

        `sizes` are the width of queries and keys and the heads with a bias of their own, where these are known.
        """
        started = time.perf_counter() if started is None else started
        current = self.passes[-1]
        call, common = self.forwards.call_of(scene, queries)
        layer, first = current.continues(call)
        chunk = queries < keys and (layout.heads > 1 or scene.head_count() == 1)
        if layer is None:  # a module that is called again for other tokens gives no further heads
            layer, chunk = (again, True) if (again := current.continues(common)[0]) is not None else (None, chunk)
        if layer is None:
            layer = self.forwards.places.next_layer(scene.place, (queries, keys))
        for key in (common, call):
            current.note_call(key, layer, 0 if chunk else first + layout.heads)
        first = 0 if chunk else first
        current.seen.add(layer)
        heads = self.selection.among(layer, first + layout.heads)
        heads = heads[heads >= first] - first
        if not len(heads):
            return None
        cut, shape = self.keeping.cut, (len(heads) * max(layout.windows, 1), queries, keys)
        key_heads, example = scene.key_head_count(layout.heads, key_heads), self.example_of(layout)
        tokens = None if layout.windowed is None else locate(layout.windowed, *lie, example)
        slot = Slot(
            scene, backend, layout, layer, example, heads, key_heads, started, cut.rows(queries), cut.columns(keys),
            shape, self.keeping, tokens, common, first,
        )  # fmt: skip
        return slot if self.admit(slot, sizes) else None

    def admit(self, slot: Slot, sizes: tuple[int, int] | None) -> bool:
        """Whether the slot's maps are to be computed: they may be on disk already; raise if they cannot fit."""
        if self.writer is not None:
            record = self.writer.stored(len(self.passes[-1].records), slot)
            if record is not None:
                self.passes[-1].records.append(record)
            return record is None
        alike = self.forwards.count_like(slot.scene.module)
        more = sum(self.selection.layer(n) for n in range(slot.layer + 1, max(alike, slot.layer + 1)))
        self._budget.admit(slot.layer, more, slot.kept_shape, need(slot, sizes))
        return True

    def had(self, scene: Scene, queries: int, q: Tensor, k: Tensor) -> bool:
        """Whether the same call has given this very map before, for other values (DiffLlama halves them)."""
        call, _ = self.forwards.call_of(scene, queries)
        before, self._last = self._last, (call, weakref.ref(q), weakref.ref(k))
        return before is not None and call is not None and before[0] == call and before[1]() is q and before[2]() is k

    def keep(
        self,
        slot: Slot,
        parts: Iterable[Part],
        *,
        mask: str,
        dtype: torch.dtype,
        raw: bool,
        precision: torch.dtype | None = None,
        dropout: float = 0.0,
        padding: BoolArray | None = None,
        qk: QueriesKeys | None = None,
        note: str = "",
    ) -> None:
        """Check a layer's maps, and keep them."""
        records = self.passes[-1].records
        shelf: Shelf
        if self.writer is None:
            shelf = MemoryShelf(slot.kept_shape, self.keeping.dtype)
        else:
            shelf = self.writer.shelf(len(records), slot, self.keeping)
        record = make_record(
            slot, parts, shelf, mask=mask, dtype=dtype, precision=precision or dtype, raw=raw, dropout=dropout,
            padding=padding, qk=qk, note=note,
        )  # fmt: skip
        record.row["seconds"] = time.perf_counter() - slot.started
        if self.writer is not None:
            record = self.writer.write(len(records), record)
        records.append(record)

    def explain_nothing(self, one: Pass) -> str:
        """Why there is no attention, for an error."""
        seen = one.not_taken()
        return (
            f"model: no attention was seen in {one.model}; looked for scaled_dot_product_attention, torch.nn's "
            "multi_head_attention_forward, and softmax between a product of queries and keys and one with values"
            + (f"; seen: {seen}" if seen else "")
            + (f"; it uses attn_implementation={self.implementation!r}, try 'sdpa' or 'eager'" if self._odd() else "")
        )

    def _odd(self) -> bool:
        return self.implementation not in ("", "sdpa", "eager")

    def note(self, scene: Scene, shape: Any, reason: str) -> Note:
        """Remember a softmax that is not, or not yet, taken for attention."""
        kind = type(scene.module).__name__.lower()
        note = Note(
            scene.name,
            tuple(int(n) for n in shape),
            reason,
            len(shape) >= 4 and ("attn" in kind or "attention" in kind),
        )
        if self.passes:
            self.passes[-1].add_note(note)
        return note


__all__ = ["Recorder"]
