"""Attention of anyone's making: heads before examples, merged with them, one by one; no map is another example's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from torch import Tensor, nn

import pyattnorg as pa
from pyattnorg.capture.errors import UnsupportedAttentionError

WIDTH, HEADS = 16, 4


class Attention(nn.Module):
    """Queries, keys and values (batch, heads, tokens, width), and the maps as they are to come out."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = HEADS
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        with torch.no_grad():
            self.qkv.weight.mul_(4)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4).unbind(0)

    def maps(self, x: Tensor) -> Tensor:
        q, k, _ = self.split(x)
        return (q @ k.mT / 2).softmax(-1)


class HeadsFirst(Attention):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.transpose(0, 1) for t in self.split(x))
        return self.out(((q @ k.mT / 2).softmax(-1) @ v).permute(1, 2, 0, 3).flatten(2))


class HeadsFirstMerged(Attention):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.transpose(0, 1).flatten(0, 1) for t in self.split(x))
        y = torch.bmm((torch.bmm(q, k.mT) / 2).softmax(-1), v)
        return self.out(y.unflatten(0, (HEADS, len(x))).permute(1, 2, 0, 3).flatten(2))


class ExamplesFirstMerged(Attention):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.flatten(0, 1) for t in self.split(x))
        y = torch.bmm((torch.bmm(q, k.mT) / 2).softmax(-1), v)
        return self.out(y.unflatten(0, (len(x), HEADS)).transpose(1, 2).flatten(2))


class HeadByHead(Attention):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(x)
        each = [(q[:, h] @ k[:, h].mT / 2).softmax(-1) @ v[:, h] for h in range(HEADS)]
        return self.out(torch.cat(each, -1))


class ExampleByExample(Attention):
    def forward(self, x: Tensor) -> Tensor:
        out = []
        for one in x:
            q, k, v = (t[0] for t in self.split(one[None]))
            y = nn.functional.scaled_dot_product_attention(q, k, v, scale=0.5)
            out.append(self.out(y.transpose(0, 1).flatten(1)))
        return torch.stack(out)


class Model(nn.Module):
    def __init__(self, kind: type[Attention]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([kind(), kind()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x

    def maps(self, x: Tensor) -> Any:
        """(batch, queries, keys, heads of both layers)"""
        first = self.layers[0]
        with torch.no_grad():
            both = torch.cat([first.maps(x), self.layers[1].maps(x + first(x))], 1)
        return both.permute(0, 2, 3, 1).numpy()


def examples(batch: int, tokens: int = 6) -> Tensor:
    return torch.randn(batch, tokens, WIDTH, generator=torch.Generator().manual_seed(batch))


READ = [HeadsFirst, HeadsFirstMerged, ExamplesFirstMerged, HeadByHead]
BATCHES = [1, 2, HEADS, 2 * HEADS]


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("batch", BATCHES)
def test_every_example_gets_its_own_maps(kind: type[Attention], batch: int) -> None:
    model, x = Model(kind).eval(), examples(batch)
    wanted = model.maps(x)
    for i, found in enumerate(pa.capture_each(model, x)):
        np.testing.assert_allclose(found.weights.values, wanted[i], atol=1e-6)
    last = pa.capture(model, x, example=batch - 1)
    np.testing.assert_allclose(last.weights.values, wanted[-1], atol=1e-6)
    with pa.capturing(model, example=batch - 1) as tape, torch.no_grad():
        model(x)
    np.testing.assert_allclose(tape.capture().weights.values, wanted[-1], atol=1e-6)


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("batch", BATCHES)
def test_a_head_is_ablated_in_every_example_or_not_at_all(kind: type[Attention], batch: int) -> None:
    model, x = Model(kind).eval(), examples(batch)
    without = Model(kind).eval()
    with torch.no_grad():
        without.layers[0].out.weight.unflatten(1, (HEADS, -1))[:, 1] = 0
        wanted = without(x)
        if kind is HeadsFirst or (kind is HeadsFirstMerged and batch > 1):
            with pytest.raises(UnsupportedAttentionError, match="4 heads before the"), pa.ablate_heads(model, ["L0H1"]):
                model(x)
            return
        with pa.ablate_heads(model, ["L0H1"]):
            found = model(x)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("batch", [2, HEADS, 2 * HEADS])
def test_a_batch_that_is_gone_through_one_by_one_is_refused(batch: int) -> None:
    model, x = Model(ExampleByExample).eval(), examples(batch)
    with pytest.raises(UnsupportedAttentionError, match="one example at a time"):
        pa.capture(model, x, example=0)
    with pa.capturing(model, example=0) as tape:
        model(x)
    with pytest.raises(UnsupportedAttentionError, match="one example at a time"):
        tape.capture()
    with pytest.raises(UnsupportedAttentionError, match="one example at a time"), pa.ablate_heads(model, ["L0H1"]):
        model(x)
    np.testing.assert_allclose(pa.capture(model, x[1:2]).weights.values, model.maps(x)[1], atol=1e-6)
