"""What the heads of a call give, and which entry of it is whose: all that is needed to change a head's output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyattnorg.capture.errors import UnsupportedAttentionError
from pyattnorg.capture.layout import Layout, Scene
from pyattnorg.capture.products import Factors


@dataclass(frozen=True)
class Context:
    """What attention gives: `values` with an axis of the heads' width, and the head of every entry.

    `head` is an integer tensor that broadcasts to `values` (a 1 in every axis that says nothing of the head); `width`
    is the axis of a head's own channels, a negative number.
    """

    values: Tensor
    head: Tensor
    width: int

    def channels(self, rows: Tensor) -> Tensor:
        """A row (of `rows`, (heads, width)) for every entry, by its head: broadcasts to `values`."""
        flat = rows[self.head.reshape(-1)]  # (entries, width)
        shape = [*self.head.shape]
        at = self.width + self.values.ndim
        spread = flat.reshape(*shape[:at], *shape[at + 1 :], rows.shape[1])
        return spread.movedim(-1, at)

    def numbers(self, per_head: Tensor) -> Tensor:
        """A number (of `per_head`, (heads,)) for every entry, by its head: broadcasts to `values`."""
        return per_head[self.head]

    def rows(self, heads: int) -> Tensor:
        """Everything that each head gave, (heads, rows, width)."""
        at = self.width + self.values.ndim
        owner = self.head.expand(*self.values.shape[:at], 1, *self.values.shape[at + 1 :]).movedim(at, -1).reshape(-1)
        flat = self.values.movedim(at, -1).reshape(len(owner), -1)
        order = torch.argsort(owner, stable=True)
        return flat[order].reshape(heads, -1, flat.shape[-1])


def of_heads(lead: Sequence[int], heads: int, name: str, values: Tensor) -> Tensor:
    """The head of every entry of a map's leading axes (all but queries and keys); broadcasts to them.

    Where several axes (windows, say) are as long as there are heads, the `values` (leading axes, keys, width) tell: the
    channels of a token's heads lie side by side in memory.

    Raises
    ------
    UnsupportedAttentionError
        Several axes could be that of the heads.
    """
    ones, device = [1] * len(lead), values.device
    if heads == 1:
        return torch.zeros(ones, dtype=torch.long, device=device)
    if len(lead) == 1 and lead[0] % heads == 0:
        return torch.arange(lead[0], device=device) % heads
    at = [i for i in range(1, len(lead)) if lead[i] == heads]
    if len(at) > 1 and values.ndim == len(lead) + 2 and values.stride(-1) == 1:
        at = [i for i in at if values.stride(i) == values.shape[-1]]
    if len(at) != 1:
        raise UnsupportedAttentionError(
            f"{name}: its maps have leading axes {tuple(lead)}, and which of them is that of its {heads} heads cannot "
            "be told; use an input of another size, so that only one has that length"
        )
    shape = [*ones]
    shape[at[0]] = heads
    return torch.arange(heads, device=device).reshape(shape)


def in_front(shape: Sequence[int], scene: Scene) -> Layout:
    """How many heads a map has, whatever else its leading axes are; nothing is said of batch and windows."""
    lead, said, around = [int(n) for n in shape[:-2]], scene.head_count(), scene.head_count_around()
    heads = said if said is not None and (said in lead[1:] or len(lead) < 2) else around
    if len(lead) == 2:
        heads = lead[1]
    elif (len(lead) == 1 and (heads is None or lead[0] % heads)) or not lead:
        heads = 1
    elif heads is None:
        raise UnsupportedAttentionError(
            f"{scene.name}: its maps have leading axes {tuple(lead)} and it does not say how many heads it has; "
            "set num_heads on the module"
        )
    return Layout(1, heads, "batch, heads")


def at_product(found: Factors, x: Tensor, flipped: bool, out: Tensor, heads: int, name: str) -> Context:
    """The context where weights `x` weigh values: `out` is their product, in a matmul or an einsum."""
    lead = of_heads(x.shape[:-2], heads, name, found.right if x is found.left else found.left)
    if found.equation is None:
        # flipped weights come second, and the product has the width before the queries
        width = -1 if x is found.left else -2
        return Context(out, lead[..., None, None], width)
    mine, other, labels = found.equation
    if x is found.right and x is not found.left:
        mine, other = other, mine
    leading = mine[:-2]
    kept = [label for label in labels if label in leading]
    gone = [i for i, label in enumerate(leading) if label not in labels and lead.shape[i - len(leading)] > 1]
    own = [label for label in labels if label in other and label not in mine]
    if gone or len(own) != 1 or len(leading) != lead.ndim:
        raise UnsupportedAttentionError(
            f"{name}: weighs values by an einsum {mine},{other}->{labels} that mixes heads; they cannot be changed one "
            "by one"
        )
    order = [leading.index(label) for label in kept]
    moved = lead.permute(*order, *(i for i in range(lead.ndim) if i not in order)).reshape(
        [lead.shape[i] for i in order]
    )
    index = iter(moved.shape)
    shape = [next(index) if label in leading else 1 for label in labels]
    return Context(out, moved.reshape(shape), labels.index(own[0]) - len(labels))


def at_module(out: Tensor, heads: int) -> Context:
    """The context where a module returns the heads side by side, (…, heads x width)."""
    split = out.reshape(*out.shape[:-1], heads, -1)
    return Context(split, torch.arange(heads, device=out.device)[:, None], -1)


__all__ = ["Context", "at_module", "at_product", "in_front", "of_heads"]
