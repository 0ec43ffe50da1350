"""Compress a tensor to an error or to a size: trees, coefficients, mask and names in as few bytes as will do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pyattnorg.arrays import Array
from pyattnorg.checks import number, one_of
from pyattnorg.compression.candidates import Candidate, best_axes
from pyattnorg.compression.compressed import ORIGINAL, Compressed
from pyattnorg.compression.intake import Intake, take_in
from pyattnorg.compression.quantize import Quantised, largest_step, quantised, restored
from pyattnorg.compression.stored import file_bytes
from pyattnorg.haar import ihaar
from pyattnorg.network import NetworkTensor
from pyattnorg.organization import Organization
from pyattnorg.questionnaire import Questionnaire
from pyattnorg.shrinkage import noise_level
from pyattnorg.trees import PartitionTree

LEAST = {"f4": 1e-6, "f8": 1e-12}  # errors that can be asked, above what rounding does
SHRINK = 0.995  # of the step, where rounding to the dtype took the error over what was asked
TRIES = 24  # times that it is made smaller
NOISE_STEP = 2.0  # in standard deviations of the noise: its own error then is a third of the noise's square


def compress(
    network: NetworkTensor | Organization | Array,
    *,
    error: float | Literal["noise"] | None = None,
    ratio: float | None = None,
    trees: Sequence[PartitionTree | None] | None = None,
    axes: Literal["auto", "trees"] = "auto",
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
        so that what comes back is the tensor without its noise.
    ratio : float, optional
        Instead of `error`: bytes of the whole tensor as float32 over those of the result, everything counted.
    trees : sequence of PartitionTree or None, optional
        One an axis; None keeps the entries of the axis as they are.
    axes : {"auto", "trees"}
        ``"auto"`` leaves the tree of an axis out where that takes fewer bytes, as it often does on attention weights;
        ``"trees"`` uses all.
    visible : bool array of the shape of an array or of its first two axes, optional
        Cells that count. Without it, -inf and the lowest numbers of model dtypes mark those that do not. Networks
        know theirs.

    Returns
    -------
    Compressed

    Raises
    ------
    ValueError
        Not exactly one of `error` and `ratio`; a ratio or error that cannot be had (the message says what can); NaN.
    """
    if (error is None) == (ratio is None):
        raise ValueError("error: give error (such as 0.05) or ratio (such as 20), exactly one of the two")
    one_of(axes, "axes", ("auto", "trees"))
    found = take_in(network, trees, visible)
    if ratio is not None:
        ratio = number(ratio, "ratio", above=0)
    elif error != "noise":
        least = LEAST[found.about["dtype"]]
        error = number(error, "error", at_least=least)
        if error >= 1:
            raise ValueError(f"error: got {error:g}, expected less than 1, which keeps nothing")
    whole = Candidate(found.values, found.seen, tuple(_trees(found)))
    if not whole.length:
        return _made(found, whole, quantised(whole.coefficients, 1.0))
    if error == "noise":
        return _denoised(found, whole)
    if ratio is not None:
        return _of_ratio(found, whole, ratio, axes)
    assert error is not None
    step = _step_of_error(found, whole, error, 2 * error * _rms(whole))
    best = best_axes(whole, step) if axes == "auto" else whole.filled(step)
    if best is not whole:
        step = _step_of_error(found, best, error, step)
    return _of_error(found, best, step, error)


def _trees(found: Intake) -> list[PartitionTree | None]:
    """Those that were given, or new ones."""
    if found.trees is not None:
        return found.trees
    if found.values.ndim < 2:
        raise ValueError("trees: needed for a tensor of one axis, which has no others to be organised by; pass one")
    single = found.values.astype(found.about["dtype"])
    return list(Questionnaire().fit(single).trees_)


def _rms(one: Candidate) -> float:
    return one.length / float(np.sqrt(one.values.size))


def _step_of_error(found: Intake, one: Candidate, error: float, first: float) -> float:
    step = largest_step(lambda step: one.error(quantised(one.coefficients, step)), error, first)
    if step is None:
        raise ValueError(f"error: got {error:g}, which {found.about['dtype']} does not hold; ask for a larger one")
    return step


def _of_error(found: Intake, one: Candidate, step: float, error: float) -> Compressed:
    """The result whose measured error, rounding to the dtype among it, is no more than asked."""
    for _ in range(TRIES):
        q = quantised(one.coefficients, step)
        if _measured(found, one, q) <= error:
            return _made(found, one, q)
        step *= SHRINK
    raise ValueError(
        f"error: got {error:g}, which {found.about['dtype']} does not hold; "
        f"the least is about {_measured(found, one, q):.2g}"
    )


def _of_ratio(found: Intake, whole: Candidate, ratio: float, axes: str) -> Compressed:
    """The result of the least error that is no larger than asked."""
    room = ORIGINAL * float(np.prod(found.about["shape"])) / ratio
    if axes == "auto" and _nothing(found, whole).nbytes > room:  # trees alone are too many bytes
        whole = _bare(whole)
    nothing = _nothing(found, whole)
    if nothing.nbytes > room:
        raise ValueError(
            f"ratio: got {ratio:g}, but names, mask and trees alone take {nothing.nbytes:,} bytes; "
            f"the largest here is {nothing.ratio:.4g}"
        )
    step = _step_of_size(found, whole, room)
    best = best_axes(whole, step) if axes == "auto" else whole.filled(step)
    if best is not whole:
        step = _step_of_size(found, best, room)
    made = _made(found, best, quantised(best.coefficients, step))
    return made if made.nbytes <= room and made.error <= nothing.error else nothing


def _nothing(found: Intake, one: Candidate) -> Compressed:
    """The result that keeps no coefficient."""
    return _made(found, one, quantised(one.coefficients, 1e9 * one.length))


def _bare(whole: Candidate) -> Candidate:
    return Candidate(whole.values, whole.seen, (None,) * len(whole.trees))


def _step_of_size(found: Intake, one: Candidate, room: float) -> float:
    """The smallest step, about, whose file has room; there is one."""

    def size(fineness: float) -> float:
        return len(_bytes(found, one, quantised(one.coefficients, 1 / fineness), 0.0))

    fineness = largest_step(size, room, 10 / _rms(one))
    return 1 / fineness if fineness else 1e9 * one.length


def _denoised(found: Intake, whole: Candidate) -> Compressed:
    """Universal threshold, steps that are less than the noise."""
    noise = noise_level(whole.coefficients, list(whole.trees))
    if not noise:
        raise ValueError(
            "error: got 'noise', but the finest coefficients show none (half of them are 0); give a number, such as .05"
        )
    threshold = noise * float(np.sqrt(2 * np.log(whole.values.size)))
    return _made(found, whole, quantised(whole.coefficients, NOISE_STEP * noise, threshold))


def _made(found: Intake, one: Candidate, q: Quantised) -> Compressed:
    return Compressed(_bytes(found, one, q, _measured(found, one, q)))


def _bytes(found: Intake, one: Candidate, q: Quantised, error: float) -> bytes:
    return file_bytes(q, one.trees, found.mask, found.about, error)


def _measured(found: Intake, one: Candidate, q: Quantised) -> float:
    """Relative error of what will come back, in the dtype that it has then."""
    back: NDArray[np.float64] = ihaar(restored(q), list(one.trees)).astype(found.about["dtype"]).astype(np.float64)
    gap = back - one.values
    if one.seen is not None:
        gap = gap[one.seen]
    return float(np.linalg.norm(gap)) / (one.length or 1.0)
