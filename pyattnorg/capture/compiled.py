"""Compiled code cannot be watched: compiled models are refused, functions that a forward compiles run as written."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from pyattnorg.capture.errors import UnsupportedAttentionError

_lock = threading.Lock()
_held: list[Any] = []  # one entry a capture that runs; the first holds torch's stance
_stance: Any = None


@contextlib.contextmanager
def as_written() -> Iterator[None]:
    """``torch.compile``d functions run eagerly, else the compiler would trace the recorder.

    The switch is torch's own and holds for the process, so the first capture sets it and the last one puts it back.
    """
    global _stance
    if "torch._dynamo" not in sys.modules:  # nothing was compiled in this process
        yield
        return
    with _lock:
        if not _held:
            _stance = torch.compiler.set_stance("force_eager")
        _held.append(None)
    try:
        yield
    finally:
        with _lock:
            _held.pop()
            if not _held:
                _stance.__exit__(None, None, None)
                _stance = None


def refuse_compiled(model: nn.Module) -> None:
    """Refuse a model with compiled or scripted modules in it."""
    for name, m in model.named_modules():
        where = f"model: {name!r}" if name else "model: it"
        if isinstance(m, torch.jit.ScriptModule):
            raise UnsupportedAttentionError(
                f"{where} is TorchScript, whose inside cannot be seen; pass the eager model"
            )
        if "_orig_mod" in m._modules or getattr(m, "_compiled_call_impl", None) is not None:
            raise UnsupportedAttentionError(
                f"{where} is compiled, and its inside cannot be seen; pass the uncompiled model"
            )


__all__ = ["as_written", "refuse_compiled"]
