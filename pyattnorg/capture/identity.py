"""Whose attention a store holds: everything that two captures must share to have the same maps."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pyattnorg._version import __version__
from pyattnorg.capture.inputs import Call
from pyattnorg.capture.keeping import Keeping
from pyattnorg.capture.select import Selection

_LIBRARIES = ("torch", "transformers", "timm", "numpy", "zarr")


def job_of(
    model: nn.Module,
    call: Call,
    selection: Selection,
    keeping: Keeping,
    *,
    name: str,
    revision: str | None,
    tokenizer: Any,
    tokens: tuple[str, ...] | None,
    evaluate: bool,
) -> dict[str, Any]:
    """Model, revision, weights, tokenizer, input, options and libraries, as JSON."""
    first = next(iter(model.parameters()), None)
    config = getattr(model, "config", None)
    return {
        "model": {"class": type(model).__name__, "name": name, "revision": revision or _commit(config)},
        "configuration": _digest_text(_configuration(model, config)),
        "weights": _digest_state(model),
        "tokenizer": None if tokenizer is None else _digest_text(_vocabulary(tokenizer)),
        "input": _digest_inputs(call),
        "options": {
            "example": call.example, "keep": sorted(keeping.kinds - {"output"}), "selection": selection.text,
            "cut": keeping.cut.text, "dtype": keeping.dtype, "evaluate": evaluate or not model.training,
            "tokens": None if tokens is None else _digest_text("\n".join(tokens)),
        },
        "device": "cpu" if first is None else str(first.device),
        "threads": torch.get_num_threads(),
        "libraries": {"pyattnorg": __version__} | {n: v for n in _LIBRARIES if (v := _version(n)) is not None},
    }  # fmt: skip


def _commit(config: Any) -> str | None:
    found = getattr(config, "_commit_hash", None)
    return found if isinstance(found, str) else None


def _configuration(model: nn.Module, config: Any) -> str:
    to_dict = getattr(config, "to_dict", None)
    if callable(to_dict):
        said = dict(to_dict())
        said["attn_implementation"] = getattr(config, "_attn_implementation", None)
        said.pop("transformers_version", None)
        return json.dumps(said, sort_keys=True, default=str)
    return repr(model)


def _vocabulary(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and hasattr(backend, "to_str"):
        return str(backend.to_str())
    get = getattr(tokenizer, "get_vocab", None)
    return json.dumps(get(), sort_keys=True) if callable(get) else type(tokenizer).__name__


def _digest_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _digest_state(model: nn.Module) -> str:
    """SHA-256 over names, kinds and bytes of all parameters and buffers."""
    running = hashlib.sha256()
    seen: dict[int, str] = {}
    for kind, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
        for name, x in tensors:
            if id(x) in seen:
                continue
            seen[id(x)] = name
            running.update(f"{kind} {name} ".encode())
            _update(running, x)
    return running.hexdigest()


def _digest_inputs(call: Call) -> str:
    running = hashlib.sha256()
    _walk(running, (call.args, call.kwargs))
    return running.hexdigest()


def _walk(running: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        _update(running, value)
    elif isinstance(value, Mapping):
        for name in sorted(value, key=str):
            running.update(f"{name}=".encode())
            _walk(running, value[name])
    elif isinstance(value, (list, tuple)):
        running.update(f"{type(value).__name__}{len(value)}(".encode())
        for item in value:
            _walk(running, item)
    elif value is None or isinstance(value, (bool, int, float, str)):
        running.update(f"{value!r};".encode())
    else:
        running.update(f"{type(value).__name__};".encode())


def _update(running: Any, x: Tensor) -> None:
    """Take in a tensor's kind and bytes, a bounded number at a time."""
    running.update(f"{x.dtype} {tuple(x.shape)};".encode())
    if x.numel() == 0 or x.is_meta:
        return
    if x.is_quantized or x.layout != torch.strided:
        running.update(repr(x).encode())
        return
    flat = x.detach().contiguous().reshape(-1)
    step = 1 << 24
    for start in range(0, flat.numel(), step):
        part = flat[start : start + step]
        part = torch.view_as_real(part).reshape(-1) if part.is_complex() else part
        running.update(part.view(torch.uint8).cpu().numpy().data)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


__all__ = ["job_of"]
