"""What compressed files are made of: trees, masks, numbers and strips, there and back; strips against plain loops."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import caterpillar, random_tree
from numpy.typing import NDArray

import pyattnorg as pa
from pyattnorg.compression import ans, coder
from pyattnorg.compression.mask_code import mask_from_bytes, mask_to_bytes
from pyattnorg.compression.model import SYMBOLS, Model, extra_bits, model_from_bytes, model_to_bytes, symbols_of
from pyattnorg.compression.numbers import Reader, framed, varint
from pyattnorg.compression.order import AxisOrder, functions_at, parents
from pyattnorg.compression.quantize import ZERO, largest_step, quantised, restored, squared_gap
from pyattnorg.compression.tree_code import tree_from_bytes, tree_to_bytes

Ints = NDArray[np.int64]

# -- trees ------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(0, 1000))
def test_trees_come_back(n: int, seed: int) -> None:
    tree = random_tree(n, seed)
    assert tree_from_bytes(tree_to_bytes(tree), n) == tree


@pytest.mark.parametrize("tree", [caterpillar(300), pa.PartitionTree.dyadic(1), pa.PartitionTree.dyadic(33)])
def test_trees_of_any_shape_come_back(tree: pa.PartitionTree) -> None:
    assert tree_from_bytes(tree_to_bytes(tree), tree.n_leaves) == tree


def test_a_tree_that_would_not_be_read_again_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = caterpillar(300)
    monkeypatch.setattr("pyattnorg.compression.tree_code.MOST", 300 * tree.n_levels - 1)
    with pytest.raises(ValueError, match=r"trees: got one of 300 leaves and 300 levels, .* fewer points"):
        tree_to_bytes(tree)
    x = np.random.default_rng(0).standard_normal((300, 4))
    with pytest.raises(ValueError, match="trees: got one of 300 leaves"):
        pa.compress(x, trees=[tree, None], error=0.5, axes="trees")


@pytest.mark.parametrize("n", [2, 10, 128])
def test_a_binary_tree_takes_no_more_bits_than_there_are_trees(n: int) -> None:
    features = np.random.default_rng(n).standard_normal((n, 5))
    tree = pa.entropy_tree(features)
    trees = math.prod(range(1, 2 * n - 2, 2))  # binary trees of n named leaves
    assert len(tree_to_bytes(tree)) <= 1 + math.ceil(trees.bit_length() / 8)


def test_bytes_that_are_no_tree_are_refused() -> None:
    for data in (b"", b"\x09", tree_to_bytes(pa.PartitionTree.dyadic(9)) + b"\x01"):
        with pytest.raises(ValueError, match="damaged"):
            tree_from_bytes(data, 9)


# -- masks and numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["none", "causal", "shifted", "window", "random", "deep", "deep equal"])
def test_masks_come_back(form: str) -> None:
    i, j = np.ogrid[:9, :7]
    rng = np.random.default_rng(0)
    seen = {
        "none": None,
        "causal": j <= i,
        "shifted": j <= i + 2,
        "window": (j <= i) & (j > i - 3),
        "random": rng.random((9, 7)) < 0.5,
        "deep": rng.random((9, 7, 4)) < 0.5,
        "deep equal": np.repeat((j <= i)[:, :, None], 4, axis=2),
    }[form]
    data = mask_to_bytes(seen)
    back = mask_from_bytes(data, (9, 7, 4))
    assert (back is None) == (seen is None)
    assert seen is None or np.array_equal(back, seen)
    assert len(data) <= {"none": 0, "causal": 4, "shifted": 4, "deep equal": 4}.get(form, 100)


@given(st.lists(st.integers(0, 2**70)), st.lists(st.binary(max_size=300)))
def test_numbers_come_back(numbers: list[int], parts: list[bytes]) -> None:
    reader = Reader(b"".join(map(varint, numbers)) + framed(parts))
    assert [reader.varint() for _ in numbers] == numbers
    assert [reader.framed() for _ in parts] == parts
    with pytest.raises(ValueError, match="ends too soon"):
        reader.take(1)


# -- orders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", [random_tree(30, 1), random_tree(31, 2), caterpillar(40), pa.PartitionTree.dyadic(32)])
def test_functions_lie_within_the_one_above(tree: pa.PartitionTree) -> None:
    n = tree.n_leaves
    basis = pa.haar_basis(tree) != 0
    above = parents(tree)
    for function in range(1, n):
        assert (basis[:, above[function]] | ~basis[:, function]).all()
    order = AxisOrder.of(tree, n)
    assert sorted(order.functions) == list(range(n))
    for place in range(1, n):
        assert order.above[place] < place
        assert order.functions[order.above[place]] == above[order.functions[place]]


@pytest.mark.parametrize("tree", [random_tree(64, 3), caterpillar(100), pa.PartitionTree.dyadic(128)])
def test_functions_of_a_point_are_few_runs(tree: pa.PartitionTree) -> None:
    n = tree.n_leaves
    place = np.argsort(AxisOrder.of(tree, n).functions)
    for point in range(n):
        needed, values = functions_at(tree, np.array([point]), n)
        assert np.allclose(values[0], pa.haar_basis(tree)[point, needed])
        runs = 1 + np.count_nonzero(np.diff(np.sort(place[needed])) != 1)
        assert runs <= math.log2(n) + 1


# -- steps ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=50), st.floats(0.01, 10))
def test_steps_err_by_less_than_one(values: list[float], step: float) -> None:
    c = np.array(values)
    found = quantised(c, step)
    back = restored(found)
    assert (np.abs(back - c) <= step * (1 + 1e-9)).all()
    assert (back[np.abs(c) < ZERO * step * (1 - 1e-9)] == 0).all()
    assert (np.sign(back) * np.sign(c) >= 0).all()


@given(st.integers(0, 1000), st.floats(1e-12, 10), st.floats(0, 2))
def test_steps_of_long_arrays_are_those_of_the_formula(seed: int, step: float, threshold: float) -> None:
    rng = np.random.default_rng(seed)
    c = rng.standard_normal((3, 30_001)) * np.exp(3 * rng.standard_normal((3, 1)))
    found = quantised(c, step, threshold)
    scaled = np.abs(c) / found.step
    q = np.floor(scaled + (1 - ZERO)) * (np.abs(c) > threshold)
    assert np.array_equal(found.q, np.sign(c) * q)
    for k, part in enumerate(found.parts, 1):
        at = q == k if k < 3 else q >= k
        assert not at.any() or abs(min((scaled - q)[at].mean() + ZERO, 255 / 256) - part / 256) <= 0.5001 / 256
    back = restored(found)
    offset = np.array([0, *(part / 256 - ZERO for part in found.parts)])[np.minimum(q, 3).astype(int)]
    assert np.allclose(back, np.sign(c) * (q + offset) * found.step * (q > 0), rtol=1e-12)
    assert squared_gap(found, c) == pytest.approx(np.square(back - c).sum(), rel=1e-9)


def test_largest_step_meets_the_error_and_is_no_smaller_than_it_must() -> None:
    for power in (0.5, 1.0, 2.0):
        step = largest_step(lambda s, p=power: (s / 7) ** p, 0.05, 1e-6)
        assert step is not None
        assert 0.99 * 0.05 <= (step / 7) ** power <= 0.05
    assert largest_step(lambda s: 1.0, 0.05, 1.0) is None


# -- strips -----------------------------------------------------------------------------------------------------------


def _numbers(shape: tuple[int, int, int], seed: int) -> Ints:
    """Numbers of very different sizes, most of them 0; (heads, rows, middle)."""
    rng = np.random.default_rng(seed)
    size = np.exp(3 * rng.standard_normal(shape[2]))[:, None, None] * np.exp(rng.standard_normal(shape[0]))[:, None]
    return np.rint(rng.laplace(size=(shape[2], *shape[:2])) * size * 0.3).astype(np.int64)


def _layout(shape: tuple[int, int, int], seed: int) -> coder.Layout:
    trees = [random_tree(n, seed + axis) for axis, n in enumerate(shape)]
    return coder.Layout(shape, AxisOrder.of(trees[0], shape[0]).above, AxisOrder.of(trees[1], shape[1]).above)


@given(st.tuples(st.integers(1, 9), st.integers(1, 8), st.integers(1, 6)), st.integers(0, 100), st.integers(1, 40))
def test_strips_come_back_all_and_some(shape: tuple[int, int, int], seed: int, longest: int) -> None:
    q, layout = _numbers(shape, seed), _layout(shape, seed)
    layout = replace(layout, longest=longest)
    model, strips = coder.encode(q, layout)
    model = model_from_bytes(model_to_bytes(model), shape)
    rng = np.random.default_rng(seed)
    for some in (False, True):
        heads, stretches = np.arange(shape[2]), np.arange(layout.stretches)
        if some:
            heads = np.sort(rng.choice(heads, rng.integers(1, len(heads) + 1), replace=False))
            stretches = np.sort(rng.choice(stretches, rng.integers(1, len(stretches) + 1), replace=False))
        which = (heads[:, None] * layout.stretches + stretches).ravel()
        sizes = np.array([len(strips[i]) for i in which])
        back, rows = coder.decode(b"".join(strips[i] for i in which), sizes, model, layout, heads, stretches)
        assert np.array_equal(back, q[np.ix_(heads, rows)])


def _slowly(strip: bytes, model: Model, layout: coder.Layout, head: int) -> Ints:
    """One strip of all rows, by the formulas and one bit after the other."""
    n, m, _ = layout.shape
    words = list(strip)
    state, at = int.from_bytes(bytes(words[:4]), "little"), 4
    symbol = np.zeros((n, m), np.uint8)
    base = model.bases(np.arange(n), np.array([head]))[0]
    for i in range(n):
        for j in range(m):
            if not model.live[base[i, j]]:
                continue
            above = symbol[layout.above[i], j] if layout.above[i] >= 0 else np.uint8(0)
            beside = symbol[i, layout.beside[j]] if layout.beside[j] >= 0 else np.uint8(0)
            told = min(int(above), model.states) + min(int(beside), model.states)
            freq = model.tables.freq[int(base[i, j]) * (2 * model.states + 1) + told].tolist()
            slot, begin, s = state % 2**ans.BITS, 0, 0
            while slot >= begin + freq[s]:
                begin, s = begin + freq[s], s + 1
            state = freq[s] * (state >> ans.BITS) + slot - begin
            if state < ans.LOW:
                state, at = state << 16 | words[at] | words[at + 1] << 8, at + 2
            symbol[i, j] = s
    bits = "".join(f"{byte:08b}" for byte in words[at:])
    out = np.zeros((n, m), np.int64)
    for i in range(n):
        for j in range(m):
            if symbol[i, j]:
                more = int(extra_bits(symbol[i, j : j + 1])[0])
                value = int("1" + bits[1 : 1 + more], 2) if more else int(symbol[i, j])
                out[i, j] = -value if bits[0] == "1" else value
                bits = bits[1 + more :]
    assert len(bits) < 8
    return out


@pytest.mark.parametrize("seed", range(4))
def test_strips_are_what_the_formulas_read(seed: int) -> None:
    shape = (7, 6, 5)
    q, layout = _numbers(shape, seed), _layout(shape, seed)
    q[1] = 0
    model, strips = coder.encode(q, layout)
    assert strips[1] == b""
    for head, strip in enumerate(strips):
        if strip:
            assert np.array_equal(_slowly(strip, model, layout, head), q[head])


@given(st.tuples(st.integers(1, 9), st.integers(1, 60), st.integers(1, 6)), st.integers(0, 100), st.integers(1, 40))
def test_sizes_are_known_without_coding(shape: tuple[int, int, int], seed: int, longest: int) -> None:
    q, layout = _numbers(shape, seed), replace(_layout(shape, seed), longest=longest)
    model, strips = coder.encode(q, layout)
    same, sized = coder.encode(q, layout, sized=True)
    assert model_to_bytes(same) == model_to_bytes(model)
    for strip, zeros in zip(strips, sized, strict=True):
        assert abs(len(strip) - len(zeros)) <= 2
        assert bool(strip) == bool(zeros)


def test_symbols_of_every_size() -> None:
    magnitude = np.array([0, 1, 15, 16, 17, 31, 32, 2**20 - 1, 2**20, 2**40, 2**50 + 1])
    symbol = symbols_of(magnitude)
    assert symbol.tolist() == [0, 1, 15, 16, 16, 16, 17, 31, 32, 52, 62]
    assert symbol.max() < SYMBOLS
    assert extra_bits(symbol).tolist() == [0, 0, 0, 4, 4, 4, 5, 19, 20, 40, 50]


def test_frequencies_sum_to_a_whole() -> None:
    model, _ = coder.encode(_numbers((9, 8, 7), 1), _layout((9, 8, 7), 1))
    assert set(model.tables.freq.sum(1).tolist()) <= {0, 2**ans.BITS}


def test_coding_is_near_the_entropy() -> None:
    rng = np.random.default_rng(0)
    q = np.rint(rng.laplace(size=(4, 60, 60))).astype(np.int64)
    shape = (60, 60, 4)
    layout = coder.Layout(shape, np.arange(60) - 1, np.arange(60) - 1)
    _, strips = coder.encode(q, layout)
    _, count = np.unique(q, return_counts=True)
    entropy = -(count * np.log2(count / count.sum())).sum() / 8
    assert sum(map(len, strips)) < 1.01 * entropy + 8 * len(strips)  # a state and a last byte each


@given(st.integers(0, 200))
def test_strips_that_are_cut_or_changed_are_refused_or_whole(at: int) -> None:
    q, layout = _numbers((9, 8, 3), 5), _layout((9, 8, 3), 5)
    model, strips = coder.encode(q, layout)
    data = bytearray(b"".join(strips))
    sizes = np.array([len(strip) for strip in strips])
    data[at % len(data)] ^= 1 + at % 255
    try:
        back, _ = coder.decode(bytes(data), sizes, model, layout, np.arange(3), np.arange(1))
    except ValueError:
        return
    assert back.shape == q.shape  # checksums of the file find what this does not
