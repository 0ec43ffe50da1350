"""Singular vectors in Haar bases: the other form of a compressed network, in parts, with masks, in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import random_tree
from threadpoolctl import threadpool_limits

import pyattnorg as pa


def _low_rank(n: int = 24, heads: int = 10, rank: int = 3, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((heads, n, rank)), rng.standard_normal((heads, rank, n + 1))
    return np.moveaxis(q @ k, 0, 2)


@given(st.tuples(*[st.integers(1, 8)] * 3), st.integers(0, 1000), st.floats(1e-4, 0.9), st.booleans(), st.booleans())
@settings(max_examples=50)
def test_error_is_never_more_than_asked(shape: Any, seed: int, error: float, masked: bool, organised: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.exp(rng.standard_normal(shape[2]))
    visible = rng.random(shape[:2]) < 0.7 if masked else None
    if visible is not None:
        visible[0, 0] = True
    trees = [random_tree(n, seed + axis) if organised else None for axis, n in enumerate(shape)]
    made = pa.compress(x, error=error, trees=trees, visible=visible, form="factors")
    back = made.reconstruct()
    gap = (back - x)[visible] if masked else back - x
    true = np.linalg.norm(gap) / np.linalg.norm(x[visible] if masked else x)
    assert true <= error * (1 + 1e-9)
    assert made.error == pytest.approx(true, rel=1e-6, abs=1e-12)
    for head in range(shape[2]):
        assert np.abs(made.head(head) - back[:, :, head]).max() <= 1e-9 * max(1, np.abs(back).max())


def test_low_rank_is_smaller_as_factors_and_auto_takes_the_smaller() -> None:
    x = _low_rank()
    sizes = {form: pa.compress(x, error=0.02, form=form) for form in ("haar", "factors", "auto")}  # type: ignore[arg-type]
    assert sizes["factors"].nbytes < sizes["haar"].nbytes
    assert sizes["auto"].to_bytes() == sizes["factors"].to_bytes()
    assert (sizes["haar"].form, sizes["auto"].form) == ("haar", "factors")
    sparse = np.zeros((20, 20, 6))
    sparse[np.arange(20), np.random.default_rng(0).permutation(20)] = np.arange(1, 7)
    assert pa.compress(sparse, error=0.02, form="auto").form == "haar"
    errors = {form: pa.compress(x, ratio=15, form=form).error for form in ("haar", "factors", "auto")}  # type: ignore[arg-type]
    assert errors["auto"] == errors["factors"] < errors["haar"]


def test_files_parts_and_names(tmp_path: Path) -> None:
    heads = {"layer": [0] * 5 + [1] * 5, "head": [*range(5)] * 2}
    visible = np.tri(24, 25, dtype=bool)
    visible[7] = False
    network = pa.NetworkTensor(_low_rank().astype(np.float32), visible=visible, heads=heads)
    made = pa.compress(network, error=0.03, form="factors")
    made.save(tmp_path / "c")
    loaded = pa.load(tmp_path / "c")
    assert made.nbytes == (tmp_path / "c").stat().st_size == sum(made.sizes.values())
    back = loaded.reconstruct()
    assert back.heads == network.heads
    assert np.array_equal(back.visible, visible)
    assert np.abs(loaded.head("L1H2") - back.values[:, :, 7]).max() < 1e-6 * np.abs(back.values).max()
    part = loaded.block([3, 7, -1], slice(0, 4), ["L0H1", "L1H4"])
    assert np.abs(part - back.values[[3, 7, -1], :4][:, :, [1, 9]]).max() < 1e-6 * np.abs(back.values).max()
    cost, whole = loaded.cost(None, None, [0]), loaded.cost()
    assert cost["coefficients"] < whole["coefficients"] / 5
    assert cost["bytes"] <= whole["bytes"] <= loaded.sizes["coefficients"]
    assert "singular vectors" in made.summary()
    assert loaded.trees[2] is None


def test_any_changed_byte_is_found_and_any_cut(tmp_path: Path) -> None:
    whole = pa.compress(_low_rank(6, 3, 2), error=0.05, form="factors").to_bytes()
    path = tmp_path / "c"
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 1
        for damaged in (bytes(data), whole[:at]):
            path.write_bytes(damaged)
            with pytest.raises(pa.DamagedFileError, match=str(path)):
                pa.load(path).reconstruct()


def test_same_bytes_for_any_number_of_threads() -> None:
    found = []
    before = pa.get_num_threads()
    try:
        for threads in (1, 3):
            pa.set_num_threads(threads)
            found.append(pa.compress(_low_rank(), error=0.03, form="factors").to_bytes())
    finally:
        pa.set_num_threads(before)
    assert found[0] == found[1]


def test_a_ratio_that_factors_do_not_reach_is_refused_and_auto_takes_what_reaches_it() -> None:
    x = np.random.default_rng(0).standard_normal((12, 12, 6))
    with pytest.raises(ValueError, match=r"ratio: got 15, .* the largest here is 8") as said:
        pa.compress(x, ratio=15, form="factors")
    most = float(str(said.value).rsplit(" ", 1)[1])
    made = pa.compress(x, ratio=0.999 * most, form="factors")
    assert (made.form, made.trees) == ("factors", (None,) * 3)
    made = pa.compress(x, ratio=15, form="auto")
    assert made.form == "haar"
    assert made.ratio >= 15
    with pytest.raises(ValueError, match="the largest here is 2"):
        pa.compress(x, ratio=100, form="auto")


@pytest.mark.parametrize("form", ["haar", "factors"])
def test_same_bytes_and_numbers_for_any_number_of_blas_threads(form: Any) -> None:
    x = np.random.default_rng(0).standard_normal((70, 64, 12))  # enough for BLAS to share it out
    found, parts = set(), set()
    for threads in (1, 2, 3):
        with threadpool_limits(threads, user_api="blas"):
            for visible in (None, np.tri(70, 64, dtype=bool)):
                made = pa.compress(x, error=0.3, form=form, trees=[None] * 3, visible=visible)
                found.add(made.to_bytes())
                parts.add(made.block(slice(0, 40), None, slice(2, 9)).tobytes())
    assert len(found) == len(parts) == 2


def test_what_has_no_heads_is_refused() -> None:
    with pytest.raises(ValueError, match="form: got 'factors' for a tensor of 2 axes"):
        pa.compress(np.ones((3, 3)), error=0.1, form="factors")
    with pytest.raises(ValueError, match="form: got 'other'"):
        pa.compress(np.ones((3, 3, 3)), error=0.1, form="other")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="error='noise'"):
        pa.compress(_low_rank(), error="noise", form="factors")
    assert pa.compress(np.zeros((3, 3, 3)), error=0.1, form="factors").reconstruct().shape == (3, 3, 3)
    assert pa.compress(np.random.default_rng(0).random((5, 6)), error=0.1, form="auto").form == "haar"
