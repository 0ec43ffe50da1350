"""Captures on disk: read head by head, the same as in memory; damaged and foreign files are errors that name them."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("zarr")
import torch
import zarr
from capture_models import Fused, Written, numbers, tiny, token_ids

import pyattnorg as pa
from pyattnorg import lazy
from pyattnorg.capture import capture, capturing, load_capture


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested here is what the files hold, not that they outlive a power failure."""
    monkeypatch.setattr("os.fsync", lambda file: None)


TEXTS = {"input_ids": token_ids(1, 9)}


def models() -> list[tuple[str, torch.nn.Module, object]]:
    both = {**TEXTS, "decoder_input_ids": token_ids(1, 5)}
    padded = {
        "input_ids": token_ids(2, 9),
        "attention_mask": torch.tensor([[1] * 9, [0, 0, 0, 1, 1, 1, 1, 1, 1]]),
    }
    window = torch.ones(1, 1, 9, 9, dtype=torch.bool).tril() & ~torch.ones(1, 1, 9, 9, dtype=torch.bool).tril(-3)
    return [
        ("encoder", tiny("BertModel"), TEXTS),
        ("mixed local and global", tiny("Gemma2Model"), TEXTS),
        ("grouped, padded", tiny("MistralModel"), padded),
        ("three kinds", tiny("T5Model"), both),
        ("sinks", tiny("GptOssModel"), TEXTS),
        ("windows", tiny("MistralModel"), {**TEXTS, "attention_mask": window}),
        ("torch.nn", torch.nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), numbers(1, 6, 32)),
        ("float64", Written(causal=True).double(), numbers(1, 6, 32).double()),
        ("fused", Fused(causal=True), numbers(1, 6, 32)),
    ]


MODELS = {name: (model, inputs) for name, model, inputs in models()}


def same(a: pa.NetworkTensor, b: pa.NetworkTensor) -> None:
    assert a.shape == b.shape
    assert (a.kind, a.queries, a.keys, a.meta) == (b.kind, b.queries, b.keys, b.meta)
    assert a.heads == b.heads
    for i in range(len(a)):
        assert np.array_equal(a[i], b[i])
        assert np.array_equal(a.shown(i), b.shown(i), equal_nan=True)
    assert a.values.dtype == b.values.dtype
    assert np.array_equal(a.values, b.values)
    assert (a.visible is None) == (b.visible is None)
    assert a.visible is None or np.array_equal(a.visible_cells(), b.visible_cells())


@pytest.mark.parametrize("name", MODELS)
def test_a_store_reads_as_memory_does(name: str, tmp_path: Path) -> None:
    model, inputs = MODELS[name]
    example = 1 if "padded" in name else None
    plain = capture(model, inputs, example=example)
    made = capture(model, inputs, example=example, store=tmp_path / "s")
    for stored in (made, load_capture(tmp_path / "s")):
        assert list(stored.groups) == list(plain.groups)
        assert [g.layers for g in stored.groups.values()] == [g.layers for g in plain.groups.values()]
        for group in plain.groups:
            for kind in ("scores", "weights"):
                found = getattr(stored[group], kind)
                assert not found.in_memory
                assert "read head by head" in repr(found)
                same(getattr(plain[group], kind), found)
        for ours, theirs in zip(stored.report, plain.report, strict=True):
            assert {**ours, "seconds": 0, "bytes": 0} == {**theirs, "seconds": 0, "bytes": 0}
    assert made.store is not None
    assert made.store["model"]["class"] == type(model).__name__
    assert set(made.store) >= {"weights", "tokenizer", "input", "libraries", "options", "configuration"}


def test_what_is_complete_is_opened_without_running_the_model(tmp_path: Path) -> None:
    model = tiny("BertModel")
    first = capture(model, TEXTS, store=tmp_path / "s")
    model.forward = None
    same(first.weights, capture(model, TEXTS, store=tmp_path / "s").weights)


def test_the_output_comes_along_and_is_the_same(tmp_path: Path) -> None:
    model = tiny("BertModel")
    plain = capture(model, TEXTS, keep=("weights", "output"))
    for _ in range(2):  # written, and found complete
        found = capture(model, TEXTS, keep=("weights", "output"), store=tmp_path / "s", verify=True)
        assert torch.equal(found.output.last_hidden_state, plain.output.last_hidden_state)
    with pytest.raises(pa.capture.CaptureError, match=r"'scores' was not kept"):
        _ = found.scores


def test_names_of_tokens_are_kept(tmp_path: Path) -> None:
    names = [f"w{i}" for i in range(9)]
    found = capture(tiny("BertModel"), TEXTS, tokens=names, store=tmp_path / "s")
    assert found.weights.queries == load_capture(tmp_path / "s").weights.keys == tuple(names)


# -- reading head by head ----------------------------------------------------------------------------------------


def test_one_head_reads_one_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyattnorg.capture.files import StoredArray

    plain = capture(tiny("BertModel"), TEXTS)
    network = capture(tiny("BertModel"), TEXTS, store=tmp_path / "s").weights
    read: list[object] = []
    original = StoredArray._read
    monkeypatch.setattr(
        StoredArray, "_read", lambda self, what, chunk: read.append(chunk) or original(self, what, chunk)
    )
    assert np.array_equal(network["L1H2"], plain.weights["L1H2"])
    assert read == [(2, 0, 0)]
    assert np.array_equal(network.head("L1H2", slice(2, 5)), plain.weights["L1H2"][2:5])
    few = network.take_heads(["L1H3", "L0H0"])
    assert not few.in_memory
    assert len(read) == 2
    same(plain.weights.take_heads(["L1H3", "L0H0"]), few)
    assert not network.in_memory
    again = pickle.loads(pickle.dumps(network))
    assert not again.in_memory
    same(plain.weights, again)


@pytest.mark.parametrize("rows", [slice(None), slice(3, 8), slice(7, 2, -2), slice(4, 4), slice(-2, None)])
def test_any_rows_of_chunks_of_any_size(rows: slice, tmp_path: Path) -> None:
    from pyattnorg.capture.files import StoredArray, create_array

    values = np.random.default_rng(0).normal(size=(2, 9, 5)).astype(np.float32)
    create_array(tmp_path / "a", values.shape, "float32", (1, 2, 5))[...] = values
    found = StoredArray(tmp_path / "a")
    assert np.array_equal(found.head(1, rows), values[1, rows])
    assert np.array_equal(found.read(), values)


def test_long_maps_are_made_and_read_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyattnorg.capture import slots, writing

    plain = {name: capture(*MODELS[name]) for name in ("fused", "three kinds", "mixed local and global", "sinks")}
    for block in (1, 10, 30):
        monkeypatch.setattr(slots, "BLOCK", 2 * block)
        monkeypatch.setattr(writing, "CHUNK", block)
        for name, want in plain.items():
            for store in (None, tmp_path / f"{name}-{block}"):
                found = capture(*MODELS[name], store=store)
                for group, tensors in want.groups.items():
                    for kind in ("scores", "weights"):
                        a, b = (getattr(g, kind) for g in (tensors, found[group]))
                        np.testing.assert_allclose(a.values, b.values, rtol=1e-6, atol=2e-6)
                        assert np.array_equal(a.visible_cells(), b.visible_cells())
                rows = zip(want.report, found.report, strict=True)
                for ours, theirs in rows:
                    assert ours["visible"] == pytest.approx(theirs["visible"])
                    assert ours["row_sums"] == pytest.approx(theirs["row_sums"], abs=1e-6)
                    assert ours["sink_mass"] == pytest.approx(theirs["sink_mass"], abs=1e-6)


def test_the_questionnaire_reads_it_whole_or_says_that_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = capture(tiny("MistralModel"), TEXTS)
    network = capture(tiny("MistralModel"), TEXTS, store=tmp_path / "s").scores
    monkeypatch.setattr(lazy, "available_memory", lambda: 100)
    with pytest.raises(MemoryError, match=r"9 queries x 9 keys x 8 heads take 2\.6 KB .*take_heads"):
        pa.organize(network)
    monkeypatch.undo()
    a, b = pa.organize(plain.scores), pa.organize(network)
    assert network.in_memory
    assert a.trees_ == b.trees_
    assert np.array_equal(a.coefficients(), b.coefficients())
    b.save(tmp_path / "o.npz")
    assert pa.load(tmp_path / "o.npz").trees_ == a.trees_


def test_zarr_itself_reads_the_maps(tmp_path: Path) -> None:
    plain = capture(tiny("BertModel"), TEXTS, keep="weights")
    capture(tiny("BertModel"), TEXTS, keep="weights", store=tmp_path / "s")
    group = zarr.open_group(tmp_path / "s", mode="r")
    assert group.attrs["pyattnorg"]["complete"] is True
    array = group["layers/00001/weights"]
    assert array.chunks == (1, 9, 9)
    assert np.array_equal(array[:].transpose(1, 2, 0), plain.weights.values[:, :, 4:])


# -- what is wrong is said by name ---------------------------------------------------------------------------------


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 16
    file.write_bytes(bytes(content))


def read(folder: Path) -> None:
    found = load_capture(folder)
    assert found.weights.values.shape == found.scores.values.shape


CHUNK = "layers/00001/weights/c/2/0/0"


@pytest.mark.parametrize("damage", [cut, flip, lambda file: file.unlink(), lambda file: file.write_bytes(b"")])
@pytest.mark.parametrize(
    "name",
    [CHUNK, "zarr.json", "layers/00001/zarr.json", "layers/00000/weights/zarr.json", "layers/00000/scores/c/0/0/0"],
)
def test_a_damaged_file_is_named(name: str, damage: Callable[[Path], object], tmp_path: Path) -> None:
    capture(tiny("BertModel"), TEXTS, store=tmp_path / "s")
    damage(tmp_path / "s" / name)
    with pytest.raises(pa.DamagedFileError, match=rf"{tmp_path / 's'}.*{re.escape(name)}"):
        read(tmp_path / "s")


def test_metadata_that_was_changed_with_care_is_noticed(tmp_path: Path) -> None:
    capture(tiny("BertModel"), TEXTS, store=tmp_path / "s")
    file = tmp_path / "s/layers/00000/zarr.json"
    about = json.loads(file.read_text())
    about["attributes"]["pyattnorg"]["record"]["fields"]["layer"] = 7
    file.write_text(json.dumps(about))
    with pytest.raises(pa.DamagedFileError, match=r"layers/00000/zarr\.json is damaged"):
        load_capture(tmp_path / "s")


def test_a_layer_of_another_capture_is_noticed(tmp_path: Path) -> None:
    capture(tiny("BertModel"), TEXTS, store=tmp_path / "a")
    capture(tiny("BertModel"), {"input_ids": token_ids(1, 9).flip(1)}, store=tmp_path / "b")
    shutil.rmtree(tmp_path / "a/layers/00001")
    shutil.copytree(tmp_path / "b/layers/00001", tmp_path / "a/layers/00001")
    with pytest.raises(pa.DamagedFileError, match=r"layers/00001/zarr\.json is another capture's"):
        load_capture(tmp_path / "a")


def test_foreign_folders_are_refused_and_left_alone(tmp_path: Path) -> None:
    model = tiny("BertModel")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/mine.txt").write_text("keep me")
    zarr.create_group(tmp_path / "other").create_array("x", shape=(2,), dtype="f4")
    zarr.create_group(tmp_path / "empty group")
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name in ("notes", "other", "empty group", "file"):
        for overwrite in (False, True):
            with pytest.raises((FileExistsError, pa.DamagedFileError), match=name):
                capture(model, TEXTS, store=tmp_path / name, overwrite=overwrite)
        with pytest.raises(pa.DamagedFileError, match=name):
            load_capture(tmp_path / name)
    assert (tmp_path / "notes/mine.txt").read_text() == "keep me"
    capture(model, TEXTS, store=tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match=r"none does not exist"):
        load_capture(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"folder .*none does not exist; make it first"):
        capture(model, TEXTS, store=tmp_path / "none/s")
    with pytest.raises(pa.DamagedFileError, match=r"pyattnorg\.load_capture reads it"):
        pa.load(tmp_path / "empty")


def test_a_newer_store_says_so(tmp_path: Path) -> None:
    capture(tiny("BertModel"), TEXTS, store=tmp_path / "s")
    file = tmp_path / "s/zarr.json"
    about = json.loads(file.read_text())
    about["attributes"]["pyattnorg"]["format_version"] = 99
    file.write_text(json.dumps(about))
    with pytest.raises(pa.DamagedFileError, match="newer pyattnorg; upgrade"):
        load_capture(tmp_path / "s")


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    from pyattnorg.capture.files import locked

    (tmp_path / "s").mkdir()
    with locked(tmp_path / "s"), pytest.raises(BlockingIOError, match="another process"):
        capture(tiny("BertModel"), TEXTS, store=tmp_path / "s")
    capture(tiny("BertModel"), TEXTS, store=tmp_path / "s")


def test_without_zarr_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "zarr", None)
    with pytest.raises(ImportError, match=r"pip install 'pyattnorg\[store\]'"):
        capture(tiny("BertModel"), TEXTS, store=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_capturing_has_no_store() -> None:
    with pytest.raises(TypeError, match="store"), capturing(tiny("BertModel"), store="x"):  # type: ignore[call-arg]
        pass


def test_a_store_opens_where_torch_is_not(tmp_path: Path) -> None:
    plain = capture(tiny("MistralModel"), TEXTS, keep="qk", store=tmp_path / "s")
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {{"torch", "transformers"}}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import pyattnorg as pa
print(float(pa.load_capture({str(tmp_path / "s")!r}).weights["L1H2"].sum()))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stderr == ""
    assert float(run.stdout) == float(plain.weights["L1H2"].sum())
