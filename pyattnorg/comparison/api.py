"""`compare`: two or more networks, measured in one size, and what chance says of their differences."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from pyattnorg.checks import one_of, whole
from pyattnorg.comparison.distance import Bools, chance_of, counted_parts, distance_of, features_of
from pyattnorg.comparison.draws import NULL, Null, Positions, draw_of, null_of, stream
from pyattnorg.comparison.joint import joint_of
from pyattnorg.comparison.networks import Network, are_paired, are_shared, common_size, read_networks
from pyattnorg.comparison.quantities import Measured, measure
from pyattnorg.comparison.result import Comparison, Pair, Portrait, portrait_of
from pyattnorg.progress import Progress, Stages
from pyattnorg.questionnaire import Questionnaire
from pyattnorg.threads import one_blas_thread

TOTAL_DRAWS = 12  # of a network, spread over its inputs, where no number is asked for
JOINT_DRAWS = 6


def compare(
    *networks: Any,
    names: Sequence[str] | None = None,
    size: Sequence[int] | None = None,
    n_draws: int | None = None,
    positions: Positions = "run",
    null: Null = "row",
    shared: bool | None = None,
    paired: bool | None = None,
    n_resamples: int = 1999,
    random_state: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Comparison:
    """Compare how the attention of networks is organised, whatever their numbers of tokens and heads.

    All are looked at in sub-tensors of one size, each set against itself with the cells of every row permuted. What is
    measured, the distance, and what would count as different is fixed in docs/compare.md. Inputs are the units of
    chance: give each network as a list of tensors on six inputs or more; with one input there are no p values, but for
    the joint embedding. Two networks of MiniLM's size take some ten seconds on one core, each further one half of that.

    Parameters
    ----------
    *networks : NetworkTensor, Organization, array (queries, keys, heads), or list of these
        Two or more. A list is one network on several inputs. All scores or all weights; an array counts as scores.
    names : sequence of str, optional
        Without it the model names that tensors bring along, or letters.
    size : (int, int, int), optional
        Queries, keys and heads of the sub-tensors; by default the least of any network, at most 64, 64 and 72.
    n_draws : int, optional
        Sub-tensors of every input; by default 12 of a network, divided among its inputs, and one at least. An input
        that has just this size is drawn as often, each time with another null.
    positions : {"run", "scattered"}
        Tokens that are neighbours, or any; see docs/compare.md.
    null : {"row", "head", "tensor"}
        Among which visible cells the null permutes.
    shared : bool, optional
        Whether input i is the same tokens for every network: then heads are embedded together, as many of each as
        `size` has. By default where the tensors name their tokens, and alike (and, of images, name one input in
        ``meta["input"]``). Arrays do not, so it has to be said.
    paired : bool, optional
        Whether input i is the same for every network, such as one text in the tokens of each. By default where
        `shared`, or where ``meta["input"]`` says so.
    n_resamples : int
        Of bootstraps and permutation tests.
    random_state : int
        Seed of draws, nulls and resampling, and of trees that are cut at random.
    progress : callable, optional
        Called as ``progress(stage, done, total)``.
    **options
        Those of `pyattnorg.Questionnaire`.

    Returns
    -------
    Comparison
        With tables, distances, `summary`, `to_frame`, `plot`.

    Raises
    ------
    ValueError
        Fewer than two networks, different kinds, a size that is not there, lists of tensors with different heads.
    TypeError
        A capture with several tensors, a file name, what is no tensor, an unknown option.

    Warns
    -----
    UserWarning
        An input that is there twice; one key, among which nothing can change places.
    """
    one_of(positions, "positions", ("run", "scattered"))
    one_of(null, "null", ("row", "head", "tensor"))
    n_resamples = whole(n_resamples, "n_resamples", at_least=100)
    seed = whole(random_state, "random_state", at_least=0)
    known = Questionnaire().get_params()
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise TypeError(f"{unknown[0]}: no option of compare or of Questionnaire")
    if "given" in np.atleast_1d(np.asarray(options.get("tree"), object)).tolist():
        raise ValueError("tree: got 'given', expected another kind: every sub-tensor gets trees of its own")
    options = {"random_state": seed} | options  # trees that are cut at random have the seed of all else
    read = read_networks(networks, names)
    shape = common_size(read, size)
    if shape[1] == 1:
        warnings.warn(
            "size: got one key, among which nothing can change places; contrasts with the null by rows are 0 then. "
            "Give longer inputs, or a larger size",
            UserWarning,
            stacklevel=2,
        )
    is_shared = are_shared(read, shared)
    is_paired = are_paired(read, paired, shared=is_shared)
    each = None if n_draws is None else whole(n_draws, "n_draws", at_least=1)
    counts = [each or -(-TOTAL_DRAWS // len(network.inputs)) for network in read]

    stages = Stages(progress, False, sum(n * len(net.inputs) for n, net in zip(counts, read)) + is_shared)
    features, portraits = [], []
    for network, n in zip(read, counts):
        measured = _measured(network, n, shape, positions, null, seed, options, stages)
        rows = np.array([features_of(draws) for draws, _ in measured])
        features.append(rows)
        portraits.append(portrait_of(network, measured, rows, n_resamples=n_resamples, seed=seed))
    joint = None
    if is_shared:
        stages.begin("joint embedding")
        draws = _joint_draws(read, shape)
        joint = joint_of(read, shape, positions, draws, options, n_resamples=n_resamples, seed=seed)
    stages.end()
    counted = counted_parts(features)
    pairs = {
        (a, b): _pair(portraits, features, a, b, counted, paired=is_paired, n_resamples=n_resamples, seed=seed)
        for a, b in combinations(range(len(read)), 2)
    }
    return Comparison(
        kind=read[0].inputs[0].kind,
        size=shape,
        null=null,
        positions=positions,
        paired=is_paired,
        shared=is_shared,
        portraits=tuple(portraits),
        pairs=pairs,
        joint=joint,
    )


def _measured(
    network: Network,
    n_draws: int,
    size: tuple[int, int, int],
    positions: Positions,
    null: Null,
    seed: int,
    options: dict[str, Any],
    stages: Stages,
) -> list[tuple[list[Measured], list[Any]]]:
    """Of every input what was measured in its draws, and which heads were in each."""
    out = []
    for at, tensor in enumerate(network.inputs):
        found, heads = [], []
        for number in range(n_draws):
            stages.begin(f"{network.name}, input {at + 1} of {len(network.inputs)}")
            draw = draw_of(tensor, size, positions, seed, at, number, None)
            found.append(measure(draw.values, null_of(draw, null, stream(seed, at, number, NULL)), options))
            heads.append(draw.heads)
        out.append((found, heads))
    return out


def _joint_draws(networks: Sequence[Network], size: tuple[int, int, int]) -> list[int]:
    """Draws of every input for the joint embedding: one where all tokens are in it."""
    some = max(1, JOINT_DRAWS // len(networks[0].inputs))
    return [1 if tensor.shape[:2] == size[:2] else some for tensor in networks[0].inputs]


def _pair(
    portraits: Sequence[Portrait],
    features: Sequence[Any],
    a: int,
    b: int,
    counted: Bools,
    *,
    paired: bool,
    n_resamples: int,
    seed: int,
) -> Pair:
    with one_blas_thread():
        chance = chance_of(features[a], features[b], paired=paired, n_resamples=n_resamples, seed=seed, counted=counted)
    shift = features[a].mean(0) - features[b].mean(0)
    return Pair.of(portraits[a], portraits[b], shift, float(distance_of(shift, counted)), chance, counted)
