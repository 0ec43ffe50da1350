"""Heads of all networks in one place, as many of each, where these were given the same tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyattnorg.affinity import dual_affinity
from pyattnorg.comparison.chance import p_value
from pyattnorg.comparison.draws import HEADS, Draw, Positions, draw_of, drawn_heads, filled, stream
from pyattnorg.comparison.networks import Network
from pyattnorg.diffusion import diffusion_map
from pyattnorg.head_table import Heads
from pyattnorg.questionnaire import Questionnaire
from pyattnorg.threads import one_blas_thread

Floats = NDArray[np.float64]
NEIGHBOURS = 5
TIE = 1e-9


class JointPair(NamedTuple):
    """Two networks in the joint embedding.

    ``energy`` is the energy distance of their heads over twice the mean distance across, ``own`` the share of a head's
    nearest that are of its own network, ``by_chance`` the share of its network's among all other heads.
    """

    energy: float
    energy_p: float
    own: float
    own_p: float
    by_chance: float


class Joint(NamedTuple):
    """Joint embedding of heads: `network` and `label` of each, tree `distances` and diffusion `coordinates` of all."""

    network: NDArray[np.int64]
    labels: tuple[str, ...]
    layers: NDArray[np.int64]
    distances: Floats
    coordinates: Floats
    pairs: Mapping[tuple[int, int], JointPair]


def joint_of(
    networks: Sequence[Network],
    size: tuple[int, int, int],
    positions: Positions,
    draws: Sequence[int],
    options: Mapping[str, Any],
    *,
    n_resamples: int,
    seed: int,
) -> Joint:
    """Organise the heads of all networks together, on every draw of every input, and average their distances."""
    heads = [
        np.arange(network.n_heads)
        if network.n_heads == size[2]
        else drawn_heads(network.inputs[0].heads, size[2], stream(seed, 0, 0, HEADS))
        for network in networks
    ]
    n = sum(len(some) for some in heads)
    total, count = np.zeros((n, n)), 0
    for at, number in ((i, d) for i, of_input in enumerate(draws) for d in range(of_input)):
        parts = [
            comparable(draw_of(network.inputs[at], size, positions, seed, at, number, some))
            for network, some in zip(networks, heads)
        ]
        fitted = Questionnaire(**options).fit(np.concatenate(parts, 2))
        found = np.asarray(fitted.distances_[2], np.float64)
        middle = float(np.median(found[np.triu_indices(n, 1)])) or float(found.max())
        total += found / (middle or 1.0)
        count += 1
    distances = total / count
    tables = [network.inputs[0].heads.take(some) for network, some in zip(networks, heads)]
    owner = np.repeat(np.arange(len(networks)), [len(some) for some in heads])
    pairs = {}
    for a, b in combinations(range(len(networks)), 2):
        use = np.flatnonzero((owner == a) | (owner == b))
        strata = depth_strata([tables[a], tables[b]])  # of these two: a third network has no say
        with one_blas_thread():
            pairs[a, b] = compared(
                distances[np.ix_(use, use)], owner[use] == a, strata, n_resamples=n_resamples, seed=seed
            )
    k = min(3, n - 1)
    coordinates = np.asarray(diffusion_map(dual_affinity(distances), n_components=k).coordinates, np.float64)
    labels = tuple(label for table in tables for label in table.labels)
    return Joint(owner, labels, np.concatenate([t.layer for t in tables]), distances, coordinates, pairs)


def comparable(draw: Draw) -> NDArray[np.floating[Any]]:
    """Weights as they are; scores less the mean of every row, which softmax cannot see, over their root mean square."""
    if draw.kind == "weights":
        return draw.values
    seen = np.broadcast_to(draw.visible, draw.values.shape)
    x = np.where(seen, draw.values, 0).astype(np.float64)
    scale = float(np.abs(x).max()) or 1.0
    x /= scale
    x = np.where(seen, x - x.sum(1, keepdims=True) / np.maximum(seen.sum(1, keepdims=True), 1), 0)
    size = np.sqrt(np.square(x).sum() / seen.sum())
    return filled(x / size if size > 1e-12 else np.zeros_like(x), seen, draw.kind).astype(draw.values.dtype)


def depth_strata(tables: Sequence[Heads]) -> NDArray[np.int64]:
    """Which stretch of depth every head lies in, of as many as the network with the fewest layers has."""
    ranks = []
    for table in tables:
        group = np.unique(np.array(table.group), return_inverse=True)[1]
        ranks.append(np.unique(np.stack([group, table.layer], 1), axis=0, return_inverse=True)[1].reshape(-1))
    fewest = min(int(rank.max()) + 1 for rank in ranks)
    return np.concatenate([rank * fewest // (int(rank.max()) + 1) for rank in ranks])


def compared(
    distances: Floats, first: NDArray[np.bool_], strata: NDArray[np.int64], *, n_resamples: int, seed: int
) -> JointPair:
    """Energy distance and own neighbours of two sets of points, tested by permuting their labels within strata."""
    labels = shuffled_labels(first, strata, n_resamples, np.random.default_rng(seed)).astype(np.float64)
    other = 1 - labels
    n_a, n_b = int(first.sum()), int((~first).sum())
    inside_a = ((labels @ distances) * labels).sum(1) / n_a**2
    inside_b = ((other @ distances) * other).sum(1) / n_b**2
    across = ((labels @ distances) * other).sum(1) / (n_a * n_b)
    energy = np.where(across > 0, 1 - (inside_a + inside_b) / np.where(across > 0, 2 * across, 1), 0.0)
    near = neighbour_weights(distances)
    own = (((labels @ near.T) * labels).sum(1) + ((other @ near.T) * other).sum(1)) / len(first)
    by_chance = (n_a * (n_a - 1) + n_b * (n_b - 1)) / (len(first) * (len(first) - 1)) if len(first) > 1 else 1.0
    return JointPair(
        max(0.0, float(energy[0])),
        p_value(energy),
        float(own[0]),
        p_value(own),
        float(by_chance),
    )


def neighbour_weights(distances: Floats, k: int = NEIGHBOURS) -> Floats:
    """Rows that average over the k nearest points; all that are as near as the k-th take part."""
    n = len(distances)
    k = min(k, n - 1)
    apart = distances + np.diag(np.full(n, np.inf))
    reach = np.sort(apart, axis=1)[:, k - 1 : k] if k else np.zeros((n, 1))
    near = (apart <= reach * (1 + TIE)).astype(np.float64)
    weights: Floats = near / np.maximum(near.sum(1, keepdims=True), 1)
    return weights


def shuffled_labels(
    first: NDArray[np.bool_], strata: NDArray[np.int64], n: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Labels that changed places within strata, (n, points); the first row is what is there."""
    out = np.tile(first, (n, 1))
    for stratum in np.unique(strata):
        at = np.flatnonzero(strata == stratum)
        out[1:, at] = first[at][rng.random((n - 1, len(at))).argsort(1)]
    return out
