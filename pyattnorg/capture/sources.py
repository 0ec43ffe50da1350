"""Queries and keys of a call as they are kept: of the wanted heads and queries, keys once for heads that share them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pyattnorg.arrays import FloatArray
from pyattnorg.capture.maths import wide
from pyattnorg.capture.qk import QueriesKeys
from pyattnorg.capture.slots import Slot


def products(
    slot: Slot, q: Tensor, k: Tensor, scale: float, hidden: Tensor | None, bias: Tensor | None, sinks: int = 0
) -> QueriesKeys | None:
    """What `maths.attend` made the scores of, if it is to be kept; `q`, `k` (heads, n, d) are of the wanted heads."""
    if "qk" not in slot.keeping:
        return None
    _, first, key_head = np.unique(slot.kv_group, return_index=True, return_inverse=True)
    if len(k) == 1:
        first, key_head = np.zeros(1, np.int64), np.zeros(len(slot.heads), np.int64)
    if bias is not None:
        bias = wide(bias) if hidden is None else wide(bias).masked_fill(hidden, 0.0)
        bias = bias if bool((bias != 0).any()) else None
    if bias is not None and bias.stride(0) == 0:
        bias = bias[:1]
    if bias is not None:
        columns = k.shape[1]
        bias = bias.expand(bias.shape[0], q.shape[1], columns)
    dtype = slot.keeping.dtype
    return QueriesKeys(
        queries=_array(q, dtype),
        keys=_array(k[torch.as_tensor(first, device=k.device)], dtype),
        key_head=key_head.reshape(-1).astype(np.int64),
        scale=scale,
        bias=None if bias is None else _array(bias, dtype),
        sinks=sinks,
    )


def _array(x: Tensor, dtype: str | None) -> FloatArray:
    own = wide(x.detach()).cpu().contiguous().clone().numpy()
    return np.asarray(own if dtype is None else own.astype(dtype))


__all__ = ["products"]
