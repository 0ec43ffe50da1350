"""Running a model under the recorder and leaving it as it was."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from pyattnorg.capture.compiled import refuse_compiled
from pyattnorg.capture.errors import CaptureError, PositionsWanted, UnsupportedAttentionError
from pyattnorg.capture.explaining import explain
from pyattnorg.capture.inputs import Call
from pyattnorg.capture.keeping import Keeping
from pyattnorg.capture.layout import tensors_in
from pyattnorg.capture.maths import wide
from pyattnorg.capture.recorder import Recorder
from pyattnorg.capture.select import Selection
from pyattnorg.capture.writing import Writer

_lock = threading.Lock()
_evaluating: dict[nn.Module, list[Any]] = {}  # [how many, modes before]; only while it lasts


def unwrap(model: Any) -> nn.Module:
    """The model inside torch.compile, DataParallel or DistributedDataParallel."""
    while isinstance(model, nn.Module):
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        else:
            break
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: got {type(model).__name__}, expected a torch.nn.Module, or a model's name")
    refuse_compiled(model)
    lost = next((name for name, p in model.named_parameters() if p.is_meta), None)
    if lost is not None:
        raise CaptureError(f"model: parameter {lost!r} is on the meta device, which holds no values; load the weights")
    return model


def refuse_wrapped(model: Any) -> None:
    """`capturing` cannot watch a compiled model that the user calls: compiled code runs, not its modules."""
    if hasattr(model, "_orig_mod"):
        raise UnsupportedAttentionError(
            "model: it is compiled, and its inside cannot be seen; watch and call model._orig_mod instead"
        )


def recorder(
    model: nn.Module,
    selection: Selection,
    keeping: Keeping,
    example: int | None,
    max_bytes: int | None,
    writer: Writer | None = None,
) -> Recorder:
    """A recorder for one use."""
    return Recorder(model, selection, keeping, example, max_bytes, writer)


@contextlib.contextmanager
def mode_of(model: nn.Module, evaluate: bool) -> Iterator[None]:
    """Evaluation mode for a while; every module gets back the mode it had.

    Several threads may capture one model at once: the last one out puts the modes back.
    """
    if not evaluate:
        yield
        return
    with _lock:
        held = _evaluating.setdefault(model, [0, [(m, m.training) for m in model.modules()]])
        held[0] += 1
        if any(training for _, training in held[1]):
            with contextlib.suppress(NotImplementedError):  # exported programs are what they were exported as
                model.eval()
    try:
        yield
    finally:
        with _lock:
            held[0] -= 1
            if held[0] == 0:
                del _evaluating[model]
                for m, training in held[1]:
                    if m.training != training:
                        m.training = training


def run(
    model: nn.Module, recorders: list[Recorder], call: Call, *, evaluate: bool, verify: bool = False
) -> tuple[Any, list[Recorder]]:
    """One forward under recorders, without gradients; what it raises goes through unchanged.

    Windows make it two: the second one follows where tokens lie. Returned are the recorders that have the maps.
    """
    # no_grad, not inference_mode: a buffer that the model makes and keeps on the way must stay usable in training
    with mode_of(model, evaluate), torch.no_grad():
        start = _random_state()
        for r in recorders:
            r.may_restart = True
        try:
            output = _forward(model, recorders, call)
            if any(isinstance(r.problem, PositionsWanted) for r in recorders):
                recorders = [r.again(model) for r in recorders]
                _set_random_state(start)
                output = _forward(model, recorders, call)
        except Exception as error:
            explain(error, model, call)
            if type(error).__module__.startswith("torch._dynamo"):
                raise UnsupportedAttentionError(
                    "model: its forward compiles code (flex_attention, or torch.compile inside), which cannot be seen; "
                    "use attn_implementation='sdpa' or 'eager', or the uncompiled function"
                ) from error
            raise
        if verify and all(r.problem is None for r in recorders):
            _compare(model, call, output, start)
    return output, recorders


def _forward(model: nn.Module, recorders: list[Recorder], call: Call) -> Any:
    with contextlib.ExitStack() as stack:
        for r in recorders:
            stack.enter_context(r)
        return model(*call.args, **call.kwargs)


def _compare(model: nn.Module, call: Call, output: Any, start: list[Any]) -> None:
    end = _random_state()
    _set_random_state(start)  # so that dropout, where it is on, falls the same way
    try:
        plain = model(*call.args, **call.kwargs)
    finally:
        _set_random_state(end)
    ours, theirs = tensors_in(output), tensors_in(plain)
    if len(ours) != len(theirs) or not all(map(_same, ours, theirs)):
        gap = max(
            (
                float((wide(a) - wide(b)).abs().max())
                for a, b in zip(ours, theirs, strict=False)
                if a.shape == b.shape and a.numel()
            ),
            default=float("nan"),
        )
        raise CaptureError(
            f"verify: the model's output with capture differs from its output without (by up to {gap:.3g}); "
            "it is not deterministic, or keeps state from call to call"
        )


def _same(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _random_state() -> list[Any]:
    state: list[Any] = [torch.get_rng_state()]
    return [*state, torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else state


def _set_random_state(state: list[Any]) -> None:
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state_all(state[1])


__all__ = ["mode_of", "recorder", "refuse_wrapped", "run", "unwrap"]
