"""Changing what heads give while a model runs, wherever a capture sees them: no weight is touched.

The recorder already knows every attention and whose it is. Here it keeps no maps; what a head gives (its weights times
the values, before any output projection) goes through a function of ours instead. Heads have the layers and numbers
that they have in a capture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pyattnorg.capture.contexts import Context, at_module, at_product, in_front, of_heads
from pyattnorg.capture.fastpath import intervening
from pyattnorg.capture.forwards import Guard
from pyattnorg.capture.intake import Intake
from pyattnorg.capture.keeping import Keeping
from pyattnorg.capture.layout import Batches, Layout, Scene
from pyattnorg.capture.mha import SIGNATURE, see_mha
from pyattnorg.capture.products import NAMES as PRODUCTS
from pyattnorg.capture.products import Factors, factors
from pyattnorg.capture.reading import watched
from pyattnorg.capture.recorder import Recorder
from pyattnorg.capture.sdpa import packed_heads, see_sdpa
from pyattnorg.capture.select import Selection
from pyattnorg.capture.slots import Slot
from pyattnorg.capture.softmax import see_product
from pyattnorg.capture.trails import Trail


class Edit(Protocol):
    """What is done with heads: asked for every call of attention, then given what its heads gave."""

    def wants(self, slot: Slot) -> bool:
        """Whether any head of this call is to be changed."""

    def change(self, slot: Slot, context: Context) -> Tensor:
        """What the call gives instead."""


class _Strict(Guard):
    """Errors of ours are raised where they arise: a model must not go on as if its heads had been changed."""

    def __call__(self, do: Callable[..., Any], *args: Any) -> None:
        do(*args)


class _Asked(Intake):
    """Lets in the calls that an edit wants to change, and keeps nothing of them."""

    edit: Edit

    def begin(self) -> None:
        """No memory is needed."""
        self.slot: Slot | None = None  # the call that was looked at last, if it is to be changed
        self._before: Slot | None = None
        self.of_modules: dict[int, Slot] = {}

    def forget(self) -> None:
        """Another forward begins, or none."""
        self.slot = self._before = None
        self.of_modules.clear()

    def admit(self, slot: Slot, sizes: tuple[int, int] | None) -> bool:
        """Ask `edit`; there is nothing to compute in any case."""
        del self.forwards.passes[:-1]
        wanted = slot if self.edit.wants(slot) else None
        self.slot = self._before = wanted
        if wanted is not None and slot.backend == "banded":
            self.of_modules[id(slot.scene.module)] = wanted
        return False

    def had(self, scene: Scene, queries: int, q: Tensor, k: Tensor) -> bool:
        """The same maps for other values (DiffLlama) are changed like the first ones."""
        if super().had(scene, queries, q, k):
            self.slot = self._before
            return True
        self._before = None
        return False

    def example_of(self, layout: Layout) -> int:
        """All examples are changed alike."""
        return 0

    def budget_allows(self, layout: Layout, queries: int, keys: int) -> None:
        """Nothing is copied."""


class Intervention(Recorder):
    """Lets `edit` change what heads give, while it is entered; in the thread that entered it."""

    is_recorder = False  # the model runs as it does with this in it, also when nobody looks
    shapes_only = True
    guard_class = _Strict
    intake_kind = _Asked
    intake: _Asked

    def __init__(self, model: nn.Module, edit: Edit) -> None:
        super().__init__(model, Selection(), Keeping.of(("weights",)), None, None)
        self.edit = self.intake.edit = edit
        self.forwards.each_call_is_a_pass = True
        self.forwards.ignores_away = True
        self.forwards.on_output, self.forwards.on_pass = self._module_gave, self._forget
        self._of_candidates: dict[int, tuple[object, Slot | None]] = {}
        self.ran = False  # the whole model did, to its end

    def __enter__(self) -> Intervention:
        super().__enter__()
        self._cleanup.enter_context(intervening())
        self._cleanup.callback(self._forget)
        return self

    def _forget(self) -> None:
        self._of_candidates.clear()
        self.intake.forget()

    # -- calls of attention -------------------------------------------------------------------------------------------

    def _look(self, name: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if name not in PRODUCTS:
            return super()._look(name, func, args, kwargs)
        out = func(*args, **kwargs)
        found = factors(name, args, kwargs)
        changed = None if found is None else self._weighs_values(found, out)
        if changed is not None:
            return changed
        super()._product(name, args, kwargs, out)
        return out

    def _weighs_values(self, found: Factors, out: Tensor) -> Tensor | None:
        """The product as it is to be, where it weighs values with a softmax; None where it is another product."""
        for x in (found.left, found.right):
            trail = self.trails.get(x)
            if trail is None or trail.stage != "weights" or trail.candidate is None:
                continue
            if not self._take(trail, found, x):
                continue
            slot = self._of_candidates[id(trail.candidate)][1]
            if slot is None:
                return out
            return self.edit.change(slot, at_product(found, x, trail.flipped, out, slot.layout.heads, slot.scene.name))
        return None

    def _take(self, trail: Trail, found: Factors, x: Tensor) -> bool:
        candidate = trail.candidate
        assert candidate is not None
        self.intake.slot = None
        if not watched(self, see_product, candidate.scene, found, x, trail):
            return False
        if id(candidate) not in self._of_candidates:  # the same weights may weigh several values
            self._of_candidates[id(candidate)] = (candidate, self.intake.slot)
        return True

    def _see(self, see: Callable[..., None], func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        scene = self.forwards.scene()
        if scene is None:
            return func(*args, **kwargs)
        self.intake.slot = None
        if see is see_mha:
            watched(self, see, scene, args, kwargs, None)
            slot = self._taken()
            return func(*args, **kwargs) if slot is None else self._mha(slot, func, args, kwargs)
        out = func(*args, **kwargs)
        watched(self, see, scene, args, kwargs, out)
        slot = self._taken()
        if see is not see_sdpa or slot is None:
            return out
        unpacked = packed_heads(out, slot.layout.heads)
        values = kwargs["value"] if "value" in kwargs else args[2]
        lead = of_heads(unpacked.shape[:-2], slot.layout.heads, slot.scene.name, values)
        return self.edit.change(slot, Context(unpacked, lead[..., None, None], -1)).reshape(out.shape)

    def _taken(self) -> Slot | None:
        """The call that was just let in, if it is to be changed."""
        return self.intake.slot

    def _mha(self, slot: Slot, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The call with the identity for its output projection, then ours in between, then the projection."""
        bound = SIGNATURE.bind(*args, **kwargs)
        call = bound.arguments
        weight, bias = call["out_proj_weight"], call["out_proj_bias"]
        width = int(weight.shape[1])
        call["out_proj_weight"] = torch.eye(width, dtype=weight.dtype, device=weight.device)
        call["out_proj_bias"] = None
        out, maps = func(*bound.args, **bound.kwargs)
        heads = slot.layout.heads
        context = Context(out.reshape(*out.shape[:-1], heads, -1), torch.arange(heads, device=out.device)[:, None], -1)
        changed = self.edit.change(slot, context).reshape(out.shape)
        return F.linear(changed, weight, bias), maps

    def _module_gave(self, module: nn.Module, output: Any) -> Any:
        """Longformer's attention, whose map only its module knows: changed where the module returns."""
        if module is self.forwards.root:
            self.ran = True
        slot = self.intake.of_modules.pop(id(module), None)
        if slot is None:
            return None
        first, *rest = output if isinstance(output, (tuple, list)) else (output,)
        changed = self.edit.change(slot, at_module(first, slot.layout.heads)).reshape(first.shape)
        return (changed, *rest) if isinstance(output, (tuple, list)) else changed

    # -- nothing is kept ----------------------------------------------------------------------------------------------

    @property
    def batches(self) -> Batches:
        """Any batch will do: windows and examples need no telling apart to find the heads."""
        return Batches()

    def reads(self, shape: Sequence[int], scene: Scene) -> Layout:
        """Only the axis of heads matters."""
        return in_front(shape, scene)


__all__ = ["Edit", "Intervention"]
