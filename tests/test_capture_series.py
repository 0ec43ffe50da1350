"""Captures of many examples on disk: numbered, taken up again, read one by one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("zarr")

from capture_models import tiny, token_ids

from pyattnorg import DamagedFileError, load_capture, load_each
from pyattnorg.capture import capture, capture_each


def batches() -> list[dict[str, Any]]:
    one = {"input_ids": token_ids(2, 5), "attention_mask": token_ids(2, 5) * 0 + 1}
    one["attention_mask"][1, 3:] = 0
    return [one, {"input_ids": token_ids(1, 4)}]


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_examples_are_stores_of_their_own(tmp_path: Path) -> None:
    model, store = tiny("BertModel"), tmp_path / "all"
    written = [c.weights.values for c in capture_each(model, batches(), store=store)]
    memory = list(capture_each(model, batches(), check_padding=False))
    assert [w.shape[:2] for w in written] == [(5, 5), (3, 3), (4, 4)]
    for stored, once, again in zip(load_each(store), memory, written, strict=True):
        np.testing.assert_array_equal(stored.weights.values, once.weights.values)
        np.testing.assert_array_equal(stored.scores.values, once.scores.values)
        np.testing.assert_array_equal(again, once.weights.values)
    np.testing.assert_array_equal(load_capture(store / "000001").weights.values, written[1])


def test_what_was_stopped_is_taken_up(tmp_path: Path) -> None:
    # EleutherAI/delphi#38, Xmaster6y/tdhook#118
    model, whole, cut = tiny("BertModel"), tmp_path / "whole", tmp_path / "cut"
    for _ in capture_each(model, batches(), store=whole):
        pass
    stream = capture_each(model, batches(), store=cut)
    next(stream)
    del stream
    with pytest.raises(DamagedFileError, match=r"was not finished.*unfinished=True"):
        load_each(cut)
    assert len(list(load_each(cut, unfinished=True))) == 1

    class StoppedError(Exception):
        pass

    def stop(*_: Any) -> None:
        if len(calls) == 1:
            raise StoppedError
        calls.append(1)

    calls: list[int] = []
    hook = model.encoder.layer[1].register_forward_hook(stop)
    with pytest.raises(StoppedError):
        list(capture_each(model, batches(), store=cut))
    hook.remove()
    assert (cut / "000002").exists() or (cut / "000001").exists()
    assert len(list(load_each(cut, unfinished=True))) == 2
    calls.clear()
    hook = model.register_forward_hook(lambda *_: calls.append(1))
    assert len(list(capture_each(model, batches(), store=cut))) == 3
    assert len(calls) == 1  # the first two were there
    list(capture_each(model, batches(), store=cut))
    assert len(calls) == 1
    hook.remove()
    assert bytes_of(cut) == bytes_of(whole)


def test_no_examples_are_a_finished_series(tmp_path: Path) -> None:
    assert list(capture_each(tiny("BertModel"), [], store=tmp_path / "none")) == []
    assert list(load_each(tmp_path / "none")) == []


def test_folders_that_are_something_else(tmp_path: Path) -> None:
    model, other = tiny("BertModel"), tiny("GPT2Model")
    ids = [token_ids(1, 4)]
    (tmp_path / "file").write_text("a")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("a")
    capture(model, ids[0], store=tmp_path / "one")
    list(capture_each(model, ids, store=tmp_path / "many"))
    for name, error, said in [
        ("file", FileExistsError, "is a file"),
        ("mine", FileExistsError, "holds 'notes.txt'"),
        ("one", FileExistsError, "holds a single capture"),
        ("no/such", FileNotFoundError, "does not exist"),
    ]:
        with pytest.raises(error, match=said):
            capture_each(model, ids, store=tmp_path / name)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "a"
    with pytest.raises(FileExistsError, match=r"another"):
        list(capture_each(other, ids, store=tmp_path / "many"))
    list(capture_each(other, ids, store=tmp_path / "many", overwrite=True))
    assert next(load_each(tmp_path / "many")).model == "GPT2Model"
    with pytest.raises(ValueError, match=r"overwrite: got True without store="):
        capture_each(model, ids, overwrite=True)
    with pytest.raises(DamagedFileError, match=r"load_each reads them"):
        load_capture(tmp_path / "many")
    with pytest.raises(DamagedFileError, match=r"load_capture reads a single one"):
        load_each(tmp_path / "one")
    with pytest.raises(FileNotFoundError, match=r"is no folder"):
        load_each(tmp_path / "file")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "pyattnorg captures", "examples": -1}', "nonsense"])
def test_a_damaged_count_is_said(tmp_path: Path, text: str) -> None:
    list(capture_each(tiny("BertModel"), [token_ids(1, 4)], store=tmp_path / "s"))
    (tmp_path / "s" / "examples.json").write_text(text)
    with pytest.raises(DamagedFileError, match=r"examples\.json"):
        load_each(tmp_path / "s")


def test_a_missing_example_is_said(tmp_path: Path) -> None:
    list(capture_each(tiny("BertModel"), [token_ids(1, 4)], store=tmp_path / "s"))
    about = {"format": "pyattnorg captures", "examples": 2}
    (tmp_path / "s" / "examples.json").write_text(json.dumps(about))
    with pytest.raises(DamagedFileError, match=r"000001 is missing"):
        list(load_each(tmp_path / "s"))


def test_many_inputs_are_organised_as_the_page_shows(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "memory.md").read_text()
    (script,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "ProcessPool" in block)
    (tmp_path / "script.py").write_text(script)
    for _ in capture_each(tiny("BertModel"), batches(), store=tmp_path / "all", keep=("weights",)):
        pass
    for _ in range(2):  # the second time nothing is left to do
        done = subprocess.run(
            [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        assert " heads over 3 inputs; " in done.stdout
    files = sorted((tmp_path / "all").glob("*.npz"))
    assert [file.name for file in files] == ["000000.npz", "000001.npz", "000002.npz"]
