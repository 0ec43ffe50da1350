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

VARIANTS: tuple[Any, ...] = ("diffusion", "paper")


def _largest(x: NDArray[Any]) -> float:
    return float(np.abs(x).max(initial=0))


def _map(affinity: NDArray[Any], **options: Any) -> pa.DiffusionMap:
    return pa.diffusion_map(affinity, n_components=len(affinity) - 1, **options)


def _squares(x: NDArray[Any]) -> NDArray[Any]:
    out: NDArray[Any] = ((x[:, None] - x) ** 2).sum(2)
    return out


def _walk(affinity: NDArray[Any], alpha: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """The symmetrised walk and the root of its stationary measure, written out (Coifman and Lafon 2006)."""
    affinity = np.where(affinity > 1e-8, affinity, 0)
    d = affinity.sum(1) ** alpha
    k = affinity / np.outer(d, d)
    e = np.sqrt(k.sum(1))
    s, v0 = k / np.outer(e, e), e / np.linalg.norm(e)
    if alpha == 1:  # the transcription's own, of the questionnaire
        other, w0 = slow.markov(affinity)
        assert max(_largest(s - other), _largest(v0 - w0)) <= 1e-14
    return s, v0


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


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("n", [2, 5, 30, 100])
def test_M1_the_walk_is_symmetrised_and_its_largest_eigenvalue_is_1(n: int, alpha: float) -> None:
    affinity = random_affinity(n, n)
    s, v0 = _walk(affinity, alpha)
    assert np.array_equal(s, s.T)
    assert np.abs(np.linalg.eigvalsh(s)).max() == pytest.approx(1, abs=1e-10)
    assert (v0 > 0).all()
    found = _map(affinity, time=0.0, alpha=alpha)
    vectors = found.coordinates * v0[:, None]
    assert _largest(s @ vectors - vectors * found.eigenvalues) <= 1e-10
    assert (np.diff(np.abs(found.eigenvalues)) <= 1e-15).all()
    assert (np.abs(found.eigenvalues) <= 1 + 1e-12).all()


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("n", [2, 5, 30, 100])
def test_M2_coordinates_are_orthonormal_in_the_stationary_measure(n: int, alpha: float) -> None:
    affinity = random_affinity(n, n)
    v0 = _walk(affinity, alpha)[1]
    every = np.column_stack([np.ones(n), _map(affinity, time=0.0, alpha=alpha).coordinates])
    assert _largest(every.T @ (v0[:, None] ** 2 * every) - np.eye(n)) <= 1e-9


@pytest.mark.parametrize("time", [0.5, 1, 2, 3])
def test_M3_distances_fall_with_time(time: float) -> None:
    affinity = random_affinity(15, 3)
    now, later = (_squares(_map(affinity, time=t).coordinates) for t in (time, time + 0.5))
    assert (later <= now + 1e-14).all()


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("time", [1, 2, 3])
def test_M4_distances_are_those_of_the_rows_of_the_walk(time: int, alpha: float) -> None:
    affinity = random_affinity(15, 3)
    s, v0 = _walk(affinity, alpha)
    rows = np.linalg.matrix_power(s / v0[:, None] * v0, time)
    expected = ((rows[:, None] - rows) ** 2 / v0**2).sum(2)
    assert _largest(_squares(_map(affinity, time=time, alpha=alpha).coordinates) - expected) <= 1e-10


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


# -- further points (Nystrom) ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("time", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("n", [2, 12, DENSE + 30])
def test_points_of_the_map_keep_their_coordinates(n: int, time: float, alpha: float) -> None:
    affinity = random_affinity(n, n)
    found = pa.diffusion_map(affinity, n_components=min(4, n - 1), time=time, alpha=alpha)
    again = found.extend(affinity[::-1])
    assert _largest(again - found.coordinates[::-1]) <= 1e-9 / np.abs(found.eigenvalues).min()


def test_extension_is_its_sum() -> None:
    affinity, new = random_affinity(9, 0), np.random.default_rng(1).random((3, 9))
    new[1, 4] = 1e-9  # negligible
    found = _map(affinity, time=2.0, alpha=0.5)
    values, phi = found.eigenvalues, found.coordinates / np.abs(found.eigenvalues) ** 2
    got = found.extend(new)
    for z in range(3):
        row = np.where(new[z] > 1e-8, new[z], 0) / affinity.sum(1) ** 0.5
        for i in range(8):
            expected = sum(row[y] * phi[y, i] for y in range(9)) / row.sum() / values[i] * np.abs(values[i]) ** 2
            assert got[z, i] == pytest.approx(expected, rel=1e-9)


def test_a_point_between_two_comes_to_lie_between_them() -> None:
    x = np.concatenate([np.linspace(0, 1, 30), np.linspace(0.02, 0.98, 7)])[:, None]
    affinity = np.exp(-(((x - x.T) / 0.1) ** 2))
    found = pa.diffusion_map(affinity[:30, :30], n_components=1)
    line, new = found.coordinates[:, 0], found.extend(affinity[30:, :30])[:, 0]
    assert (np.diff(line) * np.sign(line[-1] - line[0]) > 0).all()
    left = np.searchsorted(x[:30, 0], x[30:, 0]) - 1
    slack = 0.02 * np.ptp(line)
    assert (new >= np.minimum(line[left], line[left + 1]) - slack).all()
    assert (new <= np.maximum(line[left], line[left + 1]) + slack).all()


def test_extension_takes_what_arrays_there_are() -> None:
    affinity, new = random_affinity(10, 0), np.random.default_rng(1).random((3, 10))
    found = pa.diffusion_map(affinity)
    exact = found.extend(new)
    read_only = new.copy()
    read_only.flags.writeable = False
    for other in (np.asfortranarray(new), read_only, np.repeat(new, 2, 0)[::2], new.tolist()):
        assert np.array_equal(found.extend(other), exact)
    assert found.extend(new.astype(np.float32)).dtype == np.float32
    assert found.extend(new[:0]).shape == (0, 3)
    torch = pytest.importorskip("torch")
    back = found.extend(torch.tensor(new))
    assert isinstance(back, torch.Tensor)
    assert _largest(back.numpy() - exact) <= 1e-15
    of_torch = pa.diffusion_map(torch.tensor(affinity)).extend(new)
    assert _largest(of_torch - exact) <= 1e-15


def test_extension_of_nothing_known_is_0_and_of_the_unlike_refused() -> None:
    flat = pa.diffusion_map(np.ones((5, 5)), time=0.0)
    assert not flat.eigenvalues.any()
    assert not flat.extend(np.ones((2, 5))).any()
    found = pa.diffusion_map(random_affinity(6, 0))
    for bad, message in [
        (np.zeros((1, 6)), r"^affinity: point 0 is like none"),
        (np.ones((2, 5)), r"^affinity: got shape \(2, 5\), expected \(m, 6\)"),
        (np.ones(6), r"^affinity: "),
        (-np.ones((1, 6)), r"^affinity: got -1.0 as the least"),
        (np.full((1, 6), np.nan), r"^affinity: 6 value"),
    ]:
        with pytest.raises(ValueError, match=message):
            found.extend(bad)


# -- what the paper plots ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 9, 40])
def test_the_papers_variant_is_the_other_end_of_the_spectrum(n: int) -> None:
    affinity = random_affinity(n, n)
    k = min(3, n)
    found = pa.diffusion_map(affinity, n_components=k, variant="paper")
    s = affinity / np.sqrt(np.outer(affinity.sum(1), affinity.sum(1)))
    assert _largest(found.eigenvalues - np.linalg.eigvalsh(s)[:k]) <= 1e-13
    assert _largest(s @ found.coordinates - found.coordinates * found.eigenvalues) <= 1e-13
    assert _largest(found.coordinates.T @ found.coordinates - np.eye(k)) <= 1e-12
    assert (found.coordinates[np.abs(found.coordinates).argmax(0), range(k)] > 0).all()
    assert found.density is None
    with pytest.raises(ValueError, match=r"^variant: the paper's has no extension"):
        found.extend(affinity)


def test_the_papers_variant_does_not_tell_blocks_apart_and_ours_does() -> None:
    affinity, block = blocks(0.05, 0, 2, 20)
    ours, papers = (pa.diffusion_map(affinity, n_components=1, variant=v).coordinates[:, 0] for v in VARIANTS)
    assert ((ours > 0) == (ours[0] > 0)).tolist() == (block == 0).tolist()
    between = np.corrcoef(papers, block)[0, 1]
    assert abs(between) < 0.5


# -- connected or not, empty or not ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "size"), [(4, 10), (30, 10), (3, 100)])
def test_parts_are_counted_and_told_apart(count: int, size: int) -> None:  # A48
    affinity, block = blocks(0.0, 0, count, size)
    found = pa.diffusion_map(affinity, n_components=count)
    assert found.n_connected == count
    assert found.eigenvalues[: count - 1] == pytest.approx(np.ones(count - 1), abs=1e-10)
    assert found.eigenvalues[count - 1] < 0.9
    assert np.array_equal(found.parts, block)
    assert found.part_sizes.tolist() == [size] * count
    assert f"in {count} connected parts of {size}, {size}" in found.summary()
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
        (np.eye(5), {"alpha": -0.1}, r"^alpha: got -0.1"),
        (np.eye(5), {"alpha": 1.1}, r"^alpha: got 1.1"),
        (np.eye(5), {"variant": "Paper"}, r"^variant: got 'Paper'"),
        (np.eye(5), {"variant": "paper", "time": 2.0}, r"^variant: the paper's has no time"),
        (np.eye(5), {"variant": "paper", "alpha": 0.0}, r"^variant: the paper's has no time"),
    ],
)
def test_refusals(affinity: NDArray[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pa.diffusion_map(affinity, **options)
