"""Which heads to remove together: a head whose effect another one has, or undoes, can go."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray


def removal_order(
    effects: Callable[[Sequence[int]], NDArray[np.float64]], heads: int, stages: int, *, together: bool = True
) -> NDArray[np.int64]:
    """All heads in the order in which they are to go.

    Parameters
    ----------
    effects : callable
        For heads that are gone already, the derivatives of several losses by gates on all heads: (heads, losses).
    heads : int
    stages : int
        How often they are taken anew, each time an equal share of the heads has been removed.
    together : bool
        Whether effects of removed heads add up; without it each head has the mean size of its own effect alone, which
        is the importance of Michel et al. 2019 taken anew.

    Notes
    -----
    To first order a loss changes by minus the sum of the removed heads' effects, so that its mean square change is
    ``1_S' G 1_S`` with ``G`` the Gram matrix of effects over losses. Heads are added one by one to the set ``S`` where
    that is least. Two heads that do the same cost four times what one costs; two that undo each other cost nothing. A
    twin that is left alone has all of the effect that both had, which the next stage sees.
    """
    gone: list[int] = []
    for stage in range(1, stages + 1):
        upto = round(heads * stage / stages)
        if upto <= len(gone):
            continue
        rows = effects(gone)
        gram = rows @ rows.T / rows.shape[1] if together else np.zeros((heads, heads))
        cost = 0.5 * np.diag(gram) if together else np.abs(rows).mean(1)
        cost[gone] = np.inf
        while len(gone) < upto:
            head = int(np.argmin(cost))
            gone.append(head)
            cost += gram[head]
            cost[head] = np.inf
    return np.array(gone, np.int64)


__all__ = ["removal_order"]
