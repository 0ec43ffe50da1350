"""A capture that is killed never leaves a store that reads wrong, and the same call completes it to the same bytes."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("zarr")
import torch
from capture_models import tiny, token_ids

import pyattnorg as pa
from pyattnorg.capture import capture, load_capture
from pyattnorg.capture.errors import CaptureError

KILLS = int(os.environ.get("PYATTNORG_KILLS", "4"))
SEED = 20

# Forks a process for every folder that it is told, which captures into it: libraries are imported once, and the kill
# falls into the capture itself, not into seconds of imports.
SERVER = """
import os, sys
import torch, transformers, zarr, pyattnorg.capture.storing
from capture_models import tiny, token_ids
from pyattnorg.capture import capture
model, inputs = tiny("MistralModel", num_hidden_layers=6), token_ids(1, 40)
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        capture(model, inputs, store=line.strip())
        os._exit(0)
    print(child, flush=True)
    sys.stdin.readline()  # until then it is there to be killed, if only as a zombie
    print(os.waitpid(child, 0)[1], flush=True)
"""


def tree(folder: Path) -> dict[str, str]:
    """Every file of a store and the digest of its bytes."""
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


class Server:
    """Runs captures in processes of their own."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._said() == "ready"

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(self, folder: Path, kill_after: float | None = None) -> int:
        """Capture into a folder; how the process ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{folder}\n")
        self._process.stdin.flush()
        child = int(self._said())
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._said())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def test_killed_captures_read_right_or_not_at_all_and_are_completed(tmp_path: Path) -> None:
    # EleutherAI/delphi#38: killed and started again, the store is that of one run
    model, inputs = tiny("MistralModel", num_hidden_layers=6), token_ids(1, 40)
    right = capture(model, inputs)
    capture(model, inputs, store=tmp_path / "whole")
    want = tree(tmp_path / "whole")
    rng, layers, ends = random.Random(SEED), [], []
    server = Server()
    try:
        begun = time.perf_counter()
        assert server.run(tmp_path / "timed") == 0
        length = time.perf_counter() - begun
        assert tree(tmp_path / "timed") == want  # another process writes the same bytes
        for i in range(5 * KILLS):
            if ends.count(signal.SIGKILL) >= KILLS:
                break
            folder = tmp_path / f"killed-{i}"
            for _ in range(1 + i % 2):  # every other one is killed once more on its way
                ends.append(server.run(folder, rng.random() * length))
                layers.append(check(folder, right))
            resumed = capture(model, inputs, store=folder)
            assert tree(folder) == want
            assert np.array_equal(resumed.weights.values, right.weights.values)
            assert np.array_equal(load_capture(folder).scores.values, right.scores.values)
    finally:
        server.close()
    assert ends.count(signal.SIGKILL) >= KILLS
    print("ends (9: killed):", ends, "whole layers then:", layers)


def check(folder: Path, right: pa.Capture) -> int:
    """A killed store is refused, or is complete and right; its layers that are there."""
    layers = len(list((folder / "layers").glob("[0-9]*"))) if folder.exists() else 0
    if folder.exists() and '"complete": true' in read(folder / "zarr.json"):
        found = load_capture(folder)
        assert np.array_equal(found.scores.values, right.scores.values)
        assert np.array_equal(found.weights.values, right.weights.values)
    else:
        said = rf"{folder}.*(not finished|no zarr\.json|does not exist)"
        with pytest.raises((pa.DamagedFileError, FileNotFoundError), match=said):
            load_capture(folder)
    return layers


def read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def test_an_interrupted_capture_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyattnorg.capture import writing

    model, inputs, store = tiny("MistralModel", num_hidden_layers=4), token_ids(1, 9), tmp_path / "s"
    capture(model, inputs, store=tmp_path / "whole")
    written: list[int] = []
    plain = writing.Writer.write

    def stopping(self, index, record):
        if index == 2 and not written[2:]:
            raise OSError(28, "No space left on device", str(self.path))
        written.append(index)
        return plain(self, index, record)

    monkeypatch.setattr(writing.Writer, "write", stopping)
    with pytest.raises(OSError, match="No space left"):
        capture(model, inputs, store=store)
    with pytest.raises(pa.DamagedFileError, match=r"not finished.*again to complete"):
        load_capture(store)
    assert written == [0, 1]
    monkeypatch.setattr(
        writing.Writer, "write", lambda self, index, record: written.append(index) or plain(self, index, record)
    )
    capture(model, inputs, store=store)
    assert written == [0, 1, 2, 3]  # the first two were not written again
    assert tree(store) == tree(tmp_path / "whole")


def test_a_store_of_something_else_is_not_gone_on_with(tmp_path: Path) -> None:
    model, inputs, store = tiny("BertModel"), token_ids(1, 6), tmp_path / "s"
    capture(model, inputs, store=store)
    before = tree(store)
    other = token_ids(1, 6).flip(1)
    for refused, said in (
        (lambda: capture(model, other, store=store), "another input"),
        (lambda: capture(model, inputs, layers=0, store=store), "another options"),
        (lambda: capture(tiny("BertModel", num_attention_heads=2), inputs, store=store), "another configuration"),
        (lambda: capture(model, inputs, keep="weights", store=store), "another options"),
    ):
        with pytest.raises(FileExistsError, match=rf"{said}.*overwrite=True"):
            refused()
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    with pytest.raises(FileExistsError, match="another weights"):
        capture(model, inputs, store=store)
    assert tree(store) == before
    replaced = capture(model, other, store=store, overwrite=True)
    assert replaced.store is not None
    assert tree(store) != before
    plain = capture(model, other)
    assert np.array_equal(replaced.weights.values, plain.weights.values)


def test_a_refused_capture_leaves_no_store(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="attention is written out"):
        capture(tiny("BloomModel"), token_ids(1, 6), keep="qk", store=tmp_path / "s")
    assert not (tmp_path / "s").exists()
