"""Small parts of capture on their own: names of places, groups, products, masks, choices of layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")
import torch
from torch import nn

from pyattnorg.capture.groups import group, side, tower
from pyattnorg.capture.masks import hidden_by_bias, hidden_by_fill, truly_hidden
from pyattnorg.capture.maths import tolerance
from pyattnorg.capture.places import Places
from pyattnorg.capture.products import factors
from pyattnorg.capture.record import Record, Report
from pyattnorg.capture.select import Selection
from pyattnorg.capture.tokens import Patches


def tree(*paths: str) -> dict[str, nn.Module]:
    """Modules by path, lists where the path has numbers; every leaf of its own class by its last name."""
    root = nn.Module()
    classes: dict[str, type[nn.Module]] = {}
    for path in paths:
        at, parts = root, path.split(".")
        for i, part in enumerate(parts):
            if part not in at._modules:
                kind = nn.ModuleList if i + 1 < len(parts) and parts[i + 1].isdigit() else None
                name = "Step" if part.isdigit() else part
                kind = kind or classes.setdefault(name, type(name, (nn.Module,), {}))
                at.add_module(part, kind())
            at = at._modules[part]  # type: ignore[assignment]
    return dict(root.named_modules())


@pytest.mark.parametrize(
    ("paths", "module", "prefix", "number", "cross"),
    [
        (["encoder.layer.0.attention.self", "encoder.layer.1.attention.self"], 1, "encoder.layer", 1, False),
        (["h.0.attn"], 0, "h", 0, False),
        (["blocks.7.attn", "blocks.8.attn"], 1, "blocks", 8, False),
        (["attn_pool"], 0, None, None, False),
        (["encoder.groups.0.layers.0.attention"], 0, "encoder.groups", 0, False),
        (["decoder.layers.0.encoder_attn", "decoder.layers.1.encoder_attn"], 1, "decoder.layers", 1, True),
        (["h.0.crossattention", "h.1.crossattention"], 0, "h", 0, True),
        (["layers.1.blocks.0.attn", "layers.1.blocks.1.attn", "layers.0.blocks.0.attn"], 1, "layers", None, False),
    ],
)
def test_places(paths: list[str], module: int, prefix: str | None, number: int | None, cross: bool) -> None:
    place = Places(tree(*paths)).place([paths[module]])
    assert (place.prefix, place.number, place.cross) == (prefix, number, cross)
    assert place.module == paths[module]


def test_layers_follow_the_path_and_then_the_calls() -> None:
    hybrid = ["layers.1.attn", "layers.4.attn", "layers.6.attn"]
    places = Places(tree(*hybrid))
    assert [places.next_layer(places.place([p]), (5, 5)) for p in hybrid] == [1, 4, 6]
    places.restart()
    shared = places.place(["layers.1.attn"])
    assert [places.next_layer(shared, (5, 5)) for _ in range(3)] == [1, 2, 3]
    assert places.next_layer(shared, (5, 9)) == 1  # the same module over other keys: two kinds in one layer
    # a shared block inside layers: the layer that runs counts, not where the block was first registered
    places = Places(tree("layers.0.shared.attn", "layers.1.norm", "layers.2.norm"))
    chain = [["layers.0", "layers.0.shared.attn"], ["layers.2", "layers.0.shared.attn"]]
    assert [places.next_layer(places.place(c), (5, 5)) for c in chain] == [0, 2]


def record(module: str, modules: dict[str, nn.Module], layer: int, shape: tuple[int, int, int]) -> Record:
    empty = np.empty(0, np.int64)
    place = Places(modules).place([module])
    return Record(place, layer, empty, empty, None, None, None, True, None, shape, {})


@pytest.mark.parametrize(
    ("given_", "names"),
    [
        ([("layers.0.attn", (2, 5, 5)), ("layers.1.attn", (2, 5, 5))], [""]),
        ([("encoder.layers.0.attn", (2, 5, 5)), ("decoder.layers.0.attn", (2, 5, 5))], ["encoder", "decoder"]),
        (
            [("text_model.encoder.layers.0.attn", (2, 5, 5)), ("vision_model.encoder.layers.0.attn", (2, 9, 9))],
            ["text", "vision"],
        ),
        ([("left.layers.0.attn", (2, 5, 5)), ("right.layers.0.attn", (2, 5, 5))], ["left", "right"]),
        ([("layers.0.local", (2, 5, 5)), ("layers.1.full", (2, 5, 5))], [""]),
        ([("layers.0.a", (2, 5, 5)), ("layers.0.b", (2, 5, 5))], ["layers a", "layers b"]),
        ([("layers.0.attn", (2, 9, 9)), ("layers.1.attn", (2, 5, 5))], ["layers 9x9", "layers 5x5"]),
        ([("blocks.0.attn", (2, 9, 9)), ("pool", (2, 1, 9))], ["blocks", "pool"]),
    ],
)
def test_groups(given_: list[tuple[str, tuple[int, int, int]]], names: list[str]) -> None:
    modules = tree(*(path for path, _ in given_))
    records = [record(p, modules, int("".join(c for c in p if c.isdigit()) or 0), s) for p, s in given_]
    assert list(group(records)) == names


def test_words_in_paths() -> None:
    assert [tower(p) for p in ("model.vision_tower.layers", "language_model.layers", "layers")] == [
        "vision",
        "text",
        "",
    ]
    assert [side(p) for p in ("model.decoder.layers", "encoder.block", "h")] == ["decoder", "encoder", ""]


def test_products() -> None:
    a, b = torch.zeros(2, 3, 4), torch.zeros(2, 4, 5)
    plain = factors("matmul", (a, b), {})
    assert plain is not None
    assert plain.sums_over(a, -1, -2)
    assert plain.sums_over(b, -2, -1)
    assert not plain.sums_over(a, -2, -1)
    assert plain.width(a) == 5
    turned = factors("__rmatmul__", (b, a), {})
    assert turned is not None
    assert turned.left is a
    by_name = factors("bmm", (), {"input": a, "mat2": b})
    assert by_name is not None
    assert by_name.right is b
    e = factors("einsum", ("bhqk, bkhd -> bqhd", torch.zeros(1, 2, 3, 4), torch.zeros(1, 4, 2, 5)), {})
    assert e is not None
    assert e.sums_over(e.left, -1, -2)
    assert not e.sums_over(e.left, -2, -1)
    assert e.width(e.left) == 5
    assert factors("einsum", ("i->i", a[0, 0]), {}) is None
    assert factors("matmul", (a, torch.zeros(4)), {}) is None


@pytest.mark.parametrize("low", [-100.0, -1e4, -65504.0, -3.4e38, -float("inf")])
def test_additive_masks(low: float) -> None:
    mask = torch.tensor([[0.0, low], [0.0, 0.0]])
    hidden = hidden_by_bias(mask)
    assert hidden is not None
    assert hidden.tolist() == [[False, True], [False, False]]


@pytest.mark.parametrize(
    "bias",
    [torch.tensor([0.0, -99.0]), torch.tensor([-3.0, -200.0, 0.0]), torch.full((3,), -500.0), torch.arange(3), None],
)
def test_biases_are_no_masks(bias: Any) -> None:
    assert hidden_by_bias(bias) is None
    assert hidden_by_fill(torch.tensor([True]), -1.0) is None


@given(st.lists(st.booleans(), min_size=4, max_size=4))
def test_hidden_cells_have_no_weight_or_a_row_that_sees_nothing(row: list[bool]) -> None:
    hidden = torch.tensor([row])
    weights = torch.softmax(torch.zeros(1, 4).masked_fill(hidden, torch.finfo(torch.float32).min), -1)
    assert torch.equal(truly_hidden(hidden, weights), hidden)
    assert not truly_hidden(torch.tensor([[True, False]]), torch.tensor([[0.5, 0.5]])).any()


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(0, 30))
def test_choices_of_layers(numbers: list[int], asked: int) -> None:
    text = ",".join(str(n) for n in numbers)
    for choice in (text, numbers, set(numbers), np.array(numbers)):
        assert Selection.of(choice).layer(asked) == (asked in numbers)
    assert Selection.of(slice(2, 20, 3)).layer(asked) == (asked in range(2, 20, 3))
    assert Selection.of(f"3-{3 + numbers[0]}").layer(asked) == (3 <= asked <= 3 + numbers[0])
    assert Selection.of().layer(asked)


def test_names_of_patches() -> None:
    assert Patches((8, 8)).names(4, (16, 16)) == ["r0c0", "r0c1", "r1c0", "r1c1"]
    assert Patches((8, 16)).names(3, (16, 16)) == ["cls", "r0c0", "r1c0"]
    assert Patches((8, 8), registers=2).names(7, (16, 16)) == ["cls", "reg1", "reg2", "r0c0", "r0c1", "r1c0", "r1c1"]
    assert Patches((8, 8)).names(6, (16, 16)) is None  # nothing says that the other two come first
    assert Patches((8, 8), prefix=2).names(6, (16, 16)) == ["prefix1", "prefix2", "r0c0", "r0c1", "r1c0", "r1c1"]
    for n, image in ((3, (16, 16)), (99, (16, 16)), (4, None)):
        assert Patches((8, 8)).names(n, image) is None
    assert Patches().names(4, (16, 16)) is None
    assert Patches((8, 8), prefix=1).names(4, (16, 16)) is None


def test_an_empty_report() -> None:
    assert repr(Report()) == "Report(no layers)"


@pytest.mark.parametrize("keys", [512, 8192, 65536])
def test_rounding_of_long_means_is_no_difference(keys: int) -> None:
    # Flat attention over values that differ: what kernels disagree by, over the size of the mean, grows with the keys.
    values = torch.randn(keys, 16, generator=torch.Generator().manual_seed(0))
    weights = torch.full((64, keys), 1.0 / keys)
    one = weights @ values
    other = torch.stack([(weights[:, i::7] @ values[i::7]) for i in range(7)]).sum(0)  # another order of the sum
    assert float((one - other).abs().max() / one.abs().max()) < tolerance(torch.float32, keys) / 2
    assert tolerance(torch.float32, keys) == 64 * 2.0**-23 * (keys / 512) ** 0.5
    assert tolerance(torch.bfloat16, keys) == tolerance(torch.bfloat16)
