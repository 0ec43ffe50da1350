"""Ranking heads: each measure against a slow reference or a planted answer; the command line of all three."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
import torch
from capture_models import tiny, token_ids
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import pyattnorg as pa
from pyattnorg.cli.app import app
from pyattnorg.heads.gradients import effects_of
from pyattnorg.heads.maps import map_numbers
from pyattnorg.heads.rank import MEASURES
from pyattnorg.heads.tables import calls_of, head_table_of
from pyattnorg.heads.twins import removal_order

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def inputs(n: int = 2) -> list[dict[str, Any]]:
    return [{"input_ids": token_ids(n, 8)[i : i + 1]} for i in range(n)]


def squares(output: Any, call: Any) -> torch.Tensor:
    return output.last_hidden_state.double()[..., :3].square().mean()


def test_all_measures_at_once() -> None:
    model = tiny("LlamaModel", num_key_value_heads=2)
    left = [p.grad for p in model.parameters()]
    found = pa.rank_heads(model, inputs(), stages=3, n_iter=1)
    assert found.measures == MEASURES
    assert found.labels == tuple(f"L{i}H{h}" for i in range(2) for h in range(4))
    for by in MEASURES:
        assert np.isfinite(found.values[by]).all()
        assert sorted(found.order(by)) == sorted(found.labels)
        assert found.spread(by).shape == (8,)
    assert [p.grad for p in model.parameters()] == left  # no weight got a gradient
    again = pa.rank_heads(model, inputs(), stages=3, n_iter=1)
    assert all(np.array_equal(found.values[by], again.values[by]) for by in MEASURES)
    assert "twins" in found.summary()
    assert list(found.to_frame().index) == list(found.labels)


def test_gradients_are_those_of_gates() -> None:
    model, calls = tiny("BertModel"), inputs(1)
    table = head_table_of(model, calls[0])
    effects = effects_of(model, calls_of(model, calls), table, squares, 0)[:, 0]
    import copy

    def loss(head: int, gate: float) -> float:
        twin = copy.deepcopy(model).double()
        dense = twin.encoder.layer[head // 4].attention.output.dense.weight
        with torch.no_grad():
            dense[:, head % 4 * 8 : head % 4 * 8 + 8] *= gate
            return float(squares(twin(**calls[0]), None))

    for head in range(8):
        slope = (loss(head, 1 + 1e-5) - loss(head, 1 - 1e-5)) / 2e-5
        assert effects[head] == pytest.approx(slope, rel=1e-3, abs=1e-6)
    found = pa.rank_heads(model, calls, by="gradient", loss=squares)
    np.testing.assert_allclose(found.mean("gradient"), np.abs(effects))


def test_normalised_by_layer() -> None:
    found = pa.rank_heads(tiny("BertModel"), inputs(), by=["norm", "gradient"])
    for by in ("norm", "gradient"):
        rows = found.mean(by, normalized=True).reshape(2, 4)
        assert rows.max() <= 1
    np.testing.assert_allclose(np.square(found.mean("norm", normalized=True)).reshape(2, 4).sum(1), 1)


def test_numbers_of_maps() -> None:
    weights = np.zeros((2, 3, 2))
    weights[:, :, 0] = [[1, 0, 0], [0.5, 0.5, 0]]
    weights[:, :, 1] = 1 / 3
    found = map_numbers(pa.NetworkTensor(weights, kind="weights"))
    np.testing.assert_allclose(found["confidence"], [0.75, 1 / 3])
    np.testing.assert_allclose(found["attention_entropy"], [-np.log(2) / 2, -np.log(3)])
    np.testing.assert_allclose(found["sink"], [0.25, 2 / 3])


def slow_order(rows: np.ndarray[Any, Any]) -> list[int]:
    gone: list[int] = []
    while len(gone) < len(rows):
        left = [h for h in range(len(rows)) if h not in gone]
        costs = [np.square(rows[[*gone, h]].sum(0)).mean() for h in left]
        gone.append(left[int(np.argmin(costs))])
    return gone


@settings(max_examples=40, deadline=None)
@drawn(st.integers(0, 2**32 - 1), st.integers(1, 7), st.integers(1, 5))
def test_twins_remove_what_changes_losses_least(seed: int, heads: int, losses: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(heads, losses))
    found = removal_order(lambda gone: rows, heads, 1).tolist()
    assert found == slow_order(rows)
    alone = removal_order(lambda gone: rows, heads, 1, together=False)
    assert alone.tolist() == np.argsort(np.abs(rows).mean(1), kind="stable").tolist()
    staged = removal_order(lambda gone: rows, heads, heads)
    assert sorted(staged.tolist()) == list(range(heads))


def test_heads_that_undo_each_other_go_together() -> None:
    rows = np.array([[3.0, 1.0], [-3.0, -1.0], [0.5, 0.4], [2.0, -2.0]])
    assert set(removal_order(lambda gone: rows, 4, 1).tolist()[:3]) == {0, 1, 2}


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"by": "beauty"}, ValueError, "by: got 'beauty'"),
        ({"by": []}, ValueError, "got no measure"),
        ({"stages": 0}, ValueError, "stages"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        pa.rank_heads(tiny("BertModel"), inputs(), **options)


def test_lowest() -> None:
    found = pa.rank_heads(tiny("BertModel"), inputs(1), by="norm")
    assert found.lowest(0.25, "norm") == found.order("norm")[:2] == found.lowest(2, "norm")
    with pytest.raises(ValueError, match="n: got 9"):
        found.lowest(9, "norm")
    assert found.rows_of(["L1H2"]).module == ("encoder.layer.1.attention.self",)


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small causal model with a tokenizer of letters."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    path = tmp_path_factory.mktemp("model")
    letters = {c: i for i, c in enumerate("_abcdefghijklmnopqrstuvwxyz")}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token="_"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="_").save_pretrained(path)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, intermediate_size=48,
        vocab_size=27, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    return path


def command(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_commands(folder: Path, tmp_path: Path) -> None:
    text = ("--text", "thequickbrownfox", "--text", "jumpsoverthelazydog")
    run = command("rank", folder, *text, "--by", "gradient,norm,random", "--json")
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    assert {row["label"] for row in told["heads"]} == {f"L{i}H{h}" for i in range(2) for h in range(4)}
    assert set(told["least_important"]) == {"gradient", "norm", "random"}
    assert "heads, least important first" in command("rank", folder, *text, "--by", "norm").stdout

    run = command("ablate", folder, *text, "--heads", "L0H1,L1H2", "--each", "--json")
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    assert [row["heads"] for row in told["ablations"]] == [["L0H1"], ["L1H2"]]
    assert all(row["loss_change"] == pytest.approx(row["loss"] - told["loss"]) for row in told["ablations"])
    assert "zero-ablation; loss of the whole model" in command("ablate", folder, *text, "--lowest", "0.25").stdout
    assert command("ablate", folder, *text, "--heads", "L0H*", "--mode", "mean").exit_code == 0

    out = tmp_path / "pruned"
    run = command("prune", folder, *text, "--lowest", "0.25", "--out", out, "--json")
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    assert len(told["removed"]) == 2
    assert told["after"]["parameters"] < told["before"]["parameters"]
    assert pa.load_pruned(out).generate(torch.tensor([[3, 4]]), max_new_tokens=3, pad_token_id=0).shape[0] == 1
    # the folder of a pruned model is a model like any other, its tokenizer beside it
    assert "heads, least important first" in command("rank", out, *text, "--by", "norm").stdout
    run = command("capture", out, *text[:2], "--out", tmp_path / "maps.zarr", "--dtype", "float64", "--json")
    assert run.exit_code == 0, run.output
    ids = torch.tensor([[ord(c) - 96 for c in text[1]]])
    whole = pa.capture(pa.load_pruned(out).double(), ids).weights
    assert np.array_equal(pa.load_capture(tmp_path / "maps.zarr").weights.values, whole.values)
    assert command("prune", out, *text, "--lowest", "0.25", "--out", tmp_path / "smaller").exit_code == 0
    assert pa.load_pruned(tmp_path / "smaller").num_parameters() < told["after"]["parameters"]
    with pytest.raises(ValueError, match=r"holds a pruned model, .* pyattnorg\.load_pruned"):
        pa.capture(str(out), text[1])
    again = command("prune", folder, *text, "--heads", "L0H0", "--out", out)
    assert again.exit_code == 1
    assert "--overwrite" in again.stderr


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("rank",), "--text, --text-file or --image"),
        (("ablate", "--text", "abc"), "--heads: give heads by name, or --lowest"),
        (("ablate", "--text", "abc", "--lowest", "1.5"), "--lowest: got 1.5"),
        (("ablate", "--text", "abc", "--heads", "L7H0"), "there is no 'L7H0'"),
        (("ablate", "--text", "abc", "--heads", "L0H0", "--mode", "half"), "mode: got 'half'"),
    ],
)
def test_commands_say_what_is_wrong(folder: Path, words: tuple[str, ...], match: str) -> None:
    run = command(words[0], folder, *words[1:])
    assert run.exit_code == 1
    assert match in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("rank", "--by", "gradient,bogus"), "--by: got 'bogus'"),
        (("rank", "--by", " , "), "--by: got no measure"),
        (("rank", "--seed", "-1"), "--seed: got -1"),
        (("ablate", "--lowest", "0.5", "--by", "bogus"), "--by: got 'bogus'"),
        (("ablate", "--heads", "L0H0", "--mode", "bogus"), "--mode: got 'bogus'"),
        (("prune", "--heads", "L0H0", "--otherwise", "bogus", "--out", "none"), "--otherwise: got 'bogus'"),
        (("prune", "--lowest", "0.5", "--by", "bogus", "--out", "none"), "--by: got 'bogus'"),
    ],
)
def test_options_are_looked_at_before_a_model_is_loaded(words: tuple[str, ...], match: str) -> None:
    run = command(words[0], "no-such-model-here/at-all", "--text", "abc", *words[1:])
    assert run.exit_code == 1
    assert match in run.stderr


def fused_model() -> torch.nn.Module:
    """Queries, keys and values are one matrix under a name that is not known: norms of heads cannot be told."""
    import transformers

    config = transformers.Phi3Config(
        vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.Phi3Model(config).eval()


def test_what_weights_cannot_tell_is_left_out_unless_asked_for() -> None:
    model = fused_model()
    with pytest.warns(RuntimeWarning, match="'norm' needs weights that are understood.*left out"):
        found = pa.rank_heads(model, inputs(1), stages=2, n_iter=1)
    assert found.measures == tuple(name for name in MEASURES if name != "norm")
    with pytest.raises(ValueError, match=r"by: 'norm' needs weights.*leave it out"):
        pa.rank_heads(model, inputs(1), by=["norm", "random"])
    with pytest.raises(pa.CannotPruneError, match="modules of it that are understood: none") as error:
        pa.prune_heads(model, ["L0H0"])
    assert "no attention was seen" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"seed": -1}, ValueError, "^seed: got -1"),
        ({"seed": "a"}, ValueError, "^seed: got 'a'"),
        ({"loss": 3}, TypeError, "^loss: got int"),
        ({"loss": lambda output, call: 1.0}, TypeError, "^loss: gave float"),
        ({"loss": lambda output, call: output.last_hidden_state}, TypeError, "^loss: gave shape"),
        ({"loss": lambda output, call: torch.tensor(1.0)}, TypeError, "^loss: gave shape"),
        (
            {"loss": lambda output, call: output.last_hidden_state.sum() * float("nan")},
            ValueError,
            "is NaN or infinite",
        ),
    ],
)
def test_seeds_and_losses_that_are_none(options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        pa.rank_heads(tiny("BertModel"), inputs(1), by=["random", "gradient"], **options)


def test_wrong_arguments_are_named() -> None:
    found = pa.rank_heads(tiny("BertModel"), inputs(1), by="random")
    for n in ("random", 1.5, None, True, np.nan):
        with pytest.raises(ValueError, match=r"^n: got "):
            found.lowest(n, "random")
    assert found.lowest(np.float64(0.5), "random") == found.lowest(np.int64(4), "random") == found.lowest(4.0, "random")
    with pytest.raises(ValueError, match=r"^labels: 'L9H9' is no head of this ranking"):
        found.rows_of(["L9H9"])
    with pytest.raises(TypeError, match=r"^organization: got ndarray"):
        pa.choose_folders(np.zeros((3, 3, 3)))
    model = tiny("BertModel")
    with pytest.raises(TypeError, match=r"^means: got int"), pa.ablate_heads(model, ["L0H0"], mode="mean", means=5):
        model(**inputs(1)[0])
