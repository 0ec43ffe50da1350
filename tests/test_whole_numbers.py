"""Arguments that are whole numbers: exact, however large, and refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
import pytest

import pyattnorg as pa
from pyattnorg.checks import position, whole

matplotlib.use("Agg")
from matplotlib import pyplot  # after the backend is chosen

AFFINITY = pa.cosine_affinity(np.random.default_rng(0).random((6, 9)))
TREE = pa.PartitionTree.dyadic(6)


def fitted() -> pa.Organization:
    return pa.organize(np.random.default_rng(0).random((6, 5, 4)), n_iter=1)


@pytest.mark.parametrize("value", [2**53 + 1, 10**400, np.int8(3), np.float64(4.0)])
def test_whole_is_exact(value: Any) -> None:
    assert whole(value, "n", at_least=0) == value


@pytest.mark.parametrize("value", [True, "3", b"3", 1.5, np.nan, np.inf, [1], 1j])
@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("n", pa.PartitionTree.dyadic),
        ("largest", TREE.parts),
        ("level", TREE.folder_sizes),
        ("seed", lambda v: pa.binary_tree(AFFINITY, cut="random", seed=v)),
        ("seed", lambda v: pa.binary_tree(AFFINITY, seed=v)),
        ("random_state", lambda v: pa.Questionnaire(1, random_state=v).fit(np.eye(4))),
        ("axis", lambda v: fitted().order(v)),
        ("axis", lambda v: fitted().embedding(v)),
        ("axis", lambda v: fitted().plot_tree(v)),
        ("axis", lambda v: fitted().plot_embedding(v)),
        ("axis", lambda v: fitted().plot_affinity(v)),
        ("n", lambda v: fitted().nearest_heads("L0H0", v)),
        ("n", lambda v: fitted().summary(v)),
        ("softmax_axis", lambda v: pa.paraproduct(np.eye(4), function="softmax", softmax_axis=v)),
        ("axis", lambda v: pa.paraproduct(np.eye(4)).relative_residual(v)),
        ("levels", lambda v: pa.paraproduct(np.eye(4)).regularity(levels=(v, 3))),
        ("levels", lambda v: pa.paraproduct(np.eye(4)).regularity(levels=(0, v))),
    ],
)
def test_what_is_no_whole_number_is_refused_by_name(name: str, ask: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}: got "):
        ask(value)


@pytest.mark.parametrize(
    ("name", "ask", "value"),
    [
        ("n", pa.PartitionTree.dyadic, 0),
        ("largest", TREE.parts, 0),
        ("level", TREE.folder_sizes, 99),
        ("seed", lambda v: pa.binary_tree(AFFINITY, cut="random", seed=v), -1),
        ("random_state", lambda v: pa.Questionnaire(1, random_state=v).fit(np.eye(4)), -1),
        ("axis", lambda v: fitted().plot_tree(v), 3),
        ("axis", lambda v: fitted().plot_affinity(v), -4),
        ("n", lambda v: fitted().nearest_heads("L0H0", v), -1),
        ("n", lambda v: fitted().summary(v), -1),
        ("axis", lambda v: pa.paraproduct(np.eye(4)).relative_residual(v), 2),
        ("softmax_axis", lambda v: pa.paraproduct(np.eye(4), function="softmax", softmax_axis=v), 2),
        ("levels", lambda v: pa.paraproduct(np.eye(4)).regularity(levels=(3, v)), 1),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(name: str, ask: Callable[[Any], Any], value: int) -> None:
    with pytest.raises(ValueError, match=f"^{name}: got {value}, "):
        ask(value)


def test_places_count_from_the_end_too() -> None:
    assert [position(at, "axis", 3, "expected") for at in (0, 2, -1, -3, 1.0)] == [0, 2, 2, 0, 1]
    drawn = fitted().plot_tree(-1)
    np.testing.assert_array_equal(drawn.get_xlim(), (-1, 4))
    pyplot.close(drawn.figure)


@pytest.mark.parametrize("levels", ["ab", (1,), (1, 2, 3), 2])
def test_levels_are_two(levels: Any) -> None:
    with pytest.raises(ValueError, match=r"^levels: got"):
        pa.paraproduct(np.eye(4)).regularity(levels=levels)
