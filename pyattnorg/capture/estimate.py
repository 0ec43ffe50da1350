"""Bytes and time of a capture before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyattnorg.capture.cut import AxisChoice, Cut
from pyattnorg.capture.errors import CaptureError, NoAttentionError, UnsupportedAttentionError
from pyattnorg.capture.keeping import Keeping
from pyattnorg.capture.models import need, opened
from pyattnorg.capture.select import HeadChoice, LayerChoice, Selection
from pyattnorg.memory import available_memory, size_text

if TYPE_CHECKING:
    from pyattnorg.capture.passes import Pass
    from pyattnorg.capture.recorder import Recorder
    from pyattnorg.capture.survey import Survey


@dataclass(frozen=True)
class Estimate:
    """What a capture would take.

    Attributes
    ----------
    bytes : int
        Of all that is kept: in memory, or on disk before compression (which leaves about 40 % of causal attention, 85 %
        of attention that sees everything). Masks come on top: a byte a cell and layer in memory, little on disk.
    working_bytes : int
        Memory needed on the way, beside the model's own and, without ``store=``, beside `bytes`.
    seconds : float
        Of the forward and the capture, from the model's number of operations and a measurement of this machine that
        takes half a second: right to a factor of two or three.
    available : int or None
        Bytes of memory that are free now.
    layers : list of dict
        layer, module, backend, heads, queries, keys, bytes of every layer that would be kept.
    method : {"shapes", "forward"}
        Whether shapes alone were computed, or the model ran once (where it looks at values on its way).
    """

    bytes: int
    working_bytes: int
    seconds: float
    available: int | None
    layers: list[dict[str, Any]]
    method: str
    stored: bool = False

    @property
    def fits(self) -> bool:
        """Whether `capture` would find room in memory."""
        held = self.working_bytes + (0 if self.stored else self.bytes)
        return self.available is None or held <= self.available * 9 // 10

    def __repr__(self) -> str:
        heads = sum(row["heads"] for row in self.layers)
        where = "on disk before compression" if self.stored else "in memory"
        free = "" if self.available is None else f" of {size_text(self.available)} free"
        way = "shapes alone were computed" if self.method == "shapes" else "the model ran once"
        return (
            f"Estimate({size_text(self.bytes)} {where} for {heads} heads of {len(self.layers)} layer(s), "
            f"{size_text(self.working_bytes)} on the way{free}, about {self.seconds:.2g} s; {way})"
        )


def estimate(
    model: Any,
    inputs: Any,
    *,
    layers: LayerChoice = None,
    heads: HeadChoice = None,
    keep: str | Sequence[str] = ("scores", "weights"),
    queries: AxisChoice = None,
    keys: AxisChoice = None,
    dtype: Any = None,
    example: int | None = None,
    tokenizer: Any = None,
    processor: Any = None,
    evaluate: bool = True,
    max_length: int | None = None,
    store: Any = None,
    **load: Any,
) -> Estimate:
    """Bytes and time of a capture, before it runs.

    Shapes are found by running the model on tensors without values, which takes some tenths of a second and no memory.
    A model that looks at values on its way is run once instead, without keeping maps; ``method`` says which it was.
    What `capture` would refuse by shape alone is refused here.

    Parameters
    ----------
    model, inputs, … :
        Those of `pyattnorg.capture`. `store` may be True: the question is then what would be written.

    Returns
    -------
    Estimate

    Raises
    ------
    CaptureError
        As `capture`: no attention, a layer or example that is not there, attention of a kind that is not supported.
    """
    from pyattnorg.capture.inputs import prepare

    loaded, net = opened(model, load, "estimate")
    keeping, selection = Keeping.of(keep, Cut.of(queries, keys), dtype), Selection.of(layers, heads)
    need("torch", "torch")
    from pyattnorg.capture import running, survey

    net = running.unwrap(net)
    call = prepare(
        net, inputs, loaded=loaded, tokenizer=tokenizer, processor=processor, example=example, max_length=max_length
    )
    seen = survey.survey_shapes(net, call, selection, keeping, evaluate=evaluate)
    method, seconds = "shapes", 0.0
    if seen is None:
        import time

        start = time.perf_counter()
        seen = survey.survey_forward(net, call, selection, keeping, evaluate=evaluate)
        method, seconds = "forward", time.perf_counter() - start
    return summed(net, seen, keeping, method, seconds, stored=store not in (None, False))


def summed(net: Any, seen: Survey, keeping: Keeping, method: str, forward: float, *, stored: bool) -> Estimate:
    """The estimate that follows from a survey; `forward` are the seconds of the model's own run where it is known."""
    from pyattnorg.capture import rates, survey

    check_pass(seen, seen.last, kept=bool(seen.found))
    total, cells = sum(s.bytes for s in seen.found), sum(s.computed for s in seen.found)
    seconds = forward
    import torch

    first = next(iter(net.parameters()), None)
    device, threads = torch.device("cpu") if first is None else first.device, torch.get_num_threads()
    if seen.flops is not None:
        kind = torch.float32 if first is None or not first.is_floating_point() else first.dtype
        seconds = seen.flops / rates.flops_per_second(device, kind, threads)
    if keeping.maps:
        seconds += cells / rates.cells_per_second(device, threads, large=cells > 1 << 22)
    if stored:
        seconds += total / rates.stored_bytes_per_second()
    rows = [
        {"layer": s.layer, "module": s.module, "backend": s.backend, "heads": s.heads, "queries": s.queries,
         "keys": s.keys, "bytes": s.bytes}
        for s in seen.found
    ]  # fmt: skip
    return Estimate(total, survey.working_bytes(seen.found), seconds, available_memory(), rows, method, stored)


def check_pass(recorder: Recorder, one: Pass | None, *, kept: bool) -> Pass:
    """Raise what is wrong with a forward: recording failed, it did not end, nothing was seen, or not all of it."""
    if recorder.problem is not None:
        raise_problem(recorder.problem)
    if one is None or not one.complete:
        raise CaptureError("capture: the forward did not end (it raised, or is still running); run it again")
    if not kept and not one.seen and one.left_out:
        raise UnsupportedAttentionError(one.left_out[0])
    if not kept and not one.seen:
        raise NoAttentionError(recorder.explain_nothing(one))
    lost = one.lost()
    if lost is not None:
        raise UnsupportedAttentionError(
            f"{lost.module}: its softmax of shape {lost.shape} is not attention as it can be captured here "
            f"({lost.reason}), and the capture would lack it; this kind is not supported in this version"
        )
    lacking = recorder.intake.selection.missing(one.seen)
    if lacking or not kept:
        what = f"layers: got {lacking}" if lacking else f"{recorder.intake.selection.text} leaves no head"
        raise CaptureError(f"{what}, the model has layers {min(one.seen)} to {max(one.seen)}; ask for those")
    return one


def raise_problem(error: Exception) -> None:
    """Raise what went wrong inside a forward, as what it is where that says enough."""
    if isinstance(error, (CaptureError, OSError, MemoryError, ImportError)) or _ours(error):
        raise error
    first = next(iter(str(error).splitlines()), "")
    raise CaptureError(
        f"capture: recording failed ({type(error).__name__}: {first}), "
        "expected plain tensors; under torch.func or with tensors of another kind run the model without them, "
        "else please report this"
    ) from error


def _ours(error: Exception) -> bool:
    return type(error).__module__.startswith("pyattnorg.") or str(error).startswith(("queries:", "keys:"))


__all__ = ["Estimate", "check_pass", "estimate", "raise_problem"]
