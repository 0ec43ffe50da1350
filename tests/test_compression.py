"""`pa.compress`: errors and ratios that are kept, what comes back, any part without the rest, files, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import FORMS, random_tree
from numpy.typing import NDArray
from tensors import attention_like, planted

import pyattnorg as pa

HEADS = {"layer": [0, 0, 1, 1], "head": [0, 1, 0, 1], "kv_group": [0, 0, 1, 1]}
NEAR = 1e-6  # of the largest entry: a part is summed in another order than the whole


def _network(kind: str = "weights", visible: Any = None, n: int = 12) -> pa.NetworkTensor:
    values = attention_like(n, n - 1, 4).astype(np.float32)
    if kind == "scores":
        values = np.log(values)
    names = {"queries": [f"q{i}" for i in range(n)], "meta": {"model": "é", "special": {"queries": [0], "keys": []}}}
    if visible is not None and kind == "weights":
        cells = visible if visible.ndim == 3 else visible[:, :, None]
        values = np.where(cells, values, 0)
    return pa.NetworkTensor(values, kind=kind, visible=visible, heads=HEADS, **names)  # type: ignore[arg-type]


def _gap(x: pa.NetworkTensor, y: pa.NetworkTensor) -> float:
    seen = x.visible_cells()
    a, b = x.values[seen].astype(float), y.values[seen].astype(float)
    return float(np.linalg.norm(a - b) / np.linalg.norm(a))


def _near(part: NDArray[Any], whole: NDArray[Any]) -> None:
    assert part.shape == whole.shape
    assert part.dtype == whole.dtype
    assert np.abs(part - whole).max() <= NEAR * max(1e-30, np.abs(whole).max())


# -- what is promised -------------------------------------------------------------------------------------------------


@given(
    st.integers(2, 3), st.integers(0, 10_000), st.floats(1e-5, 0.9), st.sampled_from(["auto", "trees"]), st.booleans()
)
@settings(max_examples=80)
def test_error_is_never_more_than_asked(ndim: int, seed: int, error: float, axes: Any, masked: bool) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 9, ndim))
    x = rng.standard_normal(shape) * np.exp(2 * rng.standard_normal(shape))
    visible = None
    if masked:
        visible = rng.random(shape) < 0.7
        visible.flat[0] = True
    trees = [random_tree(n, seed + axis) for axis, n in enumerate(shape)]
    made = pa.compress(x, error=error, trees=trees, axes=axes, visible=visible)
    back = made.reconstruct()
    seen = np.ones(shape, bool) if visible is None else visible
    true = np.linalg.norm((back - x)[seen]) / np.linalg.norm(x[seen])
    assert true <= error * (1 + 1e-9)
    assert made.error == pytest.approx(true, rel=1e-6, abs=1e-12)
    assert (back[~seen] == 0).all()


def test_nbytes_is_the_size_of_the_file(tmp_path: Path) -> None:
    made = pa.compress(_network(), error=0.05)
    made.save(tmp_path / "c")
    assert made.nbytes == (tmp_path / "c").stat().st_size == len(made.to_bytes()) == sum(made.sizes.values())
    assert made.ratio == pytest.approx(4 * 12 * 11 * 4 / made.nbytes)


def test_more_bytes_less_error() -> None:
    x = attention_like(24, 24, 8)
    trees = pa.Questionnaire().fit(x).trees_
    sizes = [pa.compress(x, error=e, trees=trees, axes="trees").nbytes for e in (0.3, 0.1, 0.03, 0.01, 1e-3, 1e-5)]
    assert sizes == sorted(sizes)
    errors = [pa.compress(x, ratio=r, trees=trees, axes="trees").error for r in (4, 8, 16, 20)]
    assert errors == sorted(errors)


@pytest.mark.parametrize("kind", ["weights", "scores"])
@pytest.mark.parametrize("ratio", [2.0, 5.0, 8.0])
def test_ratio_is_met(kind: str, ratio: float) -> None:
    made = pa.compress(_network(kind, np.tri(30, 29, dtype=bool), n=30), ratio=ratio)
    assert ratio <= made.ratio < 1.15 * ratio  # small files move in whole strips and tables


def test_a_ratio_that_cannot_be_had_says_what_can() -> None:
    x = attention_like(16, 16, 4)
    with pytest.raises(ValueError, match=r"^ratio: got 1e\+06, .* the largest here is \d") as said:
        pa.compress(x, ratio=1e6)
    most = float(str(said.value).rsplit(" ", 1)[1])
    assert pa.compress(x, ratio=0.999 * most).ratio == pytest.approx(most, rel=1e-3)


@pytest.mark.parametrize("form", ["haar", "factors", "auto"])
def test_a_tensor_of_zeros_keeps_the_ratio_too(form: Any) -> None:
    x = np.zeros((9, 8, 5))
    with pytest.raises(ValueError, match=r"^ratio: got 1000, .* the largest here is \d") as said:
        pa.compress(x, ratio=1000, form=form)
    most = float(str(said.value).rsplit(" ", 1)[1])
    made = pa.compress(x, ratio=0.999 * most, form=form)
    assert made.ratio >= 0.999 * most
    assert not made.reconstruct().any()
    assert made.error == 0


def test_auto_is_no_larger_than_trees() -> None:
    x = np.zeros((30, 30, 6))
    x[np.arange(30), np.random.default_rng(0).permutation(30)] = np.arange(1, 7)  # single entries: no tree helps
    trees = [pa.PartitionTree.dyadic(n) for n in x.shape]
    auto, all_trees = (pa.compress(x, error=0.01, trees=trees, axes=axes) for axes in ("auto", "trees"))
    assert auto.nbytes < all_trees.nbytes
    assert auto.trees.count(None) > 0
    assert all_trees.trees == tuple(trees)


def test_noise_is_taken_away() -> None:
    clean, labels = planted((32, 32, 16), 0, alpha=1.0, noise=0.0)
    noisy = clean + 0.3 * np.random.default_rng(1).standard_normal(clean.shape)
    trees = [pa.PartitionTree.from_labels(one) for one in labels]
    made = pa.compress(noisy, error="noise", trees=trees)
    left = np.linalg.norm(made.reconstruct() - clean)
    assert left < 0.5 * np.linalg.norm(noisy - clean)
    assert left < 1.1 * np.linalg.norm(pa.denoise(noisy, trees, rule="hard") - clean)
    assert made.ratio > 20
    with pytest.raises(ValueError, match="show none"):
        pa.compress(np.eye(8), error="noise", trees=[None, None])


# -- what comes back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["weights", "scores"])
@pytest.mark.parametrize("mask", ["none", "causal", "deep", "left out"])
def test_networks_come_back_whole(kind: str, mask: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    visible: Any = {
        "none": None,
        "causal": np.tri(12, 11, dtype=bool),
        "deep": rng.random((12, 11, 4)) < 0.7,
        "left out": np.tri(12, 11, dtype=bool) & (np.arange(12) != 5)[:, None] & (np.arange(11) != 3),
    }[mask]
    network = _network(kind, visible)
    made = pa.compress(network, error=0.05)
    made.save(tmp_path / "c")
    loaded = pa.load(tmp_path / "c")
    assert isinstance(loaded, pa.Compressed)
    for one in (made, loaded):
        back = one.reconstruct()
        assert isinstance(back, pa.NetworkTensor)
        assert (back.kind, back.heads, back.queries, back.keys, back.meta) == (
            network.kind, network.heads, network.queries, network.keys, network.meta,
        )  # fmt: skip
        assert np.array_equal(back.visible_cells(), network.visible_cells())
        assert (back.visible is None) == (network.visible is None)
        assert (back.values[~back.visible_cells()] == 0).all()
        assert _gap(network, back) <= 0.05
        assert back.values.dtype == network.values.dtype
        for i, label in enumerate(network.labels):
            _near(one.head(label), back.values[:, :, i])
        _near(
            one.block([4, 4, 1], np.arange(11) % 3 == 0, [True, False, False, True]),
            back.values[[4, 4, 1]][:, ::3, ::3],
        )
        _near(one.block(slice(None, None, -1), 3, "L0H1"), back.values[::-1, 3:4, 1:2])
        _near(one.block(slice(2, 7), [1, 3, -1], ["L1H0", 0]), back.values[2:7][:, [1, 3, 10]][:, :, [2, 0]])
    assert np.array_equal(made.reconstruct().values, loaded.reconstruct().values)
    assert made.to_bytes() == loaded.to_bytes()


def test_names_and_notes_of_any_kind_come_back() -> None:
    values = attention_like(3, 4, 2)
    network = pa.NetworkTensor(
        values,
        queries=["\ud800", "", "\x00\n" + "x" * 10_000],
        keys=["é", "\U0001f600", '"', "\\"],
        heads={"layer": [0, 0], "head": [0, 1], "group": ["encoder", "é"], "module": ["a.b", ""], "window": [-1, 7]},
        meta={"a": {"b": [1, None, True]}, "shape": 3, "inner": 4, "n": np.float32(0.5), "at": np.arange(2), "t": (1,)},
    )
    back = pa.compress(network, error=0.1).reconstruct()
    assert (back.queries, back.keys, back.heads) == (network.queries, network.keys, network.heads)
    assert back.meta == {"a": {"b": [1, None, True]}, "shape": 3, "inner": 4, "n": 0.5, "at": [0, 1], "t": [1]}
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    for meta in ({"a": b"x"}, {"a": object()}, loop):
        with pytest.raises(TypeError, match=r"^network.meta: cannot be written as JSON"):
            pa.compress(pa.NetworkTensor(values, meta=meta), error=0.1)


def test_trees_fit_what_is_seen() -> None:
    visible = np.ones((12, 11), bool)
    visible[:, 9:] = False
    network = _network("scores", visible)
    trees = [pa.PartitionTree.dyadic(n) for n in (12, 9, 4)]
    assert pa.compress(network, error=0.1, trees=trees, axes="trees").trees == tuple(trees)
    trees[1] = pa.PartitionTree.dyadic(11)
    with pytest.raises(ValueError, match=r"axis 1 has 11 leaves, expected 9: .* that nothing sees"):
        pa.compress(network, error=0.1, trees=trees)


def test_an_organisation_is_compressed_with_its_trees() -> None:
    organization = pa.organize(_network("scores", np.tri(12, 11, dtype=bool)), tree="flexible")
    made = pa.compress(organization, error=0.1, axes="trees")
    assert made.trees == organization.trees_
    back = made.reconstruct()
    assert _gap(organization.network, back) <= 0.1
    assert pa.organize(back).network.shape == organization.network.shape


@pytest.mark.parametrize("form", FORMS)
def test_any_kind_of_array(form: str) -> None:
    x = np.rint(4 * np.random.default_rng(0).standard_normal((6, 5, 4)))
    given_x = FORMS[form](x)
    back = pa.compress(given_x, error=0.01).reconstruct()
    assert ("torch" in form) == (type(back).__module__ == "torch")
    assert np.linalg.norm(np.asarray(back, float) - x) <= 0.01 * np.linalg.norm(x)
    assert str(back.dtype).endswith("float32" if form.endswith(("16", "float32", "grad")) else "float64")


@pytest.mark.parametrize(
    "shape", [(7,), (1,), (1, 1), (5, 1), (6, 7), (1, 1, 1), (4, 1, 3), (3, 4, 2, 5), (2, 2, 2, 2, 2)]
)
def test_any_order_and_part(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape)
    trees: Any = [random_tree(n, axis) if axis != 1 else None for axis, n in enumerate(shape)]
    made = pa.compress(x, error=0.02, trees=trees, axes="trees")
    back = made.reconstruct()
    assert np.linalg.norm(back - x) <= 0.02 * np.linalg.norm(x)
    assert made.trees == tuple(trees)
    _near(made.block([0]), back[[0]])
    _near(made.block(*[slice(0, 2)] * len(shape)), back[(slice(0, 2),) * len(shape)])
    _near(made.block(*[None] * (len(shape) - 1), -1), back[..., -1:])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.0, 3.0, -1e-30, 1e30])
def test_constants(value: float, dtype: type) -> None:
    x = np.full((5, 4, 3), value, dtype)
    made = pa.compress(x, error=1e-3, axes="trees")
    assert np.allclose(made.reconstruct(), x, rtol=1e-3, atol=0)
    assert made.n_coefficients <= 1


@pytest.mark.parametrize("form", ["haar", "factors"])
@pytest.mark.parametrize(("dtype", "largest"), [
    (np.float64, 1e-320), (np.float64, 1e-200), (np.float64, 1e-155), (np.float64, 1e160), (np.float64, 1.79e308),
    (np.float32, 1e-44), (np.float32, 3.4e38),
])  # fmt: skip
def test_error_is_kept_at_the_ends_of_the_dtype(dtype: type, largest: float, form: Any) -> None:
    unit = np.random.default_rng(0).uniform(-1, 1, (7, 6, 4))
    visible = np.tri(7, 6, dtype=bool)
    x = np.where(visible[:, :, None], unit * largest, 0).astype(dtype)
    made = pa.compress(x, error=0.05, form=form, visible=visible)
    back = made.reconstruct()
    assert back.dtype == dtype
    assert np.isfinite(back).all()
    a, b = (np.ldexp(one[visible].astype(float), -np.frexp(largest)[1]) for one in (x, back))
    true = np.linalg.norm(a - b) / np.linalg.norm(a)
    assert true <= 0.05
    assert made.error == pytest.approx(true, rel=1e-6, abs=1e-12)
    assert np.array_equal(made.head(2), back[:, :, 2])


def test_numbers_beyond_the_dtype_do_not_come_back() -> None:
    x = np.full((4, 4, 3), np.finfo(np.float64).max)
    x[0] /= 2
    assert np.isfinite(pa.compress(x, error=0.3, trees=[None] * 3).reconstruct()).all()


def test_invisible_cells_of_arrays_come_back_as_they_were_marked() -> None:
    x = np.random.default_rng(0).standard_normal((6, 6, 3)).astype(np.float32)
    for mark in (-np.inf, np.finfo(np.float32).min):
        masked = np.where(np.tri(6, dtype=bool)[:, :, None], x, np.float32(mark))
        made = pa.compress(masked, error=0.1)
        back = made.reconstruct()
        assert np.array_equal(back == mark, masked == mark)
        assert made.sizes["mask"] <= 4


def test_small_errors_are_met_as_far_as_the_dtype_holds() -> None:
    x = attention_like(10, 9, 4)
    assert pa.compress(x, error=1e-11).error <= 1e-11
    assert pa.compress(x.astype(np.float32), error=2e-6).error <= 2e-6


def test_same_bytes_for_any_number_of_threads() -> None:
    found = []
    before = pa.get_num_threads()
    try:
        for threads in (1, 3):
            pa.set_num_threads(threads)
            found.append(pa.compress(_network("scores", np.tri(12, 11, dtype=bool)), error=0.03).to_bytes())
    finally:
        pa.set_num_threads(before)
    assert found[0] == found[1] == pa.compress(_network("scores", np.tri(12, 11, dtype=bool)), error=0.03).to_bytes()


def test_what_is_told() -> None:
    made = pa.compress(_network(), error=0.05)
    told = json.loads(json.dumps(made.to_dict()))
    assert told["bytes"] == made.nbytes
    assert told["coefficients"] == made.n_coefficients > 0
    assert "Compressed(weights, 12 x 11 x 4" in repr(made)
    assert made.summary() in made._repr_html_().replace("&#x27;", "'")
    assert made.labels == ("L0H0", "L0H1", "L1H0", "L1H1")


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "exactly one"),
        ({"error": 0.1, "ratio": 3}, "exactly one"),
        ({"error": 0}, "error: got 0"),
        ({"error": 1.0}, "expected less than 1"),
        ({"error": "loud"}, "error: got 'loud'"),
        ({"error": np.nan}, "error: got nan"),
        ({"ratio": -1}, "ratio: got -1"),
        ({"error": 0.1, "axes": "some"}, "axes: got"),
        ({"error": 0.1, "trees": [None]}, "trees: got 1"),
    ],
)
def test_bad_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pa.compress(np.ones((3, 3, 3)), **options)


@pytest.mark.parametrize(
    ("x", "kind", "said"),
    [
        (np.array([[np.nan, 1.0]]), ValueError, r"NaN or infinite, .* at index \(0, 0\)"),
        (np.array([[np.inf, 1.0]]), ValueError, "NaN or infinite"),
        (np.zeros((0, 3)), ValueError, "at least one point"),
        (np.float64(3), ValueError, "one axis or more"),
        (np.zeros(3), ValueError, "^trees: needed"),
        ("model", TypeError, "^network: got 'model'"),
        (None, TypeError, "^network: got dtype object"),
        (pa.compress(np.eye(3), error=0.1), TypeError, "^network: got a compressed tensor"),
        (np.array(["a"]), TypeError, "real numbers"),
        (np.full((2, 2), -np.inf), ValueError, "no cell is visible"),
    ],
)
def test_bad_tensors(x: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        pa.compress(x, error=0.1) if np.ndim(x) != 1 or kind is not ValueError else pa.compress(np.ones(3), error=0.1)


def test_bad_parts() -> None:
    made = pa.compress(_network(), error=0.1)
    for no_head in (True, np.True_, 1.0, 1.7, np.nan, None, [1], slice(0, 2)):
        with pytest.raises(TypeError, match=r"^head: got"):
            made.head(no_head)  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError), match=r"^(head|points): got"):
            made.block(None, None, [no_head, "L0H0"])
    for bad_mask in (np.zeros(12, bool), np.ones(11, bool), np.ones((12, 1), bool), [True] * 13):
        with pytest.raises(ValueError, match=r"(?s)^points: .* or 12 booleans"):
            made.block(bad_mask)
    with pytest.raises(KeyError, match="no head 'L9H9'"):
        made.head("L9H9")
    with pytest.raises(KeyError, match="no head 4"):
        made.head(4)
    for bad in ([[99]], [[]], [None, [0.5]], [None] * 4):
        with pytest.raises(ValueError, match=r"^points: "):
            made.block(*bad)
    with pytest.raises(KeyError, match="no names"):
        pa.compress(np.ones((2, 2)), error=0.1).head("L0H0")
