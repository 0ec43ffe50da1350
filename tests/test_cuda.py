"""Arrays on a GPU: in and out without leaving it. Without one torch's CPU memory plays it, emulated."""

from __future__ import annotations

import logging
import os
import runpy
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from inputs import random_tree
from numpy.typing import NDArray

import pyattnorg as pa
from pyattnorg import arrays, device_kernels, devices, kernels, organization

torch = pytest.importorskip("torch")
pytest.importorskip("pyattnorg._emulated" if not devices.has_gpu() else "pyattnorg._cuda")

SHAPE = (9, 7, 5)
TREES = [random_tree(n, n) for n in SHAPE]


class Pretended(devices.Emulated):
    """torch's CPU memory as if it were a GPU's."""

    def array(self, x: Any) -> Any:
        return x if isinstance(x, torch.Tensor) else torch.from_numpy(devices.borrowed(x))

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return torch.empty(shape, dtype=getattr(torch, np.dtype(dtype).name))

    def host(self, x: Any) -> NDArray[Any]:
        return np.asarray(x)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Callable[[NDArray[Any]], Any]:
    """What brings NumPy to the GPU, or to what plays it."""
    if devices.has_gpu():
        return lambda x: torch.from_numpy(x).cuda()
    monkeypatch.setattr(devices, "memory_for", lambda x: Pretended() if isinstance(x, torch.Tensor) else None)
    monkeypatch.setattr(arrays, "on_gpu", lambda x: isinstance(x, torch.Tensor))
    return torch.from_numpy


def _tensor(dtype: type = np.float32) -> NDArray[Any]:
    return np.random.default_rng(0).integers(-64, 65, SHAPE).astype(dtype) / 32  # numbers that bfloat16 holds


_square = np.random.default_rng(1).random((11, 11))
DISTANCES = (_square + _square.T) * (1 - np.eye(11))
FUNCTIONS: dict[str, tuple[NDArray[Any], Callable[[Any], Any]]] = {
    "pairwise_l1": (_tensor(), pa.pairwise_l1),
    "pairwise_l1, y": (_tensor(), lambda x: pa.pairwise_l1(x, x[:4] + 1)),
    "pairwise_l1, weights": (_tensor(), lambda x: pa.pairwise_l1(x, weights=np.arange(35.0).reshape(7, 5))),
    "tree_emd": (_tensor(), lambda x: pa.tree_emd(x, TREES[1:], alpha=0.5)),
    "tree_emd, one tree": (_tensor()[:, :, 0].copy(), lambda x: pa.tree_emd(x, TREES[1])),
    "tree_emd, three": (_tensor()[None].repeat(2, 0), lambda x: pa.tree_emd(x, TREES)),
    "cosine_affinity": (_tensor(), pa.cosine_affinity),
    "cosine_affinity, missing": (_tensor(), lambda x: pa.cosine_affinity(x, missing=0.0)),
    "cosine_affinity, missing 1": (_tensor(), lambda x: pa.cosine_affinity(x, missing=1.0)),
    "gaussian_affinity": (_tensor(), lambda x: pa.gaussian_affinity(x, neighbors=4, scale=2.0)),
    "dual_affinity": (DISTANCES, lambda x: pa.dual_affinity(x, scale=0.5)),
    "haar": (_tensor(), lambda x: pa.haar(x, TREES)),
    "haar, one axis": (_tensor(), lambda x: pa.haar(x, [None, TREES[1], None])),
    "haar, no axis": (_tensor(), lambda x: pa.haar(x, [None] * 3)),
    "ihaar": (_tensor(), lambda x: pa.ihaar(x, TREES)),
    "haar, l1": (_tensor(), lambda x: pa.haar(x, TREES, normalization="l1")),
    "ihaar, l1": (_tensor(), lambda x: pa.ihaar(x, [TREES[0], None, TREES[2]], normalization="l1")),
    "martingale_differences": (_tensor(), lambda x: pa.martingale_differences(x, [TREES[0], None, TREES[2]])),
    "imartingale_differences": (
        _tensor().repeat(2, 0)[: TREES[0].n_folders],
        lambda x: pa.imartingale_differences(x, [TREES[0], None, None]),
    ),
    "shrink": (_tensor(), lambda x: pa.shrink(x, 0.7)),
    "shrink, hard": (_tensor(), lambda x: pa.shrink(x, 0.7, rule="hard")),
    "keep_volumes": (_tensor(), lambda x: pa.keep_volumes(x, TREES, 0.05)),
    "denoise": (_tensor(), lambda x: pa.denoise(x, TREES)),
    "denoise, sets": (_tensor(), lambda x: pa.denoise(x, [TREES, [None, TREES[1], None]], noise=0.3, rule="hard")),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_comes_out_lies_where_it_came_from_and_equals_the_cpu(name: str, dtype: str, there: Any) -> None:
    x, function = FUNCTIONS[name]
    given = there(x).to(getattr(torch, dtype))
    exact = function(given.double().cpu().numpy())
    got = function(given)
    assert got.device == given.device
    assert got.dtype == (torch.float64 if dtype == "float64" else torch.float32)
    got = got.cpu().double().numpy()
    assert got.shape == exact.shape
    assert np.abs(got - exact).max() <= (1e-12 if dtype == "float64" else 1e-5) * np.abs(exact).max()
    turned = given.permute(*range(given.ndim)[::-1]).contiguous().permute(*range(given.ndim)[::-1])
    assert np.abs(function(turned).cpu().double().numpy() - got).max() <= 1e-6 * np.abs(exact).max()


def test_numbers_that_come_of_tensors(there: Any) -> None:
    x = _tensor(np.float64)
    for of in (
        lambda x: pa.noise_level(x, TREES),
        lambda x: pa.data_weights(x, TREES[1], 1),
        lambda x: pa.data_weights(x * 1e150, TREES[2], -1),
        lambda x: np.stack(list(pa.head_entropies(x, TREES).values())),
    ):
        found = of(there(x))
        assert isinstance(found, (float, np.ndarray))
        assert found == pytest.approx(of(x), rel=1e-12)
    with pytest.raises(ValueError, match=r"^axis: got 3, x has 3 axes"):
        pa.data_weights(there(x), TREES[1], 3)


@pytest.mark.parametrize("axes", [(0, 1), (0, 1, 2), (2,)])
@pytest.mark.parametrize("function", ["softmax", "exp", "own"])
def test_paraproducts(function: Any, axes: tuple[int, ...], there: Any) -> None:
    x, trees = _tensor(np.float64), [tree if axis in axes else None for axis, tree in enumerate(TREES)]
    how = (lambda t: t**2, lambda t: 2 * t, lambda t: 2.0) if function == "own" else function
    here, found = pa.paraproduct(x, trees, how), pa.paraproduct(there(x), trees, how)
    for name in ("argument", "value", "boundary", "first", "second", "residual", "approximation"):
        one, other = getattr(found, name), getattr(here, name)
        assert one.device == there(x).device
        assert one.dtype == torch.float64
        assert one.cpu().numpy() == pytest.approx(other, abs=1e-12)
    assert found.relative_residual() == pytest.approx(here.relative_residual(), rel=1e-9)
    assert found.relative_residual(axis=2) == pytest.approx(here.relative_residual(axis=2), rel=1e-9)
    assert repr(found) == repr(here)
    narrow = pa.paraproduct(there(x).to(torch.bfloat16), trees, how)
    assert narrow.residual.cpu().numpy() == pytest.approx(here.residual, abs=1e-12)


def test_paraproducts_that_fail_say_why(there: Any) -> None:
    x = there(_tensor(np.float64))
    with pytest.raises(ValueError, match=r"^function: gave NaN or infinity"):
        pa.paraproduct(x * 1e6, TREES)
    with pytest.raises(ValueError, match=r"^function: gave shape \(9, 7\) for values of shape \(9, 7, 5\)"):
        pa.paraproduct(x, TREES, (lambda t: t[:, :, 0], lambda t: t))
    with pytest.raises(ValueError, match=r"^f: got shape \(0, 2\)"):
        pa.paraproduct(x[:0, :2, 0])


def test_numbers_of_coefficients(there: Any) -> None:
    c = _tensor(np.float64)
    for of in (pa.l1_entropy, pa.effective_number, lambda x: pa.l1_entropy(x, normalized=False)):
        assert of(there(c)) == pytest.approx(of(c), rel=1e-12)
    c[2, 3, 4] = np.nan
    with pytest.raises(ValueError, match=r"at index \(2, 3, 4\)"):
        pa.l1_entropy(there(c))


def test_nan_shows_and_does_not_spread(there: Any) -> None:
    x = _tensor()
    x[2, 1, 1] = np.nan
    got = np.isnan(pa.pairwise_l1(there(x)).cpu().numpy())
    assert got[2].all()
    assert not np.delete(np.delete(got, 2, 0), 2, 1).any()


def test_empty_and_refused(there: Any) -> None:
    assert tuple(pa.pairwise_l1(there(np.zeros((0, 4), np.float32))).shape) == (0, 0)
    assert tuple(pa.pairwise_l1(there(np.zeros((3, 0), np.float32))).shape) == (3, 3)
    assert tuple(pa.haar(there(np.zeros((0, 7), np.float32)), [None, TREES[1]]).shape) == (0, 7)
    x = there(_tensor())
    for call, message in (
        (lambda: pa.pairwise_l1(x, x[:, :3]), r"^y: got 15 features, expected 35"),
        (lambda: pa.pairwise_l1(x, weights=np.ones(3)), r"^weights: got shape \(3,\)"),
        (lambda: pa.tree_emd(x, TREES[:2]), r"^trees: got \[9, 7\] leaves"),
        (lambda: pa.haar(x, TREES[:2]), r"^trees: got 2, x has 3 axes"),
        (lambda: pa.haar(x, TREES[::-1]), r"^tree: got one of 5 leaves for axis 0"),
        (lambda: pa.dual_affinity(x[0]), r"^distances: got shape \(7, 5\)"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_least_entropy_trees_are_built_there(there: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(5).random((12, 40, 6)) ** 3
    fetched = []
    memory = devices.memory_for(there(x))
    host = type(memory).host

    def watched(self: Any, found: Any) -> Any:
        fetched.append(int(np.prod(found.shape)))
        return host(self, found)

    monkeypatch.setattr(type(memory), "host", watched)
    for options in ({}, {"noise": 0.0}, {"noise": 0.2, "improve": False}, {"max_features": 100}):
        assert pa.entropy_tree(there(x), **options) == pa.entropy_tree(x, **options)
    pa.Questionnaire(3).fit(there(x))
    assert 0 < max(fetched) <= 40 * 40  # distances and merges, and nothing of the tensor's size
    assert pa.entropy_tree(there(np.ones((1, 5)))) == pa.PartitionTree.dyadic(1)
    assert pa.entropy_tree(there(np.ones((3, 0)))).n_leaves == 3


def test_bad_features_are_refused_there(there: Any) -> None:
    x = np.random.default_rng(6).random((5, 4))
    x[1, 2] = np.nan
    for improve in (False, True):
        with pytest.raises(ValueError, match=r"^features: .* NaN or infinite"):
            pa.entropy_tree(there(x), improve=improve)
    with pytest.raises(ValueError, match="overflow"):
        pa.entropy_tree(there(np.array([[3e38], [-3e38]], np.float32)))
    with pytest.raises(ValueError, match="at least one point"):
        pa.entropy_tree(there(np.ones((0, 5))))


def test_device_cuda_needs_no_kind_of_tree(there: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(8).random(SHAPE).astype(np.float32)
    built = []
    if not devices.has_gpu():
        monkeypatch.setattr(devices, "Gpu", lambda device: built.append(device) or Pretended())
        for module in ("devices", "network"):
            monkeypatch.setattr(f"pyattnorg.{module}.chosen_device", lambda device: device)
    here = pa.organize(x, n_iter=3)
    for found in (pa.organize(x, n_iter=3, device="cuda"), pa.organize(pa.NetworkTensor(x).cuda(), n_iter=3)):
        assert found.trees_ == here.trees_
        assert found.questionnaire.tree_kinds_ == ("entropy",) * 3
        assert found.head_table()[0]["label"] == here.head_table()[0]["label"]
        assert found.entropies() == pytest.approx(here.entropies(), rel=1e-5)
    assert devices.has_gpu() or built == ["cuda"] * 2


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_least_entropy_rounds_of_narrow_numbers(dtype: str, there: Any) -> None:
    given = there(np.random.default_rng(7).random((14, 10, 6)) ** 3).to(getattr(torch, dtype))
    here, found = (pa.Questionnaire(4).fit(x) for x in (given.float().cpu().numpy(), given))
    assert found.trees_ == here.trees_
    assert [one["entropy"] for one in found.history_] == pytest.approx([one["entropy"] for one in here.history_], 1e-5)
    for a, b in zip(found.distances_, here.distances_):
        assert a == pytest.approx(b, rel=1e-5, abs=1e-5 * float(b.max()))


@pytest.mark.parametrize(
    "options",
    [{}, {"tree": "flexible"}, {"schedule": "paper"}, {"initial": "gaussian", "tree": "binary"}],
    ids=str,
)
def test_a_questionnaire_finds_the_same_trees(options: dict[str, Any], there: Any) -> None:
    x = np.random.default_rng(3).random(SHAPE)
    here, found = (pa.Questionnaire(2, **options).fit(values) for values in (x, there(x)))
    assert found.trees_ == here.trees_
    for axis in range(3):
        assert found.distances_[axis] == pytest.approx(here.distances_[axis], rel=1e-10, abs=1e-12)
        assert isinstance(found.affinities_[axis], np.ndarray)
    assert found.history_[-1]["entropy"] == pytest.approx(here.history_[-1]["entropy"], rel=1e-10)
    assert found.coefficients().cpu().numpy() == pytest.approx(here.coefficients(), abs=1e-12)
    assert np.array_equal(found.organized().cpu().numpy(), here.organized())
    assert np.array_equal(pa.organize(x, n_iter=2, **options).trees_[2].labels, here.trees_[2].labels)


def test_masked_cells_never_reach_the_device(there: Any) -> None:
    x = np.random.default_rng(4).random(SHAPE).astype(np.float32)
    x[3, 5] = -np.inf
    here = pa.Questionnaire(1, tree="flexible").fit(x)
    arrays._told.clear()
    with pytest.warns(pa.MovedToHostWarning, match=r"^x: got an array on .*fit works on it in this machine's memory"):
        found = pa.Questionnaire(1, tree="flexible").fit(there(x))
    assert found.trees_ == here.trees_


def test_calls_from_several_threads(there: Any) -> None:
    x = there(_tensor())
    expected, found = pa.tree_emd(x, TREES[1:]).cpu().numpy(), []
    threads = [threading.Thread(target=lambda: found.append(pa.tree_emd(x, TREES[1:]).cpu().numpy())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [np.array_equal(one, expected) for one in found] == [True] * 4


def test_errors_of_the_runtime_are_exceptions(there: Any) -> None:
    x = there(_tensor())
    memory = devices.memory_for(x)
    assert memory is not None
    nowhere = memory.kernels.Place(memory.kernels.device_count(), 0)
    with pytest.raises(RuntimeError, match=r"^CUDA, device: "):
        memory.kernels.cosines("float32", memory.address(x), 5, memory.address(x), nowhere)
    with pytest.raises(ValueError, match="float32 or float64"):
        memory.kernels.cosines("bfloat16", memory.address(x), 5, memory.address(x), memory.place())
    assert pa.pairwise_l1(x).shape == (9, 9)  # and what comes next is not disturbed


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="torch has one name for it")
@pytest.mark.parametrize("chosen", ["none", "ieee", "tf32"])
def test_products_take_whatever_was_chosen_for_others_and_leave_it(chosen: str) -> None:
    asked = torch.backends.cuda.matmul
    before = asked.fp32_precision
    a = torch.arange(6.0).reshape(2, 3)
    try:
        asked.fp32_precision = chosen
        assert torch.equal(device_kernels.full_product(a, a), a @ a.T)
        assert asked.fp32_precision == chosen
    finally:
        asked.fp32_precision = before


def test_read_only_memory_is_lent_to_torch_without_a_warning() -> None:
    x = _tensor()
    x.flags.writeable = False
    lent = torch.from_numpy(devices.borrowed(x))
    assert lent.data_ptr() == x.ctypes.data
    assert np.array_equal(lent.numpy(), x)
    for other in (x[:0], x.T, x[::2]):
        assert np.array_equal(torch.from_numpy(devices.borrowed(other)).numpy(), other)


def test_threads_that_weigh_one_tree_differently(there: Any) -> None:
    x, alphas = there(_tensor()), (0.0, 0.5, 1.0)
    expected = {alpha: pa.tree_emd(x, TREES[1:], alpha=alpha).cpu().numpy().tobytes() for alpha in alphas}
    wrong: list[Any] = []

    def work(alpha: float) -> None:
        try:
            for _ in range(20):
                if pa.tree_emd(x, TREES[1:], alpha=alpha).cpu().numpy().tobytes() != expected[alpha]:
                    wrong.append(alpha)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(alpha,)) for alpha in alphas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# -- what only a real GPU can show ------------------------------------------------------------------------------------

on_a_gpu = pytest.mark.skipif(not devices.has_gpu(), reason="no GPU here: streams and waiting are not emulated")
UNAWAITED: tuple[Callable[[Any], Any], ...] = (
    pa.pairwise_l1,
    pa.cosine_affinity,
    pa.gaussian_affinity,
    lambda x: pa.tree_emd(x, TREES[1:]),
    lambda x: pa.ihaar(pa.haar(x, TREES), TREES),
    lambda x: pa.shrink(x, 0.5),
)


@on_a_gpu
def test_nothing_waits_for_the_device() -> None:
    x = torch.randn(SHAPE, device="cuda")
    for call in UNAWAITED:
        call(x)  # what kernels know of a tree is copied once
    torch.cuda.set_sync_debug_mode("error")
    try:
        for call in UNAWAITED:
            call(x)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@on_a_gpu
def test_work_goes_onto_the_current_stream() -> None:
    x, values = torch.zeros(SHAPE, device="cuda"), torch.randn(SHAPE, device="cuda")
    expected = [call(values) for call in UNAWAITED]
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # whoever does not wait for this reads zeros
        x.copy_(values)
        found = [call(x) for call in UNAWAITED]
    stream.synchronize()
    assert all(torch.equal(one, other) for one, other in zip(found, expected))


@on_a_gpu
def test_every_gpu_by_a_thread_of_its_own() -> None:
    values, found = _tensor(), {}

    def work(device: int) -> None:
        x = torch.from_numpy(values).to(f"cuda:{device}")
        got = pa.tree_emd(x, TREES[1:])
        assert got.device == x.device
        found[device] = got.cpu().numpy(), pa.entropy_tree(x)

    threads = [threading.Thread(target=work, args=(device,)) for device in range(torch.cuda.device_count())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == torch.cuda.device_count()
    assert len({(distances.tobytes(), tree) for distances, tree in found.values()}) == 1


# -- what has no kernels on a GPU: computed here, which is said -------------------------------------------------------

_affinity = np.exp(-DISTANCES)
MOVED: dict[str, Callable[[Any], Any]] = {
    "flexible_tree": lambda of: pa.flexible_tree(of(_affinity)),
    "binary_tree": lambda of: pa.binary_tree(of(_affinity)),
    "diffusion_map": lambda of: pa.diffusion_map(of(_affinity)).coordinates,
    "lp_entropy": lambda of: pa.lp_entropy(of(_tensor()), 0.5),
    "energy_curve": lambda of: pa.energy_curve(of(_tensor())),
    "coefficients_needed": lambda of: pa.coefficients_needed(of(_tensor())),
    "coarsest_entropy": lambda of: pa.coarsest_entropy(of(_tensor()), TREES),
    "published_head_entropy": lambda of: pa.published_head_entropy(of(_tensor()), TREES),
    "mixed_holder": lambda of: pa.mixed_holder(of(_tensor()), TREES).exponent,
    "best_basis": lambda of: pa.best_basis(of(_tensor()), TREES)[2].matrix(),
    "packet_transform": lambda of: pa.packet_transform(of(_tensor()), pa.best_basis(_tensor(), TREES)),
    "inverse_packet_transform": lambda of: pa.inverse_packet_transform(of(_tensor()), pa.best_basis(_tensor(), TREES)),
    "mantel": lambda of: pa.mantel(of(DISTANCES), of(DISTANCES**2), n_permutations=9).correlation,
    "adjusted_rand_index": lambda of: pa.adjusted_rand_index(of(np.arange(9.0)), of(np.arange(9.0) // 2)),
    "Paraproduct.regularity": lambda of: pa.paraproduct(of(_tensor()), TREES).regularity().slope["value"],
    "DiffusionMap.extend": lambda of: pa.diffusion_map(_affinity).extend(of(_affinity[:3])),
}


@pytest.mark.parametrize("name", MOVED)
def test_what_is_computed_here_says_so_once(name: str, there: Any) -> None:
    here = MOVED[name](lambda x: x)
    arrays._told.clear()
    with pytest.warns(
        pa.MovedToHostWarning, match=rf"{name.split('.')[-1]} works on it in this machine's memory"
    ) as told:
        found = MOVED[name](there)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert not isinstance(found, torch.Tensor) or found.device == there(_affinity).device
    if isinstance(found, pa.PartitionTree):
        assert found == here
    else:
        assert np.asarray(found.cpu() if isinstance(found, torch.Tensor) else found) == pytest.approx(here, rel=1e-6)
    MOVED[name](there)  # a second time nothing is said, or the warning would be an error


def test_networks_keep_their_values_here(there: Any) -> None:
    arrays._told.clear()
    network = pa.NetworkTensor(there(_tensor()))
    assert isinstance(network.values, np.ndarray)
    found = pa.organize(there(_tensor()), n_iter=1)
    assert found.trees_ == pa.organize(_tensor(), n_iter=1).trees_


@pytest.mark.parametrize("masked", [False, True])
def test_what_lies_on_a_gpu_is_not_brought_there_again(
    masked: bool, there: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, given = np.random.default_rng(9).random(SHAPE).astype(np.float32), []
    values[2, 3, 1] = -np.inf if masked else 0
    here, fit = pa.organize(values, n_iter=1), pa.Questionnaire.fit
    if not devices.has_gpu():
        monkeypatch.setattr(organization, "_device_of", lambda network: "cuda:0")

    def watched(self: Any, x: Any, *args: Any, **options: Any) -> Any:
        given.append(x)
        return fit(self.set_params(device=None), x, *args, **options)

    monkeypatch.setattr(pa.Questionnaire, "fit", watched)
    x = there(values)
    found = pa.organize(x, n_iter=1)
    assert isinstance(given[0], np.ndarray) if masked else given[0] is x
    assert found.trees_ == here.trees_
    assert np.array_equal(found.organized(), here.organized())
    assert np.array_equal(found.coefficients(), here.coefficients())


def test_a_network_made_of_another_stays_on_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyattnorg.network.chosen_device", lambda name: name)
    visible = np.tril(np.ones((7, 7), bool))
    network = pa.NetworkTensor(np.ones((7, 7, 3)), visible=visible).cuda("cuda:1")
    for one in (network, network.filled(), network.take_heads([0, 2]), network.without([1])):
        assert one.device == "cuda:1"


class _OnGpu:
    """A DLPack producer whose array is said to lie on a GPU."""

    def __init__(self, x: NDArray[Any]) -> None:
        self.x = x

    def __dlpack__(self, **_: Any) -> Any:
        return self.x.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def test_any_producer_of_arrays_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert arrays.on_gpu(_OnGpu(DISTANCES))
    assert not arrays.on_gpu(DISTANCES)
    arrays._told.clear()
    monkeypatch.setattr(arrays, "as_tensor", lambda x: torch.from_numpy(x.x))
    with pytest.warns(pa.MovedToHostWarning, match=r"^affinity: got an array on a GPU; flexible_tree"):
        found = pa.flexible_tree(_OnGpu(_affinity))
    assert found == pa.flexible_tree(_affinity)


# -- a GPU that is not there ------------------------------------------------------------------------------------------

without_gpu = pytest.mark.skipif(devices.has_gpu(), reason="there is a GPU")


@without_gpu
def test_a_gpu_that_is_not_there_is_an_error_in_words(caplog: pytest.LogCaptureFixture) -> None:
    network = pa.NetworkTensor(_tensor())
    for call in (
        network.cuda,
        lambda: pa.organize(network, device="cuda"),
        lambda: pa.Questionnaire(device="cuda:1").fit(_tensor()),
    ):
        with pytest.raises(ImportError, match=r"^device: (this build has no CUDA kernels|no CUDA GPU can be used)"):
            call()
    with pytest.raises(ValueError, match=r"^device: got 'tpu', expected 'cpu', 'cuda'"):
        pa.organize(network, device="tpu")
    with caplog.at_level(logging.WARNING, "pyattnorg"):
        pa.organize(network, n_iter=1, device="auto")
    assert "organising on the CPU, no GPU here" in caplog.text


@without_gpu
def test_a_gpu_too_old_for_the_kernels_is_told_before_the_first_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    built = SimpleNamespace(device_count=lambda: 1)
    monkeypatch.setattr(pa, "_cuda", built, raising=False)
    monkeypatch.setitem(sys.modules, "pyattnorg._cuda", built)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (7, 5) if index == 0 else (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Tesla T4")
    for cached in (devices.cuda_kernels, devices._too_old):
        cached.cache_clear()
    try:
        assert not devices.has_gpu()
        said = r"Tesla T4 has compute capability 7\.5, the kernels need 8\.0\); use device='cpu'"
        with pytest.raises(ImportError, match=said):
            pa.Questionnaire(device="cuda").fit(np.eye(4))
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
        assert devices.has_gpu()  # a newer one beside it
        with pytest.raises(ImportError, match=said):
            devices.Gpu("cuda:0")
        assert devices.Gpu("cuda:1").kernels is built
    finally:
        for cached in (devices.cuda_kernels, devices._too_old):
            cached.cache_clear()


def test_the_forced_backend_cuda_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYATTNORG_BACKEND", "cuda")
    with pytest.raises(ImportError, match=r"^device: "):
        pa.pairwise_l1(np.zeros((2, 2)))


def test_emulated_orders_of_threads_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyattnorg._emulated")
    monkeypatch.setenv("PYATTNORG_BACKEND", "emulated")
    x, found = _tensor(), set()
    for order in ("forward", "backward", "shuffled"):
        monkeypatch.setenv("PYATTNORG_EMULATED_ORDER", order)
        found.add((pa.tree_emd(x, TREES[1:]).tobytes(), pa.haar(x, TREES).tobytes(), kernels.norms(x)))
    assert len(found) == 1
    assert "PYATTNORG_EMULATED_ORDER" in os.environ


def test_what_sanitizers_are_given_runs_every_kernel(there: Any) -> None:
    cases = runpy.run_path(str(Path(__file__).resolve().parent.parent / "bench" / "gpu_cases.py"))
    called: set[str] = set()
    memory = devices.memory_for(there(_tensor()))
    assert memory is not None
    real = memory.kernels

    class Watched:
        def __getattr__(self, name: str) -> Any:
            called.add(name)
            return getattr(real, name)

    kind = type(memory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "kernels", property(lambda self: Watched(), lambda self, value: None), raising=False)
        cases["kernels"]("cuda" if devices.has_gpu() else "cpu", (18, 10, 7))
    named = {name for name in dir(real) if not name.startswith("_")} - {"device_count"}
    assert named - called <= {"cosines"}  # of tensors that lie on a GPU; products are torch's there
