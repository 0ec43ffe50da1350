"""``pyattnorg compare``: files, stores and models, what it prints and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tensors import attention_like
from typer.testing import CliRunner

import pyattnorg as pa
from pyattnorg.cli import drawing, job
from pyattnorg.cli.app import app

runner = CliRunner()


def saved(folder: Path, name: str, seed: int, kind: str = "weights") -> str:
    path = folder / f"{name}.npz"
    pa.organize(pa.NetworkTensor(attention_like(8, 8, 6, seed), kind)).save(path)  # type: ignore[arg-type]
    return str(path)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that need no torch: what they are called says whether they read, their input what they attend to."""

    def load(name: str, loading: Any, threads: Any) -> Any:
        return SimpleNamespace(name=name, takes_images="vit" in name, takes_sound=False)

    def take(task: Any, loaded: Any) -> Any:
        seed = sum(map(ord, loaded.name + str(task.source)))
        meta = {"model": task.name, "input": str(task.source)}
        return pa.NetworkTensor(attention_like(8, 8, 6, seed), task.kind, meta=meta), []

    monkeypatch.setattr(job, "load_named", load)
    monkeypatch.setattr(job, "take", take)


def test_files(tmp_path: Path) -> None:
    a, b, c = (saved(tmp_path, name, i) for i, name in enumerate("abc"))
    run = runner.invoke(app, ["compare", a, f"{b},{c}", "--names", "one,two", "--draws", "1", "--size", "6,6,4"])
    assert run.exit_code == 0, run.output
    assert "one and two: distance" in run.output
    assert "weights in sub-tensors of 6 queries x 6 keys x 4 heads" in run.output
    again = runner.invoke(app, ["compare", a, b, "--json", "--draws", "1", "--null", "head"])
    told = json.loads(again.output)
    assert [one["name"] for one in told["networks"]] == ["a", "b"]
    assert told["null"] == "head"
    quiet = runner.invoke(app, ["compare", a, b, "--quiet", "--draws", "1"])
    assert (quiet.exit_code, quiet.output) == (0, "")


def test_options_of_the_questionnaire(tmp_path: Path) -> None:
    a, b = (saved(tmp_path, name, i) for i, name in enumerate("ab"))
    run = runner.invoke(app, ["compare", a, b, "--draws", "1", "--json", "--set", "tree=flexible", "--set", "beta=0.5"])
    tensors = [attention_like(8, 8, 6, seed) for seed in (0, 1)]
    networks = [pa.NetworkTensor(x, "weights") for x in tensors]
    wanted = pa.compare(*networks, names=["a", "b"], n_draws=1, tree="flexible", beta=0.5).to_dict()
    assert json.loads(run.stdout)["pairs"] == json.loads(json.dumps(wanted))["pairs"]
    wrong = runner.invoke(app, ["compare", a, b, "--set", "random_state=3"])
    assert (wrong.exit_code, "--set: random_state is given twice" in wrong.stderr) == (1, True)


def test_models_and_their_inputs(models: None, tmp_path: Path) -> None:
    (tmp_path / "page.txt").write_text("and a page")
    (tmp_path / "cat.png").write_bytes(b"cat")
    asked = ["--text", "one", "--text", "two", "--text-file", str(tmp_path / "page.txt")]
    run = runner.invoke(app, ["compare", "bert-a", "bert-b", *asked, "--json", "--draws", "1"])
    assert run.exit_code == 0, run.output
    told = json.loads(run.output)
    assert told["paired"]
    assert not told["shared"]
    assert [one["inputs"] for one in told["networks"]] == [3, 3]
    assert told["pairs"][0]["p"] is not None
    asked += ["--image", str(tmp_path / "cat.png")]
    run = runner.invoke(app, ["compare", "bert-a", "vit", *asked, "--json", "--draws", "1"])
    assert [one["inputs"] for one in json.loads(run.output)["networks"]] == [3, 1]
    file = saved(tmp_path, "kept", 0, "scores")
    run = runner.invoke(app, ["compare", file, "bert-a", "--text", "one", "--kind", "scores", "--json", "--draws", "1"])
    assert json.loads(run.output)["kind"] == "scores"


def test_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    a, b = (saved(tmp_path, name, i) for i, name in enumerate("ab"))
    out = tmp_path / "picture.svg"
    run = runner.invoke(app, ["compare", a, b, "--picture", str(out), "--draws", "1"])
    assert run.exit_code == 0, run.output
    assert b"<svg" in out.read_bytes()
    before = out.read_bytes()
    run = runner.invoke(app, ["compare", a, b, "--picture", str(out), "--draws", "1"])
    assert (run.exit_code, "pass --overwrite" in run.output) == (1, True)
    assert out.read_bytes() == before
    assert runner.invoke(app, ["compare", a, b, "--picture", str(out), "--overwrite", "--draws", "1"]).exit_code == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["A"], "expected two or more"),
        (["A", ","], "expected a model, a store or a file"),
        (["A", "bert,gpt"], "commas stand between stores and files"),
        (["A", "missing.npz"], "missing.npz does not exist"),
        (["bert", "missing.npz", "--text", "hello"], "missing.npz does not exist"),
        (["A", "B", "--text", "hello"], "files and stores only"),
        (["A", "B", "--max-length", "3"], "files and stores only"),
        (["A", "B", "--size", "6,x,4"], "expected three whole numbers"),
        (["A", "B", "--size", "6,6"], "expected (queries, keys, heads)"),
        (["A", "B", "--size", "9,8,6"], "got 9 queries, the smallest network has 8"),
        (["A", "B", "--names", "one"], "one for each of 2"),
        (["A", "B", "--kind", "scores"], "holds weights"),
        (["A", "B", "--picture", "out.gif"], "ends in .svg, .pdf or .png"),
        (["A", "B", "--picture", "nowhere/out.svg"], "does not exist"),
        (["A", "bert"], "is a model, which needs --text"),
        (["A", "vit", "--text", "hello"], "looks at images"),
    ],
)
def test_refusals_are_one_line(given: list[str], message: str, models: None, tmp_path: Path) -> None:
    files = {name: saved(tmp_path, name.lower(), i) for i, name in enumerate("AB")}
    run = runner.invoke(app, ["compare", *(files.get(one, one) for one in given)])
    assert run.exit_code == 1
    assert message in run.output
    assert len(run.output.strip().splitlines()) == 1


def test_an_input_that_is_given_twice_is_told(models: None, tmp_path: Path) -> None:
    a, b = (saved(tmp_path, name, i) for i, name in enumerate("ab"))
    run = runner.invoke(app, ["compare", a, f"{b},{b}", "--json", "--draws", "1"])
    assert (run.exit_code, json.loads(run.stdout)["networks"][1]["inputs"]) == (0, 2)
    assert run.stderr.strip() == (
        "pyattnorg: b: inputs 1 and 2 hold the same numbers; p values and intervals take them for two inputs and say "
        "too much. Give every input once"
    )
    assert runner.invoke(app, ["compare", a, f"{b},{b}", "--quiet", "--draws", "1"]).output == ""


def test_picture_without_matplotlib_is_refused_before_the_long_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    a, b = (saved(tmp_path, name, i) for i, name in enumerate("ab"))
    monkeypatch.setattr(drawing, "find_spec", lambda name: None)
    run = runner.invoke(app, ["compare", a, b, "--picture", str(tmp_path / "out.svg")])
    assert (run.exit_code, "matplotlib is needed to draw" in run.output) == (1, True)


def test_stores(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("zarr")
    pytest.importorskip("transformers")
    from capture_models import tiny, token_ids

    model = tiny("BertModel")
    inputs = [{"input_ids": token_ids(2, 8)[i : i + 1]} for i in range(2)]
    for i, one in enumerate(inputs):
        pa.capture(model, one, store=tmp_path / f"{i}.zarr")
    assert isinstance(model, torch.nn.Module)
    names = [str(tmp_path / f"{i}.zarr") for i in range(2)]
    run = runner.invoke(app, ["compare", *names, "--json", "--draws", "1"])
    assert run.exit_code == 0, run.output
    told = json.loads(run.output)
    assert [one["name"] for one in told["networks"]] == ["0.zarr", "1.zarr"]
    assert np.isfinite(told["pairs"][0]["distance"])
    lazy = [pa.load_capture(name).weights for name in names]
    assert told["distances"] == pa.compare(*lazy, n_draws=1).distances.tolist()
    assert not any(network.in_memory for network in lazy)  # heads are read one by one
    captured = [pa.capture(model, one).weights for one in inputs]
    assert told["distances"] == pa.compare(*captured, n_draws=1).distances.tolist()
