"""Notes on what a model raises, where its own words do not say what is wrong with the inputs."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from torch import Tensor, nn

from pyattnorg.capture.inputs import Call

_IDS = ("input_ids", "decoder_input_ids")


def explain(error: Exception, model: nn.Module, call: Call) -> None:
    """Add to an error of the model what the inputs have to do with it; the error itself stays what it is."""
    if sys.version_info >= (3, 11):
        for note in _notes(model, call):
            error.add_note(note)


def _notes(model: nn.Module, call: Call) -> Iterator[str]:
    given = [x for x in (*call.args[:1], *(call.kwargs.get(n) for n in _IDS)) if isinstance(x, Tensor)]
    ids = [x for x in given if x.ndim == 2 and not x.is_floating_point() and x.numel()]
    if not ids:
        return
    longest, largest, least = (
        max(x.shape[1] for x in ids),
        max(int(x.max()) for x in ids),
        min(int(x.min()) for x in ids),
    )
    for name, module in model.named_modules():
        if not isinstance(module, nn.Embedding):
            continue
        last = name.rpartition(".")[2]
        if ("position" in last or last in ("wpe", "embed_positions")) and longest > module.num_embeddings:
            yield (
                f"inputs: got {longest} tokens, {name!r} has {module.num_embeddings} positions; cut the input "
                f"(max_length={module.num_embeddings} where it is text)"
            )
        words = "word" in last or "token" in last or last == "wte"
        if words and (largest >= module.num_embeddings or least < 0):
            yield (
                f"inputs: got token ids from {least} to {largest}, {name!r} has ids 0 to {module.num_embeddings - 1}; "
                "the tokenizer may be another model's"
            )


__all__ = ["explain"]
