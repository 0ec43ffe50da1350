"""Windows: where they lie, maps laid out on the grid, bands of Longformer; several maps of one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("timm")
import timm
import torch
import torch.nn.functional as F
from capture_models import Attention, Fused, numbers, softmax, tiny, token_ids
from families import ByExponentials, ByHead, ByLogarithms, Chunks, InWindows
from torch import Tensor, nn

from pyattnorg.capture import CaptureError, capture, capturing

SWIN = {"window_size": 4, "depths": (2, 2), "embed_dim": 16, "num_heads": (2, 4)}


def swin(name: str = "swin_tiny_patch4_window7_224") -> Any:
    torch.manual_seed(0)
    return timm.create_model(name, img_size=32, **SWIN).eval()


def windows_of(n: int, size: int, shift: int) -> NDArray[np.int64]:
    """Token numbers of every window of an n x n grid that was rolled by `shift`."""
    grid = np.roll(np.arange(n * n).reshape(n, n), (-shift, -shift), (0, 1))
    return grid.reshape(n // size, size, n // size, size).transpose(0, 2, 1, 3).reshape(-1, size * size)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", ["swin_tiny_patch4_window7_224", "swinv2_tiny_window8_256", "swinv2_cr_tiny_224"])
def test_windows_are_laid_out_on_the_grid(name: str, batch: int) -> None:
    got = capture(swin(name), numbers(batch, 3, 32, 32), example=batch - 1, verify=True)
    group = next(iter(got.groups.values()))
    assert group.shape == (16, 16, 2 * 4 * 2)
    assert group.weights.labels[:3] == ("L0W0H0", "L0W0H1", "L0W1H0")
    for kind in ("weights", "scores"):
        flat, local = group.on_grid(kind), group.scores if kind == "scores" else group.weights
        assert flat.shape == (64, 64, 4)
        assert flat.labels == ("L0H0", "L0H1", "L1H0", "L1H1")
        assert flat.queries == flat.keys == tuple(f"r{r}c{c}" for r in range(8) for c in range(8))
        for layer, shift in ((0, 0), (1, 2)):
            seen = flat.visible_cells()[:, :, 2 * layer]
            member = np.zeros((64, 64), bool)
            for w, tokens in enumerate(windows_of(8, 4, shift)):
                member[np.ix_(tokens, tokens)] = True
                for head in range(2):
                    label = f"L{layer}W{w}H{head}"
                    mine = local.visible_cells()[:, :, local.index(label)]
                    cells = flat[f"L{layer}H{head}"][np.ix_(tokens, tokens)]
                    np.testing.assert_array_equal(cells[mine], local[label][mine])
            # a shifted window may hold tokens from opposite sides, which its mask keeps apart
            assert np.array_equal(seen, member) if not shift else not (seen & ~member).any()
    weights = group.on_grid()
    np.testing.assert_allclose(weights.values.sum(1), 1, atol=1e-5)
    assert np.array_equal(weights.values > 0, weights.visible_cells())


def test_maps_on_the_grid_give_the_output() -> None:
    model, outs = swin(), []
    block = model.layers[0].blocks[1]  # the shifted one
    hook = block.attn.proj.register_forward_pre_hook(lambda m, args: outs.append(args[0]))
    values = block.attn.qkv.register_forward_hook(lambda m, args, out: outs.append(out))
    got = capture(model, numbers(1, 3, 32, 32))
    hook.remove(), values.remove()
    weights = next(iter(got.groups.values())).on_grid()
    qkv, mixed = outs[-2], outs[-1]  # in windows: (4, 16, 48) and (4, 16, 16)
    v = qkv.reshape(4, 16, 3, 2, 8)[:, :, 2].detach().numpy()
    at = windows_of(8, 4, 2)
    by_token = np.zeros((64, 2, 8))
    by_token[at.ravel()] = v.reshape(64, 2, 8)
    for head in range(2):
        ours = weights[f"L1H{head}"] @ by_token[:, head]
        theirs = mixed.detach().numpy().reshape(4, 16, 2, 8)[:, :, head]
        np.testing.assert_allclose(ours[at], theirs, atol=1e-5)


def test_padding_of_the_grid_is_no_token() -> None:
    # a grid of 4 x 4 in windows of 3: the last ones hold what was padded
    options = {"depth": 2, "embed_dim": 32, "num_heads": 4, "global_attn_indexes": (1,), "window_size": 3}
    model = timm.create_model("samvit_base_patch16", img_size=64, **options).eval()
    got = capture(model, numbers(1, 3, 64, 64), verify=True)
    group = got["blocks 9x9"]
    flat = group.on_grid()
    assert flat.shape == (16, 16, 4)
    mass = flat.values.sum(1)
    inner = [r * 4 + c for r in range(3) for c in range(3)]
    np.testing.assert_allclose(mass[inner], 1, atol=1e-5)
    assert (np.delete(mass, inner, 0) < 1).all()  # some of it went to the padding


def test_watching_follows_windows_if_asked() -> None:
    model, x = swin(), numbers(1, 3, 32, 32)
    want = next(iter(capture(model, x).groups.values()))
    for follow in (True, False):
        with torch.no_grad(), capturing(model, windows=follow) as tape:
            model(x)
        group = next(iter(tape.capture().groups.values()))
        np.testing.assert_array_equal(group.weights.values, want.weights.values)
        if follow:
            np.testing.assert_array_equal(group.on_grid().values, want.on_grid().values)
        else:
            with pytest.raises(CaptureError, match=r"on_grid: where the windows lie is not known"):
                group.on_grid()


def test_windows_of_a_batch_are_followed() -> None:
    model, x = nn.Sequential(InWindows()), numbers(3, 8, 32)
    got = capture(model, x, example=2)
    np.testing.assert_allclose(got.weights.values, capture(model, x[2:]).weights.values, atol=1e-6)
    with torch.no_grad(), capturing(model, example=0) as tape:
        model(x)
    np.testing.assert_allclose(tape.capture().weights.values, capture(model, x[:1]).weights.values, atol=1e-6)


def test_without_windows_the_grid_is_the_tensor() -> None:
    got = capture(tiny("BertModel"), token_ids(1, 6))
    assert got[""].on_grid() is got.weights


# -- Longformer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", [0, 1])
@pytest.mark.parametrize("n", [8, 13])
def test_longformer_gives_a_map_of_all_tokens(n: int, example: int) -> None:
    # huggingface/transformers#5646, #5659, #7562: columns of a band are not keys
    model, w = tiny("LongformerModel"), 2
    ids = token_ids(2, n)
    mask, far = torch.ones(2, n).long(), torch.zeros(2, n).long()
    mask[1, n - 2 :] = 0
    far[0, 3], far[1, 0], far[1, 5] = 1, 1, 1
    given = {"input_ids": ids, "attention_mask": mask, "global_attention_mask": far}
    got = capture(model, given, example=example, verify=True)
    m = n if example == 0 else n - 2
    assert got.weights.shape == (m, m, 8)
    with torch.no_grad():
        out = model(**given, output_attentions=True)
    globals_ = np.flatnonzero(far[example].numpy())
    for layer in range(2):
        bands, rows = out.attentions[layer][example].numpy(), out.global_attentions[layer][example].numpy()
        for head in range(4):
            want = np.zeros((m, m))
            first = bands.shape[-1] - (2 * w + 1)  # as many as the example with most global tokens has
            for i in range(m):
                if i in globals_:
                    want[i] = rows[head, :m, list(globals_).index(i)]
                    continue
                for j, at in enumerate(globals_):
                    want[i, at] += bands[head, i, j]
                for j in range(2 * w + 1):
                    if 0 <= i + j - w < m:
                        want[i, i + j - w] += bands[head, i, first + j]
            np.testing.assert_allclose(got.weights[f"L{layer}H{head}"], want, atol=1e-6)
    i, j = np.ogrid[:m, :m]
    wide = np.isin(i, globals_) | np.isin(j, globals_) | (abs(i - j) <= w)
    assert np.array_equal(got.weights.visible_cells()[:, :, 0], wide)
    np.testing.assert_allclose(softmax(got.scores.values, got.scores.visible_cells()), got.weights.values, atol=1e-6)


# -- several maps of one call -----------------------------------------------------------------------------------------


def reference(x: Tensor) -> NDArray[Any]:
    q, k, _ = Fused().split(x)
    return torch.softmax(q @ k.mT / 8**0.5, -1)[0].permute(1, 2, 0).detach().numpy()


@pytest.mark.parametrize("cls", [ByExponentials, ByLogarithms, ByHead, Chunks])
def test_softmax_by_hand_heads_in_a_loop_and_chunks(cls: type[Attention]) -> None:
    x = numbers(1, 8, 32)
    got = capture(nn.Sequential(cls()), x, verify=True)
    np.testing.assert_allclose(got.weights.values, reference(x), atol=1e-5)
    np.testing.assert_allclose(softmax(got.scores.values), reference(x), atol=1e-5)
    assert got.weights.labels == ("L0H0", "L0H1", "L0H2", "L0H3")
    few = capture(nn.Sequential(cls()), x, heads=[1, 3])
    np.testing.assert_array_equal(few.weights.values, got.weights.values[:, :, [1, 3]])


def test_logsumexp_is_a_softmax() -> None:
    class Sums(ByLogarithms):
        sums = True

    x = numbers(1, 8, 32)
    np.testing.assert_allclose(capture(nn.Sequential(Sums()), x).weights.values, reference(x), atol=1e-5)


def test_causal_chunks_see_their_past() -> None:
    class Past(Attention):
        num_heads = 4

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(x)
            mask = torch.ones(8, 8).tril().bool()
            parts = [
                F.scaled_dot_product_attention(q[:, :, a:b], k[:, :, :b], v[:, :, :b], mask[a:b, :b])
                for a, b in ((0, 4), (4, 8))
            ]
            return self.join(torch.cat(parts, 2))

    x = numbers(1, 8, 32)
    got = capture(nn.Sequential(Past()), x, verify=True)
    want = capture(nn.Sequential(Fused(causal=True)), x)
    np.testing.assert_allclose(got.weights.values, want.weights.values, atol=1e-6)
    assert np.array_equal(got.weights.visible_cells(), want.weights.visible_cells())
    assert got.report[0]["note"] == "queries in 2 chunks"


def test_what_is_done_to_weights_after_softmax_is_said() -> None:
    class Mixed(Attention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.split(x)
            weights = torch.softmax(q @ k.mT / 8**0.5, -1)
            return self.join((0.5 * weights + 0.5 * weights.flip(1)) @ v)

    x = numbers(1, 8, 32)
    got = capture(nn.Sequential(Mixed()), x)
    np.testing.assert_allclose(got.weights.values, reference(x), atol=1e-5)
    assert "mixes, gates or reweights them afterwards" in got.report[0]["note"]
    assert "afterwards" in repr(got.report)


def test_channel_attention_is_left_out_and_said() -> None:
    got = capture(
        timm.create_model("xcit_nano_12_p16_224", img_size=64, depth=2, embed_dim=32, num_heads=4).eval(),
        numbers(1, 3, 64, 64),
    )
    assert got.weights.shape == (1, 17, 8)
    assert len(got.left_out) == 2
    assert "channels" in got.left_out[0]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_layers_keep_their_numbers_in_any_order(order: tuple[int, ...]) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Fused() for _ in range(3)])

        def forward(self, x: Tensor) -> Tensor:
            for i in order:
                x = x + self.layers[i](x)
            return x

    got = capture(Net(), numbers(1, 6, 32))
    assert sorted(row["layer"] for row in got.report) == [0, 1, 2]
    assert [row["layer"] for row in got.report] == list(order)
    assert got.weights.heads.layer.tolist() == sorted([0, 1, 2] * 4)
    for layer, module in zip(got.weights.heads.layer, got.weights.heads.module):
        assert module == f"layers.{layer}"
