"""Which axis of a map is that of the examples, where sizes alone do not tell.

Heads may come before examples, merged with them or not; a module may go through its batch one by one, or through its
heads with all examples at once. Rows that were followed on their way through the model say whose each map is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pyattnorg.capture.errors import UnsupportedAttentionError
from pyattnorg.capture.layout import Batches, Layout, Scene
from pyattnorg.capture.positions import Rows


def unsure(layout: Layout, batches: Batches) -> bool:
    """Whether a map could be read in another way than `layout` says, for a batch of several examples."""
    if batches.several == 1 or layout.windowed is not None:
        return False
    return layout.kind != "batch, heads" or layout.batch in (1, layout.heads)


def by_examples(layout: Layout, rows: Rows | None, scene: Scene, batches: Batches) -> Layout:
    """The layout, or the one that the examples of the map's rows speak for.

    Raises
    ------
    UnsupportedAttentionError
        The map is that of one example alone.
    """
    owners = None if rows is None or rows.examples != batches.several else _owners(rows)
    if owners is None or not unsure(layout, batches):
        return layout
    own, heads = np.arange(batches.several), owners.size // batches.several
    if owners.size % batches.several == 0:
        lead = layout.kind if "," in layout.kind else "batch*heads" if heads > 1 else "batch"
        if np.array_equal(owners, np.repeat(own, heads)):
            return replace(layout, batch=len(own), heads=heads, kind=lead)
        if np.array_equal(owners, np.tile(own, heads)):
            return replace(layout, batch=len(own), heads=heads, kind="heads, batch" if "," in lead else "heads*batch")
    if (owners == owners[0]).all():
        raise UnsupportedAttentionError(
            f"{scene.name}: goes through a batch of {batches.several} one example at a time, and its maps are those of "
            "one each; pass one example at a time"
        )
    return layout


def heads_last(shape: Sequence[int], layout: Layout, rows: Rows | None, scene: Scene, batches: Batches) -> Layout:
    """The layout of a map that is to be changed head by head, if its heads do not come before its examples.

    Raises
    ------
    UnsupportedAttentionError
        They do, or the map is that of one example alone.
    """
    lead, heads = [int(n) for n in shape[:-2]], layout.heads
    if len(lead) == 1 and lead[0] % heads == 0:
        read = by_examples(Layout(lead[0] // heads, heads, "batch*heads"), rows, scene, batches)
    elif len(lead) == 2:
        said, around = scene.head_count(), scene.head_count_around()
        first = lead[0] == said and lead[1] not in (said, around)
        read = Layout(lead[1], lead[0], "heads, batch") if first else Layout(lead[0], lead[1], "batch, heads")
        read = read if first else by_examples(read, rows, scene, batches)
    else:
        return layout
    if read.kind == "batch":  # one head of every example
        return replace(layout, heads=1)
    if read.kind in ("heads, batch", "heads*batch"):
        raise UnsupportedAttentionError(
            f"{scene.name}: its maps have leading axes {tuple(lead)} with the {read.heads} heads before the "
            f"{read.batch} example(s), expected examples first; pass one example at a time"
            + ("" if read.batch > 1 else ", in maps (heads, queries, keys)")
        )
    return layout


def _owners(rows: Rows) -> NDArray[np.int64] | None:
    """The example of every map; None where rows of several examples are in one (then they are no examples)."""
    example = rows.example.reshape(-1, rows.example.shape[-1])
    owners = example.max(1)
    return owners if owners.size and ((example == owners[:, None]) | (example < 0)).all() else None


__all__ = ["by_examples", "heads_last", "unsure"]
