"""Which heads of a module can go, and which can only be silenced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from pyattnorg.head_table import Heads
from pyattnorg.heads.anatomy import Anatomy, CannotPruneError, anatomies, refuse_unknown_weights
from pyattnorg.heads.choose import Choice
from pyattnorg.heads.means import HeadMeans
from pyattnorg.heads.surgery import Plan

Otherwise = Literal["refuse", "zero"]


def make_plans(
    model: nn.Module,
    choice: Choice,
    table: Heads | None,
    otherwise: Otherwise,
    means: HeadMeans | None,
    *,
    silence: bool = False,
) -> list[Plan]:
    """One plan a module that has chosen heads; `silence` takes none out and zeroes all.

    Raises
    ------
    CannotPruneError
        Heads that cannot be taken out, where `otherwise` is "refuse"; weights that several layers share, always.
    ValueError
        Heads that the model does not have.
    """
    plans = []
    for one in anatomies(model):
        gone = choice.among(one.place, one.layer, 0, one.heads)
        if not gone:
            continue
        _refuse_shared(model, one, table)
        shift = _shift(one, gone, means)
        plans.append(
            Plan(one, tuple(range(one.heads)), tuple(gone), shift) if silence else _plan(one, gone, otherwise, shift)
        )
    _require_understood(model, choice)
    return plans


def _plan(one: Anatomy, gone: Sequence[int], otherwise: Otherwise, shift: Tensor | None) -> Plan:
    everyone = range(one.heads)
    try:
        refuse_unknown_weights(one)
        removable = _removable(one, gone)
        left = sorted(set(gone) - set(removable))
        if left and otherwise == "refuse":
            size = one.heads // one.key_heads
            raise CannotPruneError(
                f"{one.path!r}: {size} heads share keys, and every group must keep as many heads as the others; "
                f"heads {left} of layer {one.layer} cannot go alone. Remove whole groups (say {_group(left[0], size)}) "
                "or the same number from each, or pass otherwise='zero', which silences those heads"
            )
    except CannotPruneError:
        if otherwise == "refuse":
            raise
        removable, left = [], list(gone)
    kept = tuple(h for h in everyone if h not in removable)
    return Plan(one, kept, tuple(left), shift)


def _removable(one: Anatomy, gone: Sequence[int]) -> list[int]:
    """Of the heads that are to go, those that can: whole groups of shared keys, and equal numbers of the others."""
    if one.key_heads == one.heads:
        return list(gone)
    size = one.heads // one.key_heads
    groups = [[h for h in gone if h // size == g] for g in range(one.key_heads)]
    whole = [g for g in groups if len(g) == size]
    others = [g for g in groups if len(g) < size]
    equal = min((len(g) for g in others), default=0)
    return sorted(h for g in whole for h in g) + sorted(h for g in others for h in g[:equal])


def _group(head: int, size: int) -> str:
    first = head // size * size
    return f"{first} to {first + size - 1}"


def _shift(one: Anatomy, gone: Sequence[int], means: HeadMeans | None) -> Tensor | None:
    """What the heads gave on average, behind the output projection."""
    if means is None:
        return None
    rows = means.at(one.place.module, one.layer)[list(gone)].reshape(-1)
    weight = one.out[1].weight.detach().double().cpu()
    weight = weight if isinstance(one.out[1], nn.Linear) else weight.T
    return weight[:, torch.tensor(one.columns(gone))] @ rows.cpu()


def _refuse_shared(model: nn.Module, one: Anatomy, table: Heads | None) -> None:
    """Refuse weights that are used more than once: taking a head out of one layer takes it out of all."""
    uses = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    shared = any(uses[id(p)] > 1 for _, linear in (*one.inward, one.out) for p in linear.parameters())
    if table is not None:
        layers = {layer for layer, module in zip(table.layer.tolist(), table.module, strict=True) if module == one.path}
        shared = shared or len(layers) > 1
    config = getattr(model, "config", None)
    told = getattr(config, "num_hidden_layers", None)
    groups = getattr(config, "num_hidden_groups", None)
    if isinstance(told, int) and isinstance(groups, int) and groups < told:
        shared = True
    if shared:
        raise CannotPruneError(
            f"{one.path!r} ({type(one.module).__name__}): several layers share its weights, so a head cannot be taken "
            "out of one of them; ablate_heads ablates it in one layer"
        )


def _require_understood(model: nn.Module, choice: Choice) -> None:
    """Say so where a head that was chosen is in no module that is understood."""
    lost = choice.lost()
    if not lost:
        return
    known = sorted({type(one.module).__name__ for one in anatomies(model)})
    mha = any(isinstance(m, nn.MultiheadAttention) for m in model.modules())
    why = (
        "torch.nn.MultiheadAttention has as many channels as its input, whatever its heads"
        if mha and not known
        else f"modules of it that are understood: {', '.join(known) or 'none'}"
    )
    raise CannotPruneError(
        f"heads: {', '.join(lost[:4])} cannot be found in the weights of {type(model).__name__} ({why}); ablate_heads "
        "works without touching weights"
    )


__all__ = ["Otherwise", "make_plans"]
