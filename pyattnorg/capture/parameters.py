"""Where a model's parameters lie, so that a product with one is not taken for queries and keys."""

from __future__ import annotations

import contextlib

from torch import Tensor, nn

from pyattnorg.capture.masks import has_values


def storages(model: nn.Module) -> set[int]:
    """Where parameters lie, so that views of them are known."""
    out = set()
    for p in model.parameters():
        with contextlib.suppress(RuntimeError, NotImplementedError, AttributeError):
            out.add(address(p))  # quantised or sharded parameters may have no storage
    return out - {0}


def address(x: Tensor) -> int:
    """Where a tensor's values lie; of one that has none, what stands for that."""
    storage = x.untyped_storage()
    return int(storage.data_ptr() if has_values(x) else storage._cdata)


__all__ = ["address", "storages"]
