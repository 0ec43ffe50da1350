"""Many examples, one after the other: texts alone, padded batches in one forward with one capture an example."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyattnorg.capture.alone import compare_alone
from pyattnorg.capture.api import Tape, capture
from pyattnorg.capture.errors import CaptureError
from pyattnorg.capture.files import store_path
from pyattnorg.capture.inputs import Call, prepare, special_ids
from pyattnorg.capture.keeping import Keeping
from pyattnorg.capture.models import LoadedModel, need, opened
from pyattnorg.capture.result import Capture
from pyattnorg.capture.select import HeadChoice, LayerChoice, Selection
from pyattnorg.capture.series import Series
from pyattnorg.capture.tokens import Patches


def capture_each(
    model: Any,
    examples: Any,
    *,
    layers: LayerChoice = None,
    heads: HeadChoice = None,
    keep: Sequence[str] = ("scores", "weights"),
    tokenizer: Any = None,
    processor: Any = None,
    evaluate: bool = True,
    max_length: int | None = None,
    max_bytes: int | None = None,
    check_padding: bool = True,
    store: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    **load: Any,
) -> Iterator[Capture]:
    """Captures of many examples of any lengths, one at a time: what was yielded is not held here.

    Parameters
    ----------
    model, layers, heads, keep, tokenizer, processor, evaluate, max_length, max_bytes, check_padding, load :
        As in `capture`.
    examples : iterable, or a single batch
        Texts and images run alone, so no padding changes them. Mappings, tuples and tensors are batches as a DataLoader
        gives them: they run as they are, once, and every example is a capture without its padding.
    store : path, optional
        Write every capture to a folder of its own (``000000``, ``000001``, …) in this folder, while the model runs, as
        `capture` does with its own ``store``; `load_each` reads them later. What was yielded before and is whole is
        opened without running the model, so a run that was stopped is taken up by the same call. A batch then runs once
        for each of its examples.
    overwrite : bool
        Replace captures of something else in that folder.

    Yields
    ------
    Capture
        One an example, in order. Lengths differ, so the captures do not make one tensor.

    Raises
    ------
    CaptureError, ValueError, TypeError
        As `capture` does, when the example is reached.
    """
    loaded, _ = opened(model, load, "capture_each")
    model = loaded if loaded is not None else model
    common: dict[str, Any] = {
        "layers": layers, "heads": heads, "keep": keep, "evaluate": evaluate, "max_bytes": max_bytes,
    }  # fmt: skip
    single = isinstance(examples, (str, os.PathLike, Mapping)) or hasattr(examples, "ndim") or hasattr(examples, "keys")
    stream: Iterable[Any] = [examples] if single else examples
    if not isinstance(stream, Iterable):
        raise TypeError(f"examples: got {type(examples).__name__}, expected an iterable of examples or batches")

    if overwrite and store is None:
        raise ValueError("overwrite: got True without store=, expected the folder to write to")
    read: dict[str, Any] = {"tokenizer": tokenizer, "processor": processor, "max_length": max_length}

    def run() -> Iterator[Capture]:
        for item in stream:
            if isinstance(item, (str, Path)) or not _is_batch(item):
                yield capture(model, item, **read, **common)
            else:
                yield from _batch(model, item, tokenizer, check_padding, **common)

    def stored(series: Series) -> Iterator[Capture]:
        for item in stream:
            batch = not isinstance(item, (str, Path)) and _is_batch(item)
            for example in range(_examples(model, item, tokenizer)) if batch else (None,):
                into: dict[str, Any] = {"store": series.next(), "overwrite": overwrite, "example": example}
                yield capture(model, item, **read, **common, **into)
        series.finish()

    return run() if store is None else stored(Series(store_path(store)))


def _examples(model: Any, item: Any, tokenizer: Any) -> int:
    """How many examples a batch has."""
    need("torch", "torch")
    from pyattnorg.capture import running

    loaded = model if isinstance(model, LoadedModel) else None
    net = running.unwrap(loaded.model if loaded is not None else model)
    return _size(prepare(net, item, loaded=loaded, tokenizer=tokenizer))


def _size(call: Call) -> int:
    from pyattnorg.capture.layout import tensors_in

    sizes = {int(x.shape[0]) for x in tensors_in([*call.args, *call.kwargs.values()]) if x.ndim}
    if len(sizes) != 1:
        raise CaptureError(
            f"examples: got a batch whose tensors have {sorted(sizes)} examples, expected one number; pass it to "
            "capture() with example="
        )
    return sizes.pop()


def _is_batch(item: Any) -> bool:
    if isinstance(item, (list, tuple)):
        return bool(item) and not all(isinstance(x, str) for x in item)
    return hasattr(item, "keys") or hasattr(item, "ndim")


def _batch(
    model: Any, item: Any, tokenizer: Any, check_padding: bool, *, layers: LayerChoice, heads: HeadChoice,
    keep: Sequence[str], evaluate: bool, max_bytes: int | None,
) -> Iterator[Capture]:  # fmt: skip
    need("torch", "torch")
    from pyattnorg.capture import running

    loaded = model if isinstance(model, LoadedModel) else None
    net = running.unwrap(loaded.model if loaded is not None else model)
    if tokenizer is None and loaded is not None and loaded.library == "transformers" and not loaded.takes_images:
        tokenizer = loaded.tokenizer
    call = prepare(net, item, loaded=loaded, tokenizer=tokenizer)
    keeping, selection = Keeping.of(keep), Selection.of(layers, heads)
    recorders = [running.recorder(net, selection, keeping, i, max_bytes) for i in range(_size(call))]
    output, recorders = running.run(net, recorders, call, evaluate=evaluate)
    recorders.reverse()
    while recorders:  # each is let go of before the next capture is made
        recorder = recorders.pop()
        tape = Tape(recorder, Patches.of(net), None, tokenizer, special_ids(tokenizer))
        found = tape.capture(output=output if "output" in keeping else None)
        if check_padding:
            compare_alone(net, recorder, call, found, evaluate)
        yield found


__all__ = ["capture_each"]
