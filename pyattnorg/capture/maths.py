"""Scores and weights recomputed from queries and keys, out of sight of every recorder and of autograd."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@contextlib.contextmanager
def unseen(device: torch.device, *, autocast: bool = False) -> Iterator[None]:
    """No gradients, no torch function modes and, unless `autocast` is to stay, full precision."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch._C.DisableTorchFunction())
        if not autocast and torch.is_autocast_enabled(device.type):
            stack.enter_context(torch.autocast(device.type, enabled=False))
        yield


def wide(x: Tensor) -> Tensor:
    """Float64 stays, everything else becomes float32: half precision overflows where scores are large."""
    return x if x.dtype == torch.float64 else x.float()


@dataclass(frozen=True)
class Maps:
    """One example's attention: (heads, queries, keys), and the mass per query that went to no key."""

    scores: Tensor  # bias in, masks not applied: raw under the mask
    weights: Tensor  # all columns, those of sinks included
    hidden: Tensor | None
    sinks: int = 0

    def take(self, take: Callable[[Tensor], Tensor]) -> Maps:
        """The maps of some heads."""
        hidden = None if self.hidden is None else take(self.hidden)
        return Maps(take(self.scores), take(self.weights), hidden, self.sinks)

    def context(self, values: Tensor) -> Tensor:
        """What the attention gives: weights times values, (heads, queries, width)."""
        return self.weights @ values


def attend(
    q: Tensor, k: Tensor, scale: float, hidden: Tensor | None = None, bias: Tensor | None = None, sinks: int = 0
) -> Maps:
    """Scores and weights of queries (heads, n, d) and keys (heads, m, d); `sinks` counts trailing columns of no token.

    `bias` is added except where a cell is hidden, so that scores there are those from before masking.
    """
    scores = torch.matmul(wide(q), wide(k).transpose(-2, -1)).mul_(scale)
    if bias is not None:
        bias = wide(bias)
        scores = scores + (bias if hidden is None else bias.masked_fill(hidden, 0.0))
    masked = scores if hidden is None else scores.masked_fill(hidden, -torch.inf)
    weights = torch.softmax(masked, -1)
    if hidden is not None:
        weights = weights.masked_fill(hidden, 0.0)  # also rows that see nothing, which softmax makes NaN
    return Maps(scores, weights, hidden, sinks)


def output_error(ours: Tensor, theirs: Tensor, hidden: Tensor | None) -> float:
    """Largest difference between outputs (…, queries, width), relative to their size, over rows that see something."""
    theirs = wide(theirs)
    size = max(float(theirs.abs().nan_to_num(0.0, 0.0, 0.0).max()), 1e-6) if theirs.numel() else 1.0
    gap = (ours - theirs).abs()
    if hidden is not None:
        sees = ~hidden.all(-1, keepdim=True)
        gap = torch.where(sees, gap, 0.0) if sees.shape[-2] in (1, gap.shape[-2]) else gap
    worst = gap.max() if gap.numel() else torch.zeros(())
    return float(worst) / size


def tolerance(dtype: torch.dtype, terms: int = 1) -> float:
    """Rounding to expect of a result of this dtype, relative to its size; sums are long, and kernels differ.

    Of a mean of `terms` keys it grows with their root: the mean of values that differ shrinks so, their rounding does
    not. Measured of flat attention: 1.1e-6 of 512 keys, 6.4e-6 of 20,000.
    """
    eps = float(torch.finfo(dtype).eps)
    if dtype not in (torch.float32, torch.float64):
        return 8 * eps  # of the result itself, which is rounded at the end
    return 64 * eps * max(1.0, math.sqrt(terms / 512))


__all__ = ["Maps", "attend", "output_error", "tolerance", "unseen", "wide"]
