"""Softmax without softmax: exponentials over their sums, and exponentials of log_softmax, on the way from scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pyattnorg.capture.products import function_name
from pyattnorg.capture.softmax import see_softmax
from pyattnorg.capture.trails import Trail

if TYPE_CHECKING:
    from pyattnorg.capture.recorder import Recorder

_EXP = {"exp", "exp_", "special_exp"}
_LOGS = {"log_softmax", "special_log_softmax"}
_DIV = {"div", "div_", "true_divide", "__truediv__", "__itruediv__", "divide", "mul", "__mul__"}
# Sums of a row of half-precision exponentials are this far from 1, at most.
_ONE = 0.02


def see_handmade(
    recorder: Recorder, func: Any, out: Any, x: Tensor, trail: Trail, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Follow scores through exponentials; True if the call was a step of a softmax by hand."""
    name = function_name(func)
    if not isinstance(out, Tensor) or out.shape != x.shape or trail.stage == "weights":
        return False
    if trail.stage == "scores":
        if name in _LOGS:
            return _keep(recorder, out, trail, "logs", x, args, kwargs)
        if name not in _EXP:
            return False
        if _sums_to_one(out):
            return _weights(recorder, trail, x, out)
        return _keep(recorder, out, trail, "exp", x, args, kwargs)
    assert trail.source is not None
    if trail.stage == "logs" and name in _EXP:
        return _weights(recorder, trail, trail.source, out)
    if trail.stage == "exp" and name in _DIV and _sums_to_one(out):
        return _weights(recorder, trail, trail.source, out)
    return False


def _keep(
    recorder: Recorder, out: Tensor, trail: Trail, stage: Any, x: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    if stage == "logs" and kwargs.get("dim", args[1] if len(args) > 1 else None) not in (-1, x.ndim - 1):
        return False
    # exp_ has overwritten its input, whose logarithm is as good as what it was
    source = out.log() if out is x or out.data_ptr() == x.data_ptr() else x.detach().clone()
    kept = replace(trail, stage=stage, source=source)
    recorder.trails.put(out, kept)
    return True


def _weights(recorder: Recorder, trail: Trail, scores: Tensor, out: Tensor) -> bool:
    scene = recorder.forwards.scene()
    if scene is None:
        return False
    recorder.trails.put(scores, replace(trail, stage="scores", source=None))
    see_softmax(recorder, scene, (scores, -1), {}, out)
    return True


def _sums_to_one(x: Tensor) -> bool:
    sums = x.detach().float().sum(-1)
    fine = torch.isfinite(sums)
    return bool(fine.any()) and bool(((sums - 1).abs()[fine] < _ONE).all())


__all__ = ["see_handmade"]
