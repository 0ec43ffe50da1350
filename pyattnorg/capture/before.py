"""What can be refused before the model runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pyattnorg.capture.errors import CaptureError, CaptureTooLargeError
from pyattnorg.capture.inputs import Call
from pyattnorg.capture.keeping import Keeping
from pyattnorg.capture.layout import head_count_of
from pyattnorg.capture.memory import WAYS_OUT, Budget
from pyattnorg.capture.select import Selection
from pyattnorg.capture.survey import Seen, survey_shapes
from pyattnorg.memory import size_text

_BATCHED = ("input_ids", "inputs_embeds", "pixel_values", "input_features", "input_values", "decoder_input_ids")
_LAYER_COUNTS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_encoder_layers",
    "num_decoder_layers", "encoder_num_hidden_layers", "decoder_num_hidden_layers",
)  # fmt: skip
LEAST_COMPRESSED = 0.3  # of what is written, the share that is left after compression at best


def check_before(
    model: nn.Module,
    call: Call,
    selection: Selection,
    keeping: Keeping,
    *,
    evaluate: bool,
    max_bytes: int | None,
    store: Path | None,
) -> None:
    """Refuse an example or layer that is not there, and what cannot fit, wherever that can be known.

    Raises
    ------
    CaptureError, CaptureTooLargeError
        The message says what there is, or how to take less.
    """
    _check_values(call)
    _check_example(call)
    _check_layers(model, selection)
    budget = Budget(max_bytes)
    limit = budget.limit
    if store is not None:
        limit = shutil.disk_usage(_existing(store)).free
    if limit is None or rough_bytes(model, call, keeping) * 4 < limit:
        return
    seen = survey_shapes(model, call, selection, keeping, evaluate=evaluate)
    if seen is None or seen.problem is not None or not seen.found:
        return  # it will say so itself
    total = sum(s.bytes for s in seen.found)
    if store is None and total > limit:
        raise CaptureTooLargeError(f"capture: {_told(seen.found)} are needed and there are {budget}; {WAYS_OUT}")
    if store is not None and total * LEAST_COMPRESSED > limit:
        raise CaptureTooLargeError(
            f"store: {_told(seen.found)} are to be written, and {size_text(limit)} are free where {store} is; "
            "take fewer with layers=, heads=, queries=, dtype='float16' or keep=('weights',), or another disk"
        )


def _told(found: Sequence[Seen]) -> str:
    largest = max(found, key=lambda seen: seen.bytes)
    return (
        f"{size_text(sum(s.bytes for s in found))} ({len(found)} layer(s), up to {largest.heads} heads x "
        f"{largest.queries} queries x {largest.keys} keys)"
    )


def _existing(path: Path) -> Path:
    path = path.resolve()
    return next((p for p in (path, *path.parents) if p.exists()), Path("/"))


def _check_values(call: Call) -> None:
    for name, x in _tensors(call):
        said = repr(name) if name else f"a tensor of shape {tuple(x.shape)}"
        if x.is_meta:
            raise CaptureError(f"inputs: {said} is on the meta device, which holds no values; pass real numbers")
        if 0 in x.shape and (not name or name in _BATCHED):
            raise CaptureError(f"inputs: {said} is empty (shape {tuple(x.shape)}), expected at least one token")


def _check_example(call: Call) -> None:
    sizes = [call.kwargs[n].shape[0] for n in _BATCHED if isinstance(x := call.kwargs.get(n), Tensor) and x.ndim >= 2]
    if not sizes or len(set(sizes)) > 1:
        return
    batch = int(sizes[0])
    if call.example is None and batch > 1:
        raise CaptureError(
            f"inputs: got a batch of {batch} examples, expected one; pick it with example=0 to {batch - 1}"
        )
    if call.example is not None and not -batch <= call.example < batch:
        raise CaptureError(f"example: got {call.example}, the batch has {batch} example(s), counted from 0")


def _check_layers(model: nn.Module, selection: Selection) -> None:
    counts = list(_layer_counts(getattr(model, "config", None)))
    if not counts or not isinstance(selection.layers, frozenset):
        return
    beyond = selection.missing(set(range(max(max(counts), _longest_stack(model)))))
    if beyond:
        raise CaptureError(f"layers: got {beyond}, the model has layers 0 to {max(counts) - 1}; ask for those")


def _longest_stack(model: nn.Module) -> int:
    return max((len(m) for m in model.modules() if isinstance(m, (nn.ModuleList, nn.Sequential))), default=0)


def _layer_counts(config: Any, depth: int = 3) -> Iterator[int]:
    """Numbers of layers that a configuration and those within it name."""
    if config is None or depth == 0:
        return
    for name in _LAYER_COUNTS:
        value = getattr(config, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            yield value
    depths = getattr(config, "depths", None)
    if isinstance(depths, (list, tuple)) and all(isinstance(d, int) for d in depths):
        yield sum(depths)
    for value in list(vars(config).values()):
        if hasattr(value, "model_type") and value is not config:
            yield from _layer_counts(value, depth - 1)


def rough_bytes(model: nn.Module, call: Call, keeping: Keeping) -> float:
    """Bytes if every module with heads made a map of every token of the input: more than there will be, mostly."""
    heads = sum(head_count_of(m) or 0 for m in model.modules())
    tokens = max((_tokens(model, name, x) for name, x in _tensors(call)), default=0)
    if heads == 0:
        heads = 16 * max(_longest_stack(model), 1)
    maps = heads * float(tokens) ** 2 * len(keeping.maps)
    return keeping.itemsize() * (maps + ("qk" in keeping) * heads * tokens * 256.0)


def _tensors(call: Call) -> Iterator[tuple[str, Tensor]]:
    for name, x in (*(("", a) for a in call.args), *call.kwargs.items()):
        if isinstance(x, Tensor):
            yield name, x


def _tokens(model: nn.Module, name: str, x: Tensor) -> float:
    if x.ndim >= 4:
        patch = getattr(getattr(model, "config", None), "patch_size", None)
        side = patch if isinstance(patch, int) else 4
        return float(x.shape[-1] * x.shape[-2]) / side**2 + 16
    return float(max(x.shape, default=0))


__all__ = ["check_before", "rough_bytes"]
