"""Compress a tensor to an error or to a size: trees, coefficients, mask and names in as few bytes as will do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from pyattnorg.arrays import Array
from pyattnorg.checks import number, one_of
from pyattnorg.compression.candidates import Candidate, best_axes
from pyattnorg.compression.compressed import ORIGINAL, Compressed
from pyattnorg.compression.intake import Intake, take_in
from pyattnorg.compression.quantize import largest_step
from pyattnorg.compression.ways import FactorWay, HaarWay, Way
from pyattnorg.network import NetworkTensor
from pyattnorg.organization import Organization
from pyattnorg.questionnaire import Questionnaire
from pyattnorg.shrinkage import noise_level
from pyattnorg.threads import one_blas_thread
from pyattnorg.trees import PartitionTree

# The way to go. None: before a step is known; inf: where there is no room but for what cannot be left out.
Settled: TypeAlias = Callable[["float | None"], Way]
LEAST = {"f4": 1e-6, "f8": 1e-12}  # errors that can be asked, above what rounding does
SHRINK = 0.995  # of the step, where rounding to the dtype took the error over what was asked; one over it for bytes
FAR = 1e9  # step over the norm, where nothing is kept
TRIES = 24  # times that it is made smaller
NOISE_STEP = 2.0  # in standard deviations of the noise: its own error then is a third of the noise's square


@one_blas_thread()  # sums and products end in other digits on several
def compress(
    network: NetworkTensor | Organization | Array,
    *,
    error: float | Literal["noise"] | None = None,
    ratio: float | None = None,
    trees: Sequence[PartitionTree | None] | None = None,
    axes: Literal["auto", "trees"] = "auto",
    form: Literal["haar", "factors", "auto"] = "haar",
    visible: Array | None = None,
) -> Compressed:
    """Keep the tri-Haar coefficients that matter, as few bytes as will do.

    Coefficients are rounded to whole steps (the smallest to 0), and what is left is coded by contexts: which of the
    three Haar functions a coefficient belongs to, and the coefficients above it (docs/compression.md).

    Parameters
    ----------
    network : NetworkTensor, Organization or array
        An organisation is compressed with its trees. Without trees, `pyattnorg.Questionnaire` finds them.
    error : float or "noise", optional
        Relative l2 error over visible cells that the result will not exceed, such as 0.05. ``"noise"``: coefficients
        up to the universal threshold (`pyattnorg.denoise`) become 0 and the others are rounded to less than the noise,
        so that what comes back is the tensor without its noise. All trees are used then, and coefficients kept.
    ratio : float, optional
        Instead of `error`: bytes of the whole tensor as float32 over those of the result, everything counted.
    trees : sequence of PartitionTree or None, optional
        One an axis; None keeps the entries of the axis as they are.
    axes : {"auto", "trees"}
        ``"auto"`` leaves the tree of an axis out where that takes fewer bytes, as it often does on attention weights;
        ``"trees"`` uses all.
    form : {"haar", "factors", "auto"}
        What is kept: coefficients of the tensor, or those of the singular vectors of every head in the Haar bases of
        queries and keys, which are fewer where heads have low rank, as scores often do. ``"auto"`` makes both and
        takes the better one (docs/compression-study.md).
    visible : bool array of the shape of an array or of its first two axes, optional
        Cells that count. Without it, -inf and the lowest numbers of model dtypes mark those that do not. Networks
        know theirs.

    Returns
    -------
    Compressed

    Raises
    ------
    ValueError
        Not exactly one of `error` and `ratio`; a ratio or error that cannot be had (the message says what can); NaN;
        trees that do not fit what is seen.
    TypeError
        No tensor; `visible` beside a network; `meta` that JSON does not have.
    """
    check_options(error, ratio, axes, form)
    found = take_in(network, trees, visible)
    if form == "factors" and found.values.ndim != 3:
        raise ValueError(f"form: got 'factors' for a tensor of {found.values.ndim} axes, expected queries, keys, heads")
    if ratio is None and error != "noise":
        error = number(error, "error", at_least=LEAST[found.about["dtype"]])
    whole = Candidate(found.values, found.seen, tuple(_trees(found)))
    if not whole.length:
        made = _made(found, next(_ways(found, whole, axes, "haar"))(np.inf), 1.0)  # there are no singular vectors
        return made if ratio is None else _no_larger(made, float(ratio))
    if error == "noise":
        return _denoised(found, whole)
    ways = _ways(found, whole, axes, form)
    if ratio is not None:
        return _best(lambda one: one.error, [partial(_of_ratio, found, way, float(ratio)) for way in ways])
    assert error is not None
    return _best(lambda one: one.nbytes, [partial(_of_error, found, way, float(error)) for way in ways])


def check_options(error: Any, ratio: Any, axes: str, form: str) -> None:
    """Refuse what no tensor can have."""
    if (error is None) == (ratio is None):
        raise ValueError("error: give error (such as 0.05) or ratio (such as 20), exactly one of the two")
    one_of(axes, "axes", ("auto", "trees"))
    one_of(form, "form", ("haar", "factors", "auto"))
    if ratio is not None:
        number(ratio, "ratio", above=0)
    elif isinstance(error, str) and error == "noise":
        if form == "factors":
            raise ValueError("form: got 'factors' with error='noise', expected 'haar': noise is found in coefficients")
    elif number(error, "error", at_least=LEAST["f8"]) >= 1:
        raise ValueError(f"error: got {error:g}, expected less than 1: an error of 1 is that of zeros alone")


def _best(by: Callable[[Compressed], float], makers: Sequence[Callable[[], Compressed]]) -> Compressed:
    """The best of what can be made; what the first one says if nothing can."""
    made, failed = [], []
    for maker in makers:
        try:
            made.append(maker())
        except ValueError as error:
            failed.append(error)
    if not made:
        raise failed[0]
    return min(made, key=by)


def _trees(found: Intake) -> list[PartitionTree | None]:
    """Those that were given, or new ones."""
    if found.trees is not None:
        return found.trees
    if found.values.ndim < 2:
        raise ValueError("trees: needed for a tensor of one axis, which has no others to be organised by; pass one")
    single = found.values.astype(found.about["dtype"])
    return list(Questionnaire().fit(single).trees_)


def _ways(found: Intake, whole: Candidate, axes: str, form: str) -> Iterator[Settled]:
    """The forms that were asked for; each says how it settles, once a step is known about."""
    auto = axes == "auto"
    bare = (None,) * found.values.ndim if auto else whole.trees

    def haar(step: float | None) -> Way:
        if step is None:
            return HaarWay(whole)
        whole.forget()
        if step == np.inf:
            return HaarWay(Candidate(found.values, found.seen, bare))
        return HaarWay(best_axes(whole, step) if auto else whole.filled(step))

    if form != "factors":
        yield haar
    if form != "haar" and found.values.ndim == 3:
        factors, without = FactorWay(found, whole.trees[:2]), FactorWay(found, bare[:2])
        yield lambda step: without if step == np.inf else factors


def _rms(found: Intake) -> float:
    seen = ... if found.seen is None else found.seen
    return float(np.linalg.norm(found.values[seen]) / np.sqrt(found.values.size))


def _of_error(found: Intake, settled: Settled, error: float) -> Compressed:
    """The result whose measured error, rounding to the dtype among it, is no more than asked."""
    step = _step_of_error(found, settled(None), error, 2 * error * _rms(found))
    way = settled(step)
    step = _step_of_error(found, way, error, step)
    for _ in range(TRIES):
        if way.measured(found, step) <= error:
            return _made(found, way, step)
        step *= SHRINK
    raise ValueError(
        f"error: got {error:g}, which {found.about['dtype']} does not hold; "
        f"the least is about {way.measured(found, step):.2g}"
    )


def _step_of_error(found: Intake, way: Way, error: float, first: float) -> float:
    step = largest_step(way.error, error, first)
    if step is None:
        raise ValueError(f"error: got {error:g}, which {found.about['dtype']} does not hold; ask for a larger one")
    return step


def _of_ratio(found: Intake, settled: Settled, ratio: float) -> Compressed:
    """The result of the least error that is no larger than asked."""
    room = ORIGINAL * float(np.prod(found.about["shape"])) / ratio
    first = _step_of_size(found, settled(None), room)
    way = settled(np.inf if first is None else first)
    step = _step_of_size(found, way, room)
    nothing = _no_larger(_made(found, way, FAR * _rms(found) * float(np.sqrt(found.values.size))), ratio)
    if step is None:
        return nothing
    for _ in range(TRIES):
        made = _made(found, way, step)
        if made.nbytes <= room:
            return made if made.error <= nothing.error else nothing
        step /= SHRINK
    return nothing


def _no_larger(nothing: Compressed, ratio: float) -> Compressed:
    if nothing.ratio < ratio:
        raise ValueError(
            f"ratio: got {ratio:g}, but names, mask and trees alone take {nothing.nbytes:,} bytes; "
            f"the largest here is {nothing.ratio:.4g}"
        )
    return nothing


def _step_of_size(found: Intake, way: Way, room: float) -> float | None:
    """The smallest step, about, whose file has room; None where there is none."""
    fineness = largest_step(lambda inverse: len(way.file(found, 1 / inverse, 0.0, sized=True)), room, 10 / _rms(found))
    return 1 / fineness if fineness else None


def _denoised(found: Intake, whole: Candidate) -> Compressed:
    """Universal threshold, steps that are less than the noise."""
    noise = noise_level(whole.coefficients, list(whole.trees))
    if not noise:
        raise ValueError(
            "error: got 'noise', but the finest coefficients show none (half of them are 0); give a number, such as .05"
        )
    threshold = noise * float(np.sqrt(2 * np.log(whole.values.size)))
    return _made(found, HaarWay(whole, threshold), NOISE_STEP * noise)


def _made(found: Intake, way: Way, step: float) -> Compressed:
    return Compressed(way.file(found, step, way.measured(found, step)))
