"""The recorder: sees every attention that a PyTorch model computes, and changes nothing.

A torch function mode sees the calls (softmax, scaled_dot_product_attention, multi_head_attention_forward), `forwards`
says whose they are. Whatever goes wrong in here is kept and raised after the forward, never inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pyattnorg.capture.banded import Band, see_band
from pyattnorg.capture.compiled import as_written
from pyattnorg.capture.errors import UnsupportedAttentionError
from pyattnorg.capture.fastpath import modes
from pyattnorg.capture.forwards import Forwards, Guard
from pyattnorg.capture.handmade import see_handmade
from pyattnorg.capture.intake import Intake
from pyattnorg.capture.keeping import Keeping
from pyattnorg.capture.layout import Batches, Layout, Scene, tensors_in
from pyattnorg.capture.maths import unseen
from pyattnorg.capture.mha import see_mha
from pyattnorg.capture.parameters import address, storages
from pyattnorg.capture.passes import Note, Pass
from pyattnorg.capture.positions import Positions
from pyattnorg.capture.products import NAMES as PRODUCTS
from pyattnorg.capture.products import factors, function_name
from pyattnorg.capture.reading import lie_of, watched
from pyattnorg.capture.sdpa import see_sdpa
from pyattnorg.capture.select import Selection
from pyattnorg.capture.softmax import see_product, see_softmax
from pyattnorg.capture.trails import Trails
from pyattnorg.capture.writing import Writer

_SOFTMAX = {"softmax", "special_softmax", "_softmax"}
_QUIET = {"size", "dim", "shape", "device", "dtype", "ndim", "is_floating_point", "is_meta"}  # they give no tensors
_HIDDEN_KERNELS = ("flash", "efficient_attention", "cudnn_attention", "flex_attention", "_native_multi_head_attention")


class Recorder(TorchFunctionMode):  # type: ignore[misc]  # torch leaves it untyped
    """Records the attention of one model while it is entered; `passes` holds what was recorded."""

    is_recorder = True  # how `without_recorders` knows us
    guard_class: Callable[[Callable[[], None]], Guard] = Guard
    shapes_only = False  # looks at shapes and at no numbers: see `survey`
    intake_kind: type[Intake] = Intake

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
        self.implementation = str(getattr(getattr(model, "config", None), "_attn_implementation", None) or "")
        self.trails = Trails()
        self.bands: dict[int, Band] = {}  # softmaxes of Longformer modules that are running
        self.positions: Positions | None = None
        self.may_restart = False  # whoever runs the model can run it again, if positions are wanted
        self.guard = type(self).guard_class(self.trails.clear)
        self.forwards = Forwards(model, self.guard, self.trails.clear, shapes_only=self.shapes_only)
        self.intake = self.intake_kind(self.forwards, selection, keeping, example, max_bytes, writer)
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
        self.intake.begin()
        with ExitStack() as stack:
            stack.callback(self.trails.clear)
            stack.enter_context(as_written())
            self.forwards.on_return = self._returned
            self.forwards.on_batch = self._several
            stack.enter_context(_others_paused())
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
        if not self.forwards.running or self.forwards.paused or self.guard.problem is not None:
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

    def reads(self, shape: Sequence[int], scene: Scene) -> Layout | None:
        """How a map's axes are to be read, where that is not for `read_layout` to say."""
        return None

    # -- what becomes of it -------------------------------------------------------------------------------------------

    def follow_positions(self) -> None:
        """Follow where tokens lie, from the next forward on."""
        self.positions = Positions()
        self.forwards.on_call = self.positions.start

    def _several(self) -> None:
        """Follow several examples on their way, where the model will not be run again for it."""
        if self.positions is None and not self.may_restart and self.forwards.batches.several > 1:
            self.follow_positions()

    def again(self, model: nn.Module) -> Recorder:
        """A new recorder like this one, that follows where tokens lie."""
        into = self.intake
        if into.writer is not None:
            into.writer.restart()
        new = Recorder(model, into.selection, into.keeping, into.example, into.max_bytes, into.writer)
        new.follow_positions()
        return new

    def clear(self) -> None:
        """Forget what was recorded."""
        self.passes.clear()
        self.intake.clear()

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


@contextmanager
def _others_paused() -> Iterator[None]:
    """A capture within a forward that is being recorded, as by a hook of the user's, is nothing of that forward."""
    around = [m.forwards for m in modes() if isinstance(m, Recorder) and m.forwards.running]
    for forwards in around:
        forwards.paused += 1
    try:
        yield
    finally:
        for forwards in around:
            forwards.paused -= 1


__all__ = ["Recorder"]
