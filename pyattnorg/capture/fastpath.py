"""The fast path of torch.nn: MultiheadAttention and TransformerEncoder run one fused kernel in inference.

While any torch function mode is active they take their slow path, whose output differs in the last bits and at padding.
So the slow path is recorded, and then the module runs once more as if nobody looked: that output goes on.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import _get_current_function_mode, _pop_mode, _push_mode

from pyattnorg.capture.errors import UnsupportedAttentionError, named

FAST = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)

_away = threading.local()
_changing = threading.local()


def away() -> bool:
    """Whether this thread is inside `without_recorders`."""
    return bool(getattr(_away, "now", False))


@contextlib.contextmanager
def intervening() -> Iterator[None]:
    """Meanwhile, in this thread, a module's output is not the one it gives alone: there is nothing to run again."""
    _changing.depth = getattr(_changing, "depth", 0) + 1
    try:
        yield
    finally:
        _changing.depth -= 1


def intervened() -> bool:
    """Whether what heads give is being changed, in this thread: outputs then are not those of the maps."""
    return bool(getattr(_changing, "depth", 0))


def run_again(module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """The output the module gives when no recorder is there; None if it is the one it gave."""
    if intervened():
        return None
    if module.training or not torch.backends.mha.get_fastpath_enabled() or torch.is_autocast_enabled():
        return None
    if torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters()):
        return None
    if isinstance(module, nn.TransformerEncoderLayer) and _hooked(module):
        return None  # hooks switch its fast path off, and must not fire twice
    with without_recorders():
        return module.forward(*args, **kwargs)


def refuse_other_output(name: str, module: nn.Module, slow: Any, fast: Any) -> None:
    """Refuse a module whose two paths do not agree, so that what was recorded is not what its output came from.

    A wrong ``is_causal`` hint does that: one path trusts it, the other reads the mask. (The encoder as a whole zeroes
    padding in its fast path, rightly, and its layers are looked at as they run.)
    """
    a, b = (x[0] if isinstance(x, tuple) else x for x in (slow, fast))
    if isinstance(module, nn.TransformerEncoder) or fast is None or a.shape != b.shape:
        return
    with torch.no_grad(), without_recorders():
        gap = float((a.float() - b.float()).abs().nan_to_num(0.0).max())
        size = float(b.float().abs().nan_to_num(0.0).max())
    if gap > 0.05 * max(size, 1e-6):
        raise UnsupportedAttentionError(
            f"{named(name, type(module).__name__)}: its fast path and its slow path differ by {gap:.2g}, so its maps "
            "cannot be told; check that is_causal goes with its mask, or switch one path off "
            "(torch.backends.mha.set_fastpath_enabled)"
        )


def _hooked(module: nn.Module) -> bool:
    return any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


@contextlib.contextmanager
def without_recorders() -> Iterator[None]:
    """Nobody looks for a while: recorders leave the stack of torch function modes, others stay; hooks do nothing."""
    modes = _pop_all()
    before, _away.now = away(), True
    try:
        for mode in modes:
            if not getattr(mode, "is_recorder", False):
                _push_mode(mode)
        yield
    finally:
        _away.now = before
        _pop_all()
        for mode in modes:
            _push_mode(mode)


def modes() -> list[Any]:
    """Torch function modes of this thread, the outermost first."""
    found = _pop_all()
    for mode in found:
        _push_mode(mode)
    return found


def _pop_all() -> list[Any]:
    modes = []
    while _get_current_function_mode() is not None:
        modes.append(_pop_mode())
    return modes[::-1]


__all__ = [
    "FAST",
    "away",
    "intervened",
    "intervening",
    "modes",
    "refuse_other_output",
    "run_again",
    "without_recorders",
]
