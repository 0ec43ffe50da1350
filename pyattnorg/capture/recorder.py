"""The recorder: sees every attention that a PyTorch model computes, and changes nothing.

A torch function mode sees the calls (softmax, scaled_dot_product_attention, multi_head_attention_forward), `forwards`
says whose they are. Whatever goes wrong in here is kept and raised after the forward, never inside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pyattnorg.capture.compiled import as_written
from pyattnorg.capture.errors import CaptureError, UnsupportedAttentionError
from pyattnorg.capture.forwards import Forwards, Guard
from pyattnorg.capture.keeping import Keeping
from pyattnorg.capture.layout import Batches, Layout, Scene
from pyattnorg.capture.maths import unseen
from pyattnorg.capture.measure import make_record
from pyattnorg.capture.memory import Budget
from pyattnorg.capture.mha import see_mha
from pyattnorg.capture.parameters import address, storages
from pyattnorg.capture.passes import Note, Pass
from pyattnorg.capture.products import NAMES as PRODUCTS
from pyattnorg.capture.products import factors
from pyattnorg.capture.qk import QueriesKeys
from pyattnorg.capture.record import BoolArray
from pyattnorg.capture.sdpa import see_sdpa
from pyattnorg.capture.select import Selection
from pyattnorg.capture.shelf import MemoryShelf, Shelf
from pyattnorg.capture.slots import Part, Slot, need
from pyattnorg.capture.softmax import see_product, see_softmax
from pyattnorg.capture.trails import Trails, function_name
from pyattnorg.capture.writing import Writer

_SOFTMAX = {"softmax", "special_softmax", "_softmax"}
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
        self.guard = Guard(self.trails.clear)
        self.forwards = Forwards(model, self.guard, self.trails.clear, shapes_only=self.shapes_only)
        self._cleanup = ExitStack()

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
        if not self.trails:
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
            self.guard(see, self, scene, args, kwargs, out)
        return out

    def _product(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        found = factors(name, args, kwargs)
        if found is None:
            return
        for x in (found.left, found.right):
            trail = self.trails.get(x)
            if trail is not None and trail.stage == "weights" and see_product(self, found, x, trail):
                return
        with unseen(found.left.device):
            self.trails.born(found, out, self._is_parameter)

    def _follow(self, func: Any, args: Any, kwargs: Any, out: Any, x: Tensor, trail: Any) -> None:
        with unseen(x.device):
            self.trails.follow(func, args, kwargs, out, x, trail)

    def _refuse_kernel(self, name: str) -> None:
        scene = self.forwards.scene()
        if scene is not None:
            raise UnsupportedAttentionError(
                f"{scene.name}: calls the kernel {name} directly, whose scores cannot be seen; use "
                "scaled_dot_product_attention or plain attention (attn_implementation='sdpa' or 'eager')"
            )

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
        self._budget.check(0, 0, (layout.heads, queries, keys), layout.heads * queries * keys * 8)

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
    ) -> Slot | None:
        """Number the layer and let it in; None if it was not asked for, or is on disk.

        `sizes` are the width of queries and keys and the heads with a bias of their own, where these are known.
        """
        started = time.perf_counter() if started is None else started
        if self.forwards.is_one_of_several(scene, queries):
            raise UnsupportedAttentionError(
                f"{scene.name}: gives several maps in one call (queries in chunks, one head at a time, or two maps); "
                "this is not supported in this version"
            )
        layer = self.forwards.places.next_layer(scene.place, (queries, keys))
        current = self.passes[-1]
        current.seen.add(layer)
        heads = self.selection.among(layer, layout.heads)
        if not len(heads):
            return None
        cut, shape = self.keeping.cut, (len(heads), queries, keys)
        key_heads = scene.key_head_count(layout.heads, key_heads)
        slot = Slot(
            scene, backend, layout, layer, self.example_of(layout), heads, key_heads, started, cut.rows(queries),
            cut.columns(keys), shape, self.keeping,
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
            padding=padding, qk=qk,
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
