"""The same numbers in any kind of array give the same result, of the kind that came in, and no input is written."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from inputs import FORMS, TORCH_FORMS, computing_dtype, random_tree
from numpy.typing import NDArray

import pyattnorg as pa
from pyattnorg import kernels
from pyattnorg.arrays import given, require_finite, to_numpy

TREES = [random_tree(n, n) for n in (6, 5, 4)]
_rng = np.random.default_rng(0)
TENSOR = _rng.integers(-8, 9, (6, 5, 4)).astype(float)  # whole numbers that every dtype holds
_half = _rng.integers(0, 9, (6, 6)).astype(float)
MATRIX = _half + _half.T
AFFINITY = MATRIX + 3 * np.eye(6)
DISTANCES = MATRIX * (1 - np.eye(6))

# Functions of one array: what they are given, and whether the result is an array of the kind that came in.
FUNCTIONS: dict[str, tuple[NDArray[np.float64], Callable[[Any], Any], bool]] = {
    "pairwise_l1": (TENSOR, pa.pairwise_l1, True),
    "pairwise_l1, y": (TENSOR, lambda x: pa.pairwise_l1(x, x), True),
    "tree_emd, one tree": (TENSOR[:, :, 0], lambda x: pa.tree_emd(x, TREES[1]), True),
    "tree_emd": (TENSOR, lambda x: pa.tree_emd(x, TREES[1:]), True),
    "cosine_affinity": (TENSOR, pa.cosine_affinity, True),
    "cosine_affinity, missing": (TENSOR, lambda x: pa.cosine_affinity(x, missing=0.0), True),
    "gaussian_affinity": (TENSOR, lambda x: pa.gaussian_affinity(x, neighbors=3), True),
    "dual_affinity": (DISTANCES, pa.dual_affinity, True),
    "flexible_tree": (AFFINITY, lambda x: pa.flexible_tree(x).labels, False),
    "binary_tree": (AFFINITY, lambda x: pa.binary_tree(x).labels, False),
    "diffusion_map": (AFFINITY, lambda x: pa.diffusion_map(x).coordinates, True),
    "haar": (TENSOR, lambda x: pa.haar(x, TREES), True),
    "haar, one axis": (TENSOR, lambda x: pa.haar(x, [None, TREES[1], None]), True),
    "haar, no axis": (TENSOR, lambda x: pa.haar(x, [None] * 3), True),
    "ihaar": (TENSOR, lambda x: pa.ihaar(x, TREES), True),
    "l1_entropy": (TENSOR, pa.l1_entropy, False),
    "effective_number": (TENSOR, pa.effective_number, False),
    "folder_averages": (TENSOR, lambda x: kernels.folder_averages(x, TREES[0]), True),
    "from_labels": (np.array([[0, 0, 0], [1, 1, 0], [2, 3, 4]], float), pa.PartitionTree.from_labels, False),
    "NetworkTensor": (TENSOR, lambda x: pa.NetworkTensor(x).values, False),
    "organize": (TENSOR, lambda x: pa.organize(x, n_iter=1).distances_[2], False),
    "Questionnaire.fit": (TENSOR, lambda x: pa.Questionnaire(1).fit(x).distances_[0], False),
    "Questionnaire.transform": (TENSOR, lambda x: pa.Questionnaire(1).fit(TENSOR).transform(x), True),
}


def _plain(x: Any) -> NDArray[Any]:
    """Any result as NumPy."""
    if isinstance(x, pa.PartitionTree):
        return x.labels
    if hasattr(x, "detach"):
        return np.asarray(x.detach().float() if x.dtype.is_floating_point and x.element_size() < 4 else x.detach())
    return np.asarray(x)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_any_array_will_do(function: str, form: str) -> None:
    numbers, call, is_array = FUNCTIONS[function]
    if form in TORCH_FORMS:
        pytest.importorskip("torch")
    x = FORMS[form](numbers)
    kept = copy.deepcopy(_plain(x)) if form != "DLPack" else x.x.copy()
    expected, got = call(numbers.copy()), call(x)
    dtype = computing_dtype(form)
    assert np.array_equal(x.x if form == "DLPack" else _plain(x), kept), "the input was written"
    if is_array:
        assert (form in TORCH_FORMS) == (type(got).__module__.split(".")[0] == "torch")
        assert form in TORCH_FORMS or isinstance(got, np.ndarray)
        assert _plain(got).dtype == dtype
        assert form not in TORCH_FORMS or not got.requires_grad
        assert _plain(got).flags.writeable
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    assert np.abs(_plain(got) - _plain(expected)).max() <= tolerance * max(1.0, float(np.abs(_plain(expected)).max()))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_no_array_of_numbers_is_refused(function: str) -> None:
    torch = pytest.importorskip("torch")
    numbers, call, _ = FUNCTIONS[function]
    bad: list[Any] = [
        numbers + 1j,
        numbers.astype(str),
        numbers.astype(object),
        numbers.astype("datetime64[s]"),
        np.ma.masked_equal(numbers, numbers.flat[0]),
        torch.tensor(numbers).to(torch.complex64),
        torch.tensor(numbers).to_sparse(),
        torch.empty(numbers.shape, device="meta"),
    ]
    for x in bad:
        with pytest.raises(TypeError, match=r"\S+: got .*(dtype|masked|torch)"):
            call(x)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "form", ["float64", "float32", "float16", "Fortran", "strided", "big-endian", "torch bfloat16"]
)
def test_nan_and_infinity_are_found_where_they_are(form: str, bad: float) -> None:
    numbers = TENSOR.copy()
    numbers[4, 1, 3] = bad
    if form in TORCH_FORMS:
        pytest.importorskip("torch")
    x = FORMS[form](numbers)
    for call in (pa.pairwise_l1, lambda x: pa.tree_emd(x, TREES[1:]), lambda x: pa.haar(x, TREES), pa.cosine_affinity):
        with pytest.raises(ValueError, match=rf"^x: 1 value.*the first \({bad}\) at index \(4, 1, 3\)"):
            call(x)
    numbers[5] = bad
    with pytest.raises(ValueError, match=r"^x: 21 value\(s\) are NaN or infinite"):
        pa.pairwise_l1(FORMS[form](numbers))


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("list", "DLPack")])
def test_organized_moves_points_and_computes_nothing(form: str) -> None:
    if form in TORCH_FORMS:
        pytest.importorskip("torch")
    fitted, x = pa.Questionnaire(1).fit(TENSOR), FORMS[form](TENSOR)
    got = fitted.organized(x)
    assert type(got) is type(x)
    assert got.dtype == x.dtype
    assert np.array_equal(_plain(got), _plain(x)[np.ix_(*(tree.order for tree in fitted.trees_))])


def test_large_finite_values_are_no_infinities() -> None:
    largest = np.full((2, 3), np.finfo(np.float64).max)
    require_finite(largest, "x")  # their sum overflows, they do not
    assert given(largest.astype(np.longdouble), "x").values.dtype == np.float64
    assert not pa.pairwise_l1(largest / 1000).any()
    require_finite(np.zeros((0, 3)), "x")


def test_to_numpy_copies_only_what_it_must() -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert np.shares_memory(to_numpy(x.T, "x"), x)
    assert np.shares_memory(given(x[::-1], "x").values, x)
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6.0, dtype=torch.float64)
    assert to_numpy(tensor, "x").ctypes.data == tensor.data_ptr()
    assert to_numpy(torch.ones(3, dtype=torch.bfloat16), "x").dtype == np.float32
    assert to_numpy(torch.nn.Parameter(torch.ones(3)), "x").tolist() == [1, 1, 1]


def test_ragged_lists_and_other_things() -> None:
    for x in ([[1.0, 2.0], [3.0]], [None, 1], {"a": 1}, object(), "text", [[1, 2], "ab"]):
        with pytest.raises(TypeError, match=r"^x: got "):
            pa.pairwise_l1(x)
    with pytest.raises(ValueError, match=r"^x: got shape \(\), expected at least 1"):
        pa.pairwise_l1(3.0)
