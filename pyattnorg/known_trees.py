"""Trees that are known beforehand: the layers of a network, the neighbourhoods of an image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyattnorg.checks import whole
from pyattnorg.head_table import Heads
from pyattnorg.network import NetworkTensor
from pyattnorg.trees import PartitionTree


def layer_tree(network: NetworkTensor | Heads) -> PartitionTree:
    """The tree of a network's heads as it is built: parts of the model, layers, heads that share keys, heads.

    Levels that tell nothing apart are left out: that of the parts where the model has one, that of shared keys where
    none are. A head tree to start from, to keep (``Questionnaire(tree="given")``), or to compare with.

    Parameters
    ----------
    network : NetworkTensor or Heads
    """
    if not isinstance(network, (NetworkTensor, Heads)):
        raise TypeError(f"network: got {type(network).__name__}, expected a NetworkTensor or its heads")
    heads = network.heads if isinstance(network, NetworkTensor) else network
    part = _numbers(np.array(heads.group, dtype=str))
    layer = _numbers(np.stack([part, heads.layer]))
    keys = _numbers(np.stack([layer, heads.kv_group]))
    levels = [np.zeros(len(heads), np.int64)]
    for labels in (part, layer, keys, np.arange(len(heads))):
        if labels.max() > levels[-1].max():
            levels.append(labels)
    return PartitionTree.from_labels(np.stack(levels))


def _numbers(columns: NDArray[np.generic]) -> NDArray[np.int64]:
    """One number for every distinct entry of a column, or of several columns side by side."""
    numbers: NDArray[np.int64] = np.unique(columns, axis=-1, return_inverse=True)[1].reshape(-1)
    return numbers.astype(np.int64)


def quadtree(rows: int, cols: int, *, prefix: int = 0) -> PartitionTree:
    """Spatial tree of an image's patches, row by row: squares within squares.

    Every folder is cut in half along its rows and its columns, the first half the larger one where their number is
    odd; an image longer than it is wide is cut across alone until its folders are about square. A query or key tree
    for vision transformers, to start from, to keep (``Questionnaire(tree="given")``), or to compare with.

    Parameters
    ----------
    rows, cols : int
        Patches down and across.
    prefix : int
        Tokens before the patches, such as a class token and registers. They are a folder beside the image.
    """
    rows, cols = whole(rows, "rows", at_least=1), whole(cols, "cols", at_least=1)
    prefix = whole(prefix, "prefix", at_least=0)
    down, across = PartitionTree.dyadic(rows).labels, PartitionTree.dyadic(cols).labels
    depth = max(len(down), len(across))
    down, across = (np.concatenate([np.zeros((depth - len(t), t.shape[1]), np.int32), t]) for t in (down, across))
    image = (down[:, :, None].astype(np.int64) * cols + across[:, None]).reshape(depth, -1)
    if not prefix:
        return PartitionTree.from_labels(image)
    before = np.full((depth, prefix), rows * cols)
    if depth > 1:
        before[-1] += np.arange(prefix)  # one folder until the patches are alone too
    return PartitionTree.from_labels(np.concatenate([before, image], axis=1))
