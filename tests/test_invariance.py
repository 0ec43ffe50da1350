"""Softmax invariance on whole networks: what is exact, what is compared, and against what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import spearmanr
from tensors import planted

import pyattnorg as pa
from pyattnorg.invariance import rank_correlation


@pytest.fixture(scope="module")
def scores() -> NDArray[Any]:
    return planted((16, 16, 8), 0)[0]


@pytest.fixture(scope="module")
def found(scores: NDArray[Any]) -> pa.SoftmaxInvariance:
    return pa.softmax_invariance(scores, n_permutations=49)


def test_tensors_are_scores_and_what_softmax_makes_of_them(scores: NDArray[Any], found: pa.SoftmaxInvariance) -> None:
    weights = softmax(scores, axis=1)
    values = {name: each.network.values for name, each in found.organizations.items()}
    assert list(values) == ["scores", "logweights", "weights", "approximation"]
    assert np.array_equal(values["scores"], scores)
    assert values["logweights"] == pytest.approx(np.log(weights), abs=1e-12)
    assert values["weights"] == pytest.approx(weights, abs=1e-12)
    trees = found.organizations["scores"].trees_
    alone = pa.paraproduct(scores, [*trees[:2], None], "softmax")
    assert values["approximation"] == pytest.approx(alone.boundary + alone.first + alone.second, abs=1e-11)
    assert [row["residual"] for row in found.table] == pytest.approx(list(alone.relative_residual(axis=2)), rel=1e-9)


@pytest.mark.parametrize("masked", ["mean", "floor"])
@pytest.mark.parametrize("mask", [None, "causal", "by head"])
def test_P6_scores_and_log_weights_share_coefficients(scores: NDArray[Any], mask: str | None, masked: Any) -> None:
    visible = None if mask is None else np.tri(16, dtype=bool)
    if mask == "by head":
        visible = np.repeat(visible[:, :, None], 8, axis=2)
        visible[:, 3:5, ::2] = False
        visible[:5, :, ::2] |= np.eye(16, dtype=bool)[:5, :, None]
    network = pa.NetworkTensor(scores, visible=visible)
    found = pa.softmax_invariance(network, masked=masked, n_permutations=1, n_iter=1)
    assert found.shared <= 1e-12
    trees = found.organizations["scores"].trees_
    ours, theirs = (pa.haar(found.organizations[name].network.values, trees) for name in ("scores", "logweights"))
    assert np.abs(ours - theirs)[:, 1:].max() <= 1e-12 * np.abs(ours).max()
    assert np.abs(ours - theirs)[:, 0].max() > 0.1
    cells = network.visible_cells()
    weights = found.organizations["weights"].network.values
    assert weights.sum(1) == pytest.approx(np.ones((16, 8)), abs=1e-12)
    assert not weights[~cells].any()
    assert not found.organizations["approximation"].network.values[~cells].any()


def test_agreement_is_that_of_the_comparison_tools(found: pa.SoftmaxInvariance) -> None:
    assert len(found.agreement) == 6 * 3
    row = found.between("weights", "scores")
    a, b = found.organizations["scores"], found.organizations["weights"]
    assert row["cophenetic"] == pytest.approx(pa.cophenetic_correlation(a.trees_[2], b.trees_[2]))
    test = pa.mantel(a.affinities_[2], b.affinities_[2], n_permutations=49)
    assert (row["affinity"], row["affinity_p"]) == (test.correlation, test.p_value)
    e = [pa.published_head_entropy(each.network.values, each.trees_) for each in (a, b)]
    assert row["involvement"] == pytest.approx(spearmanr(*e).statistic)
    assert 1 / 50 <= row["involvement_p"] <= 1
    assert "involvement" not in found.between("weights", "scores", "keys")
    with pytest.raises(KeyError, match="no pair 'scores', 'scores'"):
        found.between("scores", "scores")


def test_rows_that_sum_to_one_already_change_nothing(scores: NDArray[Any]) -> None:
    logs = np.log(softmax(scores, axis=1))
    found = pa.softmax_invariance(logs, n_permutations=19)
    for axis in ("queries", "keys", "heads"):
        row = found.between("scores", "logweights", axis)
        assert row["cophenetic"] == pytest.approx(1)
        assert row["affinity"] == pytest.approx(1)
    assert found.between("scores", "logweights")["involvement"] == pytest.approx(1)
    assert found.table[0]["scores"] == pytest.approx(found.table[0]["logweights"], rel=1e-9)


def test_table_and_summary(scores: NDArray[Any], found: pa.SoftmaxInvariance) -> None:
    c = pa.haar(scores, [*found.organizations["scores"].trees_[:2], None])
    assert [row["label"] for row in found.table] == list(found.organizations["scores"].labels)
    for h, row in enumerate(found.table):
        assert row["shift"] == pytest.approx((c[:, 0, h] ** 2).sum() / (c[:, :, h] ** 2).sum(), rel=1e-10)
        assert row["scores"] == pytest.approx(pa.l1_entropy(c[:, :, h]), rel=1e-10)
    text = found.summary()
    assert "scores, logweights" in text
    assert f"{found.shared:.1e}" in text
    assert repr(found) == "SoftmaxInvariance(8 heads, 18 comparisons)"


def test_rank_correlation_has_a_null() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(30), rng.standard_normal(30)
    r, p = rank_correlation(a, b, 199, 0)
    assert r == pytest.approx(spearmanr(a, b).statistic)
    assert p == pytest.approx(spearmanr(a, b, alternative="greater").pvalue, abs=0.1)
    assert rank_correlation(a, 2 * a + 1, 199, 0) == (pytest.approx(1), 1 / 200)
    assert rank_correlation(a, np.ones(30), 19, 0) == (0, 1)


def test_float32_torch_and_small_networks(scores: NDArray[Any]) -> None:
    torch = pytest.importorskip("torch")
    found = pa.softmax_invariance(torch.tensor(scores[:6, :5, :3], dtype=torch.float32), n_permutations=3)
    assert found.organizations["logweights"].network.values.dtype == np.float32
    assert found.shared <= 1e-12
    for shape in ((1, 1, 1), (1, 4, 2), (4, 1, 2), (3, 3, 1)):
        small = pa.softmax_invariance(scores[: shape[0], : shape[1], : shape[2]], n_permutations=3)
        assert all(np.isfinite(row["residual"]) for row in small.table)
        assert all(np.isfinite([v for v in row.values() if isinstance(v, float)]).all() for row in small.agreement)
    flat = pa.softmax_invariance(np.zeros((4, 4, 3)), n_permutations=3)
    assert flat.shared <= 1e-12
    assert flat.table[0]["residual"] == 0


def test_refusals(scores: NDArray[Any]) -> None:
    with pytest.raises(ValueError, match=r"^network: got weights, expected scores"):
        pa.softmax_invariance(pa.NetworkTensor(softmax(scores, axis=1), kind="weights"))
    with pytest.raises(ValueError, match=r"^masked: got 'raw'"):
        pa.softmax_invariance(scores, masked="raw")
    with pytest.raises(ValueError, match=r"^n_permutations: got 0"):
        pa.softmax_invariance(scores, n_permutations=0)
    with pytest.raises(TypeError, match=r"^colour: no option"):
        pa.softmax_invariance(scores, colour="red")
