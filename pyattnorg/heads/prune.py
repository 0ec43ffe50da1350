"""Pruning heads: their weights are taken out of the model, which then gives what the ablated one gives."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pyattnorg.capture.layout import tensors_in
from pyattnorg.capture.running import refuse_wrapped, unwrap
from pyattnorg.checks import one_of
from pyattnorg.heads.ablate import Ablation, edited
from pyattnorg.heads.anatomy import CannotPruneError, anatomies
from pyattnorg.heads.choose import HeadsMeant, choose
from pyattnorg.heads.plans import Otherwise, make_plans
from pyattnorg.heads.saving import RECORD, records_of
from pyattnorg.heads.surgery import Plan, Surgery
from pyattnorg.heads.tables import calls_of, head_table_of, network_of, run
from pyattnorg.heads.tried import is_tried
from pyattnorg.memory import size_text

if TYPE_CHECKING:
    from pyattnorg.heads.means import HeadMeans

TOLERANCE = 1e-4  # of float32 outputs against the ablated model's, relative to their size
_RUNS = 5


@dataclass(frozen=True)
class Size:
    """What a model takes: numbers of parameters, bytes, and process seconds of a forward where inputs were given."""

    parameters: int
    bytes: int
    seconds: float | None = None


@dataclass(frozen=True)
class Pruned:
    """What `prune_heads` did.

    `removed` are heads whose weights are gone, `zeroed` those that are silenced and keep theirs, by label; `before` and
    `after` the model's size and speed; `difference` that of its output from the ablated model's, relative to its size,
    where inputs were given.
    """

    model: nn.Module
    removed: tuple[str, ...]
    zeroed: tuple[str, ...]
    before: Size
    after: Size
    difference: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """All but the model, JSON-ready."""
        return {
            "removed": list(self.removed), "zeroed": list(self.zeroed), "difference": self.difference,
            "before": vars(self.before), "after": vars(self.after),
        }  # fmt: skip

    def __repr__(self) -> str:
        lines = [
            f"Pruned({len(self.removed)} heads removed" + (f", {len(self.zeroed)} zeroed)" if self.zeroed else ")")
        ]
        for name, size in (("before", self.before), ("after", self.after)):
            timed = "" if size.seconds is None else f", {size.seconds * 1e3:.1f} ms a forward"
            lines.append(f"  {name:6s} {size.parameters:,} parameters, {size_text(size.bytes)}{timed}")
        if self.difference is not None:
            lines.append(f"  output differs from the ablated model's by {self.difference:.1e} of its size")
        return "\n".join(lines)


def prune_heads(
    model: Any,
    heads: HeadsMeant,
    *,
    otherwise: Otherwise = "refuse",
    means: HeadMeans | None = None,
    inputs: Any = None,
) -> Pruned:
    """Take heads out of a model's weights, in place.

    The projections of queries, keys, values and the output lose the heads' rows and columns, and the module's own
    counts follow; a layer that loses all its heads keeps the bias of its output projection. The model's
    configuration is left: it says how the model is built before `load_pruned` prunes it. Save with `save_pruned`.

    Parameters
    ----------
    model : torch.nn.Module or LoadedModel
    heads : as in `ablate_heads`
    otherwise : {"refuse", "zero"}
        What becomes of heads that cannot be taken out (of heads that share keys every group must keep the same number;
        biases of positions that go by head): an error, or their columns of the output projection are set to zero.
    means : HeadMeans, optional
        What the heads gave on average is added to the bias of the output projection: the model then is the
        mean-ablated one.
    inputs : optional
        One example, as `capture` takes it. The pruned model's output is compared with the ablated model's (and
        everything is put back if they differ), and both are timed. Needed for attention that is not among those that
        this package's tests prune.

    Returns
    -------
    Pruned

    Raises
    ------
    CannotPruneError
        (A ValueError.) Weights that several layers share; attention that is not understood; outputs that differ.
    ValueError
        Heads that are not there.
    """
    one_of(otherwise, "otherwise", ("refuse", "zero"))
    net = network_of(model)
    refuse_wrapped(net)
    net = unwrap(net)
    table = None if inputs is None else head_table_of(model, inputs)
    plans = make_plans(net, choose(heads, table), table, otherwise, means)
    if inputs is None:
        _require_tried(plans)
    before, wanted = _size(net), None
    call = None if inputs is None else calls_of(model, inputs)[0]
    if call is not None:
        before = _timed(net, before, call)
        with edited(net, Ablation(choose(heads, table), means)):
            wanted = tensors_in(run(net, call))
    surgery = Surgery(net)
    try:
        difference = _operate(surgery, plans, wanted, call)
    except CannotPruneError:
        if otherwise == "refuse":
            raise
        plans = make_plans(net, choose(heads, table), table, otherwise, means, silence=True)
        difference = _operate(surgery, plans, wanted, call)
    record = records_of(net, plans)
    setattr(net, RECORD, record)
    after = _size(net) if call is None else _timed(net, _size(net), call)
    names = _names(net, plans)
    removed = tuple(f"{n}H{h}" for n, p in zip(names, plans) for h in range(p.anatomy.heads) if h not in p.kept)
    zeroed = tuple(f"{n}H{h}" for n, p in zip(names, plans) for h in p.zeroed)
    return Pruned(net, removed, zeroed, before, after, difference)


def _operate(surgery: Surgery, plans: list[Plan], wanted: list[Any] | None, call: Any) -> float | None:
    """Do what is planned; the difference from the wanted output, or everything as it was and an error."""
    net = surgery.model
    try:
        for plan in plans:
            surgery.operate(plan)
            surgery.cut_sinks(plan)
        if wanted is None:
            return None
        try:
            found = tensors_in(run(net, call))
        except Exception as error:  # whatever a model says whose heads do not go together
            raise CannotPruneError(
                f"model: it does not run without the heads' weights ({str(error).splitlines()[0]}); the weights were "
                "put back, use ablate_heads or otherwise='zero'"
            ) from None
        difference = _difference(wanted, found)
        if not difference < _tolerance(net):
            raise CannotPruneError(
                f"model: without the heads' weights its output differs from the ablated model's by {difference:.2g} of "
                "its size; the weights were put back, use ablate_heads"
            )
        return difference
    except BaseException:
        surgery.undo()
        raise


def _names(model: nn.Module, plans: list[Plan]) -> list[str]:
    """Labels of layers: ``L3``, or ``encoder.L3`` where the model has several parts."""
    from pyattnorg.capture.groups import base_name

    def part(place: Any) -> str:
        return "cross" if place.cross else base_name(place)

    several = len({part(one.place) for one in anatomies(model)} | {part(p.anatomy.place) for p in plans}) > 1
    return [(f"{part(p.anatomy.place)}." if several else "") + f"L{p.anatomy.layer}" for p in plans]


def _require_tried(plans: list[Plan]) -> None:
    for plan in plans:
        kind = type(plan.anatomy.module)
        if not is_tried(kind):
            raise CannotPruneError(
                f"{plan.anatomy.path!r} ({kind.__name__}): is not among the attention modules that are known to be "
                "pruned right; pass inputs=, an example by which the outcome is checked"
            )


def _size(model: nn.Module) -> Size:
    unique = {id(p): p for p in model.parameters()}
    return Size(sum(p.numel() for p in unique.values()), sum(p.numel() * p.element_size() for p in unique.values()))


def _timed(model: nn.Module, size: Size, call: Any) -> Size:
    run(model, call)
    times = []
    for _ in range(_RUNS):
        start = time.process_time()
        run(model, call)
        times.append(time.process_time() - start)
    return Size(size.parameters, size.bytes, statistics.median(times))


def _difference(a: list[Any], b: list[Any]) -> float:
    """Largest difference between outputs, relative to the largest entry of each tensor; caches are left out."""
    worst = 0.0
    for x, y in zip(a, b, strict=False):
        if x.shape != y.shape or not x.is_floating_point() or not x.numel():
            continue
        size = max(float(x.abs().nan_to_num().max()), 1e-6)
        worst = max(worst, float((x - y).abs().nan_to_num(nan=torch.inf).max()) / size)
    return worst


def _tolerance(model: nn.Module) -> float:
    first = next(model.parameters())
    return TOLERANCE if first.dtype in (torch.float32, torch.float64) else 16 * float(torch.finfo(first.dtype).eps)


__all__ = ["Pruned", "Size", "prune_heads"]
