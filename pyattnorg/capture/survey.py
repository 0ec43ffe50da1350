"""What a capture would hold, found without computing it: the model runs on tensors that have shapes and no values.

A copy of the model whose parameters are fake (torch's FakeTensorMode) is run under a recorder that notes shapes. No
number is computed, and no memory of any size taken. Models that look at values on the way cannot run like that; those
are run once for real, and their maps are looked at and let go.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

from pyattnorg.capture.errors import UnsupportedAttentionError
from pyattnorg.capture.inputs import Call
from pyattnorg.capture.intake import Intake
from pyattnorg.capture.keeping import Keeping
from pyattnorg.capture.passes import Pass
from pyattnorg.capture.recorder import Recorder
from pyattnorg.capture.running import mode_of
from pyattnorg.capture.select import Selection
from pyattnorg.capture.slots import BLOCK, Slot, need


@dataclass(frozen=True)
class Seen:
    """One call that would be kept."""

    layer: int
    module: str
    backend: str
    heads: int
    queries: int  # those that are kept
    keys: int
    computed: int  # cells of its maps that are computed on the way
    bytes: int
    flops: float  # of its own product of queries and keys, and with values, where its width is known


class _Notes(Intake):
    """Notes what would be kept, and keeps nothing."""

    def begin(self) -> None:
        """What is only noted needs no memory."""
        self.found: list[Seen] = []

    def admit(self, slot: Slot, sizes: tuple[int, int] | None) -> bool:
        """Note a layer."""
        heads, queries, keys = slot.kept_shape
        cells = heads * queries * slot.shape[2]
        width = 0 if sizes is None else sizes[0]
        flops = 4.0 * width * slot.layout.heads * slot.shape[1] * slot.shape[2]
        self.found.append(
            Seen(
                slot.layer, slot.scene.place.module, slot.backend, heads, queries, keys, cells, need(slot, sizes), flops
            )
        )
        return False

    def budget_allows(self, layout: Any, queries: int, keys: int) -> None:
        """Nothing is copied."""


class Survey(Recorder):
    """A recorder that notes what would be kept, and keeps nothing."""

    shapes_only = True
    intake_kind = _Notes

    def __init__(self, model: nn.Module, selection: Selection, keeping: Keeping, example: int | None) -> None:
        super().__init__(model, selection, keeping, example, None)
        self.flops: float | None = None

    @property
    def found(self) -> list[Seen]:
        """The calls that would be kept."""
        return self.intake.found if isinstance(self.intake, _Notes) else []

    @property
    def last(self) -> Pass | None:
        """The forward that was watched."""
        return self.passes[-1] if self.passes else None


def survey_shapes(
    model: nn.Module, call: Call, selection: Selection, keeping: Keeping, *, evaluate: bool
) -> Survey | None:
    """The survey of a forward on fake tensors; None where the model looks at values on the way."""
    try:
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        with FakeCopyMode(fake):
            twin = copy.deepcopy(model)
        _forget_hooks(twin.modules())
        recorder = Survey(twin, selection, keeping, call.example)
        with _silent(), mode_of(twin, evaluate), torch.no_grad(), fake, FlopCounterMode(display=False) as counter:
            given = (call.args, call.kwargs)
            args, kwargs = tree_map(lambda x: fake.from_tensor(x) if isinstance(x, torch.Tensor) else x, given)
            with recorder:
                twin(*args, **kwargs)
    except Exception:  # anything that needs a value: there are as many ways to look at one as there are models
        return None
    if isinstance(recorder.problem, UnsupportedAttentionError):
        return None  # it may be known once tokens are followed
    counts = counter.get_flop_counts().get("Global", {})
    counted = any("attention" in str(name) for name in counts)
    own = 0.0 if counted else sum(s.flops for s in recorder.found if s.backend == "sdpa")
    recorder.flops = float(counter.get_total_flops()) + own
    return recorder


def survey_forward(model: nn.Module, call: Call, selection: Selection, keeping: Keeping, *, evaluate: bool) -> Survey:
    """The survey of a real forward, whose maps are not kept."""
    recorder = Survey(model, selection, keeping, call.example)
    recorder.follow_positions()
    with mode_of(model, evaluate), torch.no_grad(), recorder:
        model(*call.args, **call.kwargs)
    return recorder


def working_bytes(found: Iterable[Seen]) -> int:
    """Memory beside the model's own that is needed while a layer is looked at: a few arrays of a block."""
    largest = max((min(s.computed, BLOCK) for s in found), default=0)
    return 8 * 4 * largest


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Torch logs what cannot run without values as an error; here it only means another way."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _forget_hooks(modules: Iterable[nn.Module]) -> None:
    """The user's hooks are for the user's runs."""
    for module in modules:
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            getattr(module, name).clear()
        for name in ("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called"):
            getattr(module, name).clear()


__all__ = ["Seen", "Survey", "survey_forward", "survey_shapes", "working_bytes"]
