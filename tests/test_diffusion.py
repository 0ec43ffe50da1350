"""Diffusion maps. M1 to M4 are invariants of the method."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import pytest
import transcription as slow
from inputs import blocks, random_affinity
from numpy.typing import NDArray

import pyattnorg as pa
from pyattnorg.diffusion import DENSE, check_affinity, leading_vectors


def _largest(x: NDArray[Any]) -> float:
    return float(np.abs(x).max(initial=0))


def _map(affinity: NDArray[Any], **options: Any) -> pa.DiffusionMap:
    return pa.diffusion_map(affinity, n_components=len(affinity) - 1, **options)


# -- the walk (M1 to M4) ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 5, 12, 13, 30])
def test_coordinates_are_those_of_the_transcription(n: int) -> None:
    affinity = random_affinity(n, n)
    k = min(12, n) - 1
    found = pa.diffusion_map(affinity, n_components=k, time=2.0)
    values, phi = slow.diffusion_coordinates(affinity)
    assert found.coordinates.shape == (n, k)
    assert _largest(found.eigenvalues - values) <= 1e-13
    assert _largest(found.coordinates - np.abs(values) ** 2 * phi) <= 1e-10
    assert found.n_connected == 1


@pytest.mark.parametrize("n", [2, 5, 30, 100])
def test_eigenvectors_of_the_markov_matrix(n: int) -> None:  # M1, M2
    affinity = random_affinity(n, n)
    s, v0 = slow.markov(affinity)
    assert np.abs(np.linalg.eigvalsh(s)).max() == pytest.approx(1, abs=1e-10)
    assert (v0 > 0).all()
    found = _map(affinity, time=0.0)
    every = np.column_stack([np.ones(n), found.coordinates])
    assert _largest(every.T @ (v0[:, None] ** 2 * every) - np.eye(n)) <= 1e-9
    assert (
        _largest(s @ (found.coordinates * v0[:, None]) - found.coordinates * v0[:, None] * found.eigenvalues) <= 1e-10
    )
    assert (np.diff(np.abs(found.eigenvalues)) <= 1e-15).all()


@pytest.mark.parametrize("time", [1, 2, 3])
def test_distances_are_those_of_the_walk_and_fall_with_time(time: int) -> None:  # M3, M4
    affinity = random_affinity(15, 3)
    s, v0 = slow.markov(affinity)
    rows = np.linalg.matrix_power(s / v0[:, None] * v0, time)
    expected = ((rows[:, None] - rows) ** 2 / v0**2).sum(2)
    now, later = (_map(affinity, time=t).coordinates for t in (time, time + 0.5))
    squares = ((now[:, None] - now) ** 2).sum(2)
    assert _largest(squares - expected) <= 1e-10
    assert (((later[:, None] - later) ** 2).sum(2) <= squares + 1e-14).all()


def test_the_largest_entry_is_positive_and_signs_do_not_depend_on_the_order() -> None:  # A47
    affinity = random_affinity(40, 0)
    x = pa.diffusion_map(affinity, n_components=5).coordinates
    assert (x[np.abs(x).argmax(0), range(5)] > 0).all()
    p = np.random.default_rng(1).permutation(40)
    assert _largest(pa.diffusion_map(affinity[np.ix_(p, p)], n_components=5).coordinates - x[p]) <= 1e-9


def test_float32_comes_back_as_float32() -> None:
    affinity = random_affinity(20, 1)
    found = pa.diffusion_map(affinity.astype(np.float32))
    assert found.coordinates.dtype == np.float32
    assert found.eigenvalues.dtype == np.float64
    assert _largest(found.coordinates - pa.diffusion_map(affinity).coordinates) <= 1e-4


def test_negative_eigenvalues_are_ordered_by_magnitude() -> None:  # A49
    affinity = 1 - np.eye(6) * 0.9  # the walk avoids where it is
    found = _map(affinity)
    assert (found.eigenvalues < 0).all()
    for time in (0.5, 1.0):
        x = _map(affinity, time=time).coordinates
        assert (x[np.abs(x).argmax(0), range(5)] > 0).all()  # |eigenvalue| ** time: nothing is turned over
        scales = np.linalg.norm(x, axis=0) / np.linalg.norm(found.coordinates, axis=0)
        assert scales == pytest.approx(np.abs(found.eigenvalues) ** (time - 1))


def test_scaling_the_affinity_changes_nothing() -> None:
    affinity = random_affinity(12, 2)
    for scale in (4.0, 1e6, 1e100, 1e200):
        found = pa.diffusion_map(scale * affinity)
        assert _largest(found.coordinates - pa.diffusion_map(affinity).coordinates) <= 1e-8


# -- connected or not, empty or not ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "size"), [(4, 10), (30, 10), (3, 100)])
def test_parts_are_counted_and_told_apart(count: int, size: int) -> None:  # A48
    affinity, block = blocks(0.0, 0, count, size)
    found = pa.diffusion_map(affinity, n_components=count)
    assert found.n_connected == count
    assert found.eigenvalues[: count - 1] == pytest.approx(np.ones(count - 1), abs=1e-10)
    assert found.eigenvalues[count - 1] < 0.9
    x = found.coordinates[:, : count - 1]
    for part in range(count):
        assert np.ptp(x[block == part], axis=0).max() <= 1e-8
    centres = np.stack([x[block == part].mean(0) for part in range(count)])
    gaps = np.linalg.norm(centres[:, None] - centres, axis=2) + 10 * np.eye(count)
    assert gaps.min() > 0.5


@pytest.mark.parametrize("n", [5, DENSE + 50])
def test_all_alike_or_all_apart(n: int) -> None:
    alike = pa.diffusion_map(np.ones((n, n)))
    assert alike.eigenvalues.tolist() == [0, 0, 0]
    assert not alike.coordinates.any()
    apart = pa.diffusion_map(np.eye(n))
    assert apart.n_connected == n
    assert apart.eigenvalues == pytest.approx([1, 1, 1])
    assert np.isfinite(apart.coordinates).all()


def test_a_point_like_no_other_stands_alone_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    affinity = random_affinity(10, 4)
    affinity[7], affinity[:, 7] = 0, 0
    with caplog.at_level(logging.WARNING, "pyattnorg"):
        found = pa.diffusion_map(affinity)
    assert "1 point(s)" in caplog.text
    assert found.n_connected == 2
    assert np.isfinite(found.coordinates).all()
    others = np.delete(found.coordinates[:, 0], 7)
    assert np.ptp(others) <= 1e-8 < abs(found.coordinates[7, 0] - others[0])


def test_negligible_entries_count_as_none() -> None:
    affinity = np.full((4, 4), 1e-9)
    affinity[:2, :2], affinity[2:, 2:] = 1, 1
    assert pa.diffusion_map(affinity).n_connected == 2
    assert pa.diffusion_map(affinity).n_connected == 2


@pytest.mark.parametrize("n", [1, 2, 3])
def test_more_components_than_there_are_warn(n: int) -> None:  # A51
    affinity = np.ones((n, n)) + np.eye(n)
    with pytest.warns(RuntimeWarning, match=rf"^n_components: got 3, but {n} points have {n - 1}"):
        found = pa.diffusion_map(affinity)
    assert found.coordinates.shape == (n, n - 1)
    assert found.eigenvalues.shape == (n - 1,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if n > 1:
            _map(affinity)


# -- the same every time ----------------------------------------------------------------------------------------------

LARGE: dict[str, Any] = {
    "random": lambda n: random_affinity(n, 0),
    "equal": lambda n: np.ones((n, n)),
    "apart": np.eye,
    "zero": lambda n: np.zeros((n, n)),
    "equal blocks": lambda n: np.kron(np.eye(n // 10), np.ones((10, 10))),
    "random blocks": lambda n: blocks(0.0, 0, n // 10, 10)[0],
    "ring": lambda n: np.eye(n) + np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0),
    "rank one": lambda n: np.outer(np.arange(1, n + 1), np.arange(1, n + 1)) / n**2,
    # Eigenvalues that occur many times, which a Krylov space of one vector cannot see.
    "joined blocks": lambda n: np.kron(np.eye(n // 10), np.ones((10, 10))) + 0.05,
    "all equally far": lambda n: 0.5 + 0.5 * np.eye(n),
    "cube": lambda n: _cube(n),
    "two sides": lambda n: np.where((np.arange(n)[:, None] + np.arange(n)) % 2, 1.0, 0.01),  # a negative one
    "nearly apart": lambda n: blocks(1e-6, 0, n // 10, 10)[0],
    "chain": lambda n: np.exp(-((np.arange(n)[:, None] - np.arange(n)) ** 2 / 4.0)),  # all close to 1
}


def _cube(n: int) -> NDArray[Any]:
    """Neighbours on a torus of 4 points a side, in as many dimensions as it takes, cut to n points."""
    dimensions = int(np.ceil(np.log(n) / np.log(4)))
    points = np.indices((4,) * dimensions).reshape(dimensions, -1).T[:n]
    far = np.abs(points[:, None] - points)
    return np.exp(-(np.minimum(far, 4 - far) ** 2).sum(2).astype(float))


@pytest.mark.parametrize("n", [60, DENSE + 60])
@pytest.mark.parametrize("case", LARGE)
def test_every_run_gives_the_same_bytes(case: str, n: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    k = check_affinity(LARGE[case](n))
    runs = [leading_vectors(k, 11) for _ in range(4)]
    assert len({values.tobytes() + phi.tobytes() for values, phi in runs}) == 1
    assert np.isfinite(runs[0][1]).all()


@pytest.mark.parametrize("n", [DENSE + 20, DENSE + 300])
@pytest.mark.parametrize("case", [case for case in LARGE if case not in ("zero", "apart")])
def test_iterative_eigenvalues_are_the_dense_ones(case: str, n: int) -> None:
    k = check_affinity(LARGE[case](n))
    values, phi = leading_vectors(k, 11)
    expected, _ = slow.diffusion_coordinates(k)
    assert _largest(np.abs(values) - np.abs(expected)) <= 1e-10
    s, v0 = slow.markov(k)
    vectors = phi * v0[:, None]
    assert _largest(s @ vectors - vectors * values - v0[:, None] * (v0 @ vectors)) <= 1e-9
    assert _largest(vectors.T @ vectors - np.eye(11)) <= 1e-8


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("affinity", "options", "message"),
    [
        (np.zeros((0, 0)), {}, r"^affinity: got an empty matrix"),
        (np.ones((3, 2)), {}, r"^affinity: got shape \(3, 2\)"),
        (np.ones(4), {}, r"^affinity: got shape \(4,\)"),
        (np.array([[1, 0.5], [0.2, 1]]), {}, r"^affinity: not symmetric"),
        (np.array([[1, -0.5], [-0.5, 1]]), {}, r"^affinity: got -0.5 as the least entry"),
        (np.array([[1, np.nan], [np.nan, 1]]), {}, r"^affinity: 2 value"),
        (np.eye(5), {"n_components": 0}, r"^n_components: got 0"),
        (np.eye(5), {"n_components": 1.5}, r"^n_components: got 1.5"),
        (np.eye(5), {"n_components": True}, r"^n_components: got True"),
        (np.eye(5), {"time": -1}, r"^time: got -1"),
        (np.eye(5), {"time": np.inf}, r"^time: got inf"),
    ],
)
def test_refusals(affinity: NDArray[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pa.diffusion_map(affinity, **options)
