"""Files of compressed tensors: read in parts, found damaged, never overwritten unasked; and the command line."""

from __future__ import annotations

import copy
import json
import os
import pickle
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensors import attention_like
from typer.testing import CliRunner

import pyattnorg as pa
from pyattnorg.cli.app import app
from pyattnorg.compression import Compressed
from pyattnorg.compression.container import FRONT, MAGIC
from pyattnorg.compression.numbers import MOST, Reader, framed

runner = CliRunner()
HEADS = {"layer": np.repeat(np.arange(6), 6), "head": np.tile(np.arange(6), 6)}


def _network(n: int = 40) -> pa.NetworkTensor:
    return pa.NetworkTensor(attention_like(n, n, 36).astype(np.float32), kind="weights", heads=HEADS)


@pytest.fixture(scope="module")
def organized() -> pa.Organization:
    return pa.organize(_network())


@pytest.fixture(scope="module")
def small() -> bytes:
    return pa.compress(attention_like(6, 5, 4), error=0.05, axes="trees").to_bytes()


@pytest.fixture
def path(organized: pa.Organization, tmp_path: Path) -> Path:
    pa.compress(organized, error=0.02, axes="trees").save(tmp_path / "c")
    return tmp_path / "c"


# -- parts of it ------------------------------------------------------------------------------------------------------


def test_a_head_reads_its_own_strips_only(path: Path, organized: pa.Organization) -> None:
    tree = organized.trees_[2]
    basis = pa.haar_basis(tree)
    q, k, _ = organized.network.shape
    whole = pa.load(path).reconstruct().values
    fewer = 0
    for i, label in enumerate(organized.labels):
        made = pa.load(path)
        at_first = made.bytes_read
        assert at_first < made.nbytes / 3
        assert np.abs(made.head(label) - whole[:, :, i]).max() < 1e-6
        cost = made.cost(None, None, [label])
        above = np.count_nonzero(basis[i])  # functions that see the head
        assert cost["coefficients"] == cost["decoded"] == above * q * k
        read = made.bytes_read - at_first
        assert cost["bytes"] <= read <= made.sizes["coefficients"]
        fewer += read < made.sizes["coefficients"]
    assert fewer > 18  # segments of 4 kB, in which most heads share some


def test_cost_of_a_block_is_that_of_the_functions_that_see_it(organized: pa.Organization) -> None:
    made = pa.compress(organized, error=0.02, axes="trees")
    needed = [
        np.count_nonzero((pa.haar_basis(tree)[some] != 0).any(0))
        for tree, some in zip(organized.trees_, (slice(3, 5), slice(0, 1), slice(7, 9)))
    ]
    cost = made.cost([3, 4], [0], [7, 8])
    assert cost["coefficients"] == np.prod(needed)
    assert cost["bytes"] < made.cost()["bytes"] == made.sizes["coefficients"]


def test_heads_without_a_tree_are_one_strip_each() -> None:
    network = _network()
    trees: Any = [*pa.organize(network).trees_[:2], None]
    made = pa.compress(network, error=0.02, trees=trees, axes="trees")
    assert made.cost(None, None, [3])["decoded"] == 40 * 40
    assert sum(made.cost(None, None, [i])["bytes"] for i in range(36)) == made.sizes["coefficients"]


# -- damage -----------------------------------------------------------------------------------------------------------


def _whole(path: Path) -> Any:
    return pa.load(path).reconstruct()


def test_a_file_that_is_cut_is_damaged(small: bytes, tmp_path: Path) -> None:
    path = tmp_path / "c"
    for length in range(len(small)):
        path.write_bytes(small[:length])
        with pytest.raises(pa.DamagedFileError, match=str(path)):
            _whole(path)
    path.write_bytes(small + b"x")
    with pytest.raises(pa.DamagedFileError):
        _whole(path)


def test_any_changed_byte_is_found(small: bytes, tmp_path: Path) -> None:
    path = tmp_path / "c"
    for at in range(len(small)):
        for change in (1, 0x80):
            data = bytearray(small)
            data[at] ^= change
            path.write_bytes(data)
            with pytest.raises(pa.DamagedFileError, match=str(path)):
                _whole(path)


def test_damage_elsewhere_does_not_keep_a_head_from_being_read(path: Path) -> None:
    whole = pa.load(path).reconstruct().values
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    found = 0
    for i in range(36):
        try:
            assert np.abs(pa.load(path).head(i) - whole[:, :, i]).max() < 1e-6
        except pa.DamagedFileError:
            found += 1
    assert 0 < found < 36


@pytest.mark.parametrize("form", ["haar", "factors"])
def test_any_changed_bit_is_found_when_a_file_is_copied(form: Any, tmp_path: Path) -> None:
    whole = pa.compress(attention_like(6, 5, 4), error=0.05, form=form).to_bytes()
    path = tmp_path / "c"
    path.write_bytes(whole)
    opened = pa.load(path)
    assert opened.to_bytes() == whole
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        path.write_bytes(data)
        with pytest.raises(pa.DamagedFileError, match=str(path)):
            opened.to_bytes()


def test_a_file_that_is_replaced_after_it_was_opened_gives_nothing_of_the_other(tmp_path: Path) -> None:
    path = tmp_path / "c"
    pa.compress(attention_like(6, 5, 4), error=0.05).save(path)
    opened = pa.load(path)
    pa.compress(attention_like(20, 20, 9), error=0.01).save(path, overwrite=True)
    for use in (opened.reconstruct, opened.to_bytes, lambda: opened.head(0), lambda: opened.save(tmp_path / "d")):
        with pytest.raises(pa.DamagedFileError, match="took its place"):
            use()
    assert not (tmp_path / "d").exists()
    path.unlink()
    with pytest.raises(FileNotFoundError, match=str(path)):
        opened.head(0)


def test_a_file_is_read_from_any_folder_and_thread_and_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = pa.compress(_network(), error=0.05)
    made.save(tmp_path / "c")
    monkeypatch.chdir(tmp_path)
    opened = pa.load("c")
    monkeypatch.chdir("/")
    whole = made.reconstruct().values
    with ThreadPoolExecutor(8) as pool:
        for i, head in zip([*range(36)] * 3, pool.map(opened.head, [*range(36)] * 3)):
            assert np.abs(head - whole[:, :, i]).max() < 1e-6
    for copied in (pickle.loads(pickle.dumps(opened)), pickle.loads(pickle.dumps(made)), copy.deepcopy(opened)):
        assert np.array_equal(copied.reconstruct().values, whole)


def test_forged_lengths_take_no_memory_and_no_time(small: bytes, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        for header in (b"\xff" * 4, b"\xf0\xff\xff\x7f"):
            (tmp_path / "c").write_bytes(small[:8] + header + small[12:])
            with pytest.raises(pa.DamagedFileError, match="too soon"):
                pa.load(tmp_path / "c")
        header = b"\xff" * 2_000_000  # a number that does not end
        with pytest.raises(pa.DamagedFileError, match="a number in it"):
            Compressed(FRONT.pack(MAGIC, len(header), zlib.crc32(header)) + header)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", ["haar", "factors"])
def test_forged_headers_are_damaged_files_or_read_as_numbers(form: str) -> None:
    good = pa.compress(_network(9), error=0.2, form=form).to_bytes()  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    length = FRONT.unpack(good[: FRONT.size])[1]
    refused = 0
    for _ in range(400):
        header = bytearray(good[FRONT.size : FRONT.size + length])
        for _ in range(rng.integers(1, 4)):
            header[rng.integers(length)] = rng.integers(256)
        forged = FRONT.pack(MAGIC, length, zlib.crc32(header)) + bytes(header) + good[FRONT.size + length :]
        try:
            found = Compressed(forged)
            found.summary()
            found.cost(None, [0], [0])
            assert np.isfinite(found.head(0)).all()
            assert np.isfinite(found.reconstruct().values).all()
        except pa.DamagedFileError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shape", [9, 9]), ("shape", [10**9] * 3), ("shape", [-3, 2, 2]), ("shape", "abc"), ("kind", "other"),
        ("queries", ["a"]), ("keys", [1] * 9), ("heads", {"layer": [1]}), ("dtype", "c8"), ("exponent", 10**6),
        ("meta", None), ("hidden", "x"),
    ],
)  # fmt: skip
def test_what_a_header_tells_must_go_together(name: str, value: Any) -> None:
    good = pa.compress(_network(9), error=0.2).to_bytes()
    length = FRONT.unpack(good[: FRONT.size])[1]
    reader = Reader(good[FRONT.size : FRONT.size + length])
    parts = [reader.framed() for _ in range(7)]
    parts[0] = zlib.compress(json.dumps(json.loads(zlib.decompress(parts[0])) | {name: value}).encode())
    header = framed(parts)
    with pytest.raises(pa.DamagedFileError):
        Compressed(FRONT.pack(MAGIC, len(header), zlib.crc32(header)) + header + good[FRONT.size + length :])


def test_a_part_that_unpacks_without_end_is_refused() -> None:
    good = pa.compress(_network(9), error=0.2).to_bytes()
    length = FRONT.unpack(good[: FRONT.size])[1]
    reader = Reader(good[FRONT.size : FRONT.size + length])
    parts = [reader.framed() for _ in range(7)]
    parts[0] = zlib.compress(bytes(MOST + 1))
    header = framed(parts)
    with pytest.raises(pa.DamagedFileError, match="longer than it can be"):
        Compressed(FRONT.pack(MAGIC, len(header), zlib.crc32(header)) + header + good[FRONT.size + length :])


def test_a_file_is_overwritten_only_when_asked(tmp_path: Path) -> None:
    made = pa.compress(attention_like(6, 5, 4), error=0.1)
    (tmp_path / "c").write_text("precious")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        made.save(tmp_path / "c")
    assert (tmp_path / "c").read_text() == "precious"
    made.save(tmp_path / "c", overwrite=True)
    assert np.array_equal(_whole(tmp_path / "c"), made.reconstruct())
    assert [one.name for one in tmp_path.iterdir()] == ["c"]


def test_a_loaded_file_may_be_saved_over_itself(path: Path) -> None:
    before = path.read_bytes()
    pa.load(path).save(path, overwrite=True)
    assert path.read_bytes() == before


# -- the command line -------------------------------------------------------------------------------------------------


def _run(*arguments: Any) -> Any:
    return runner.invoke(app, list(map(str, arguments)))


@pytest.fixture
def saved(organized: pa.Organization, tmp_path: Path) -> Path:
    organized.save(tmp_path / "organization.npz")
    return tmp_path / "organization.npz"


def test_compress_and_decompress(saved: Path, tmp_path: Path, organized: pa.Organization) -> None:
    out = tmp_path / "c"
    run = _run("compress", saved, "--error", "0.05", "--out", out, "--json")
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    assert told["bytes"] == out.stat().st_size
    assert told["error"] <= 0.05
    for options, expected in (((), pa.load(out).reconstruct().values), (("--head", "L3H5"), pa.load(out)["L3H5"])):
        run = _run("decompress", out, "--out", tmp_path / "x.npy", "--overwrite", *options)
        assert run.exit_code == 0, run.output
        assert "read; written to" in run.stdout
        assert np.array_equal(np.load(tmp_path / "x.npy"), expected)
    run = _run("compress", saved, "--ratio", "20", "--out", tmp_path / "d")
    assert run.exit_code == 0, run.output
    assert "of float32" in run.stdout
    assert pa.load(tmp_path / "d").ratio >= 20


def test_decompress_to_npz_and_by_position(tmp_path: Path) -> None:
    visible = np.random.default_rng(0).random((12, 11, 4)) < 0.7
    names: Any = {"queries": [f"q{i}" for i in range(12)], "heads": {"layer": [0, 0, 1, 1], "head": [0, 1, 0, 1]}}
    network = pa.NetworkTensor(attention_like(12, 11, 4), kind="scores", visible=visible, **names)
    made = pa.compress(network, error=0.1)
    made.save(tmp_path / "c")
    assert _run("decompress", tmp_path / "c", "--out", tmp_path / "x.npz").exit_code == 0
    with np.load(tmp_path / "x.npz") as found:
        assert sorted(found.files) == ["heads", "queries", "values", "visible"]
        assert np.array_equal(found["values"], made.reconstruct().values)
        assert np.array_equal(found["visible"], visible)
        assert (found["heads"].tolist(), found["queries"].tolist()) == (list(network.labels), names["queries"])
    for head in ("L1H1", "3", "-1"):
        run = _run("decompress", tmp_path / "c", "--out", tmp_path / "x.npz", "--overwrite", f"--head={head}")
        assert run.exit_code == 0, run.output
        with np.load(tmp_path / "x.npz") as found:
            assert found["heads"].tolist() == ["L1H1"]
            assert np.array_equal(found["values"], made.head(3))
            assert np.array_equal(found["visible"], visible[:, :, 3])
    pa.compress(attention_like(6, 5, 4), error=0.1).save(tmp_path / "d")
    for options in ([], ["--head", "2"]):
        assert _run("decompress", tmp_path / "d", "--out", tmp_path / "y.npz", "--overwrite", *options).exit_code == 0
        with np.load(tmp_path / "y.npz") as found:
            assert found.files == ["values"]
    (tmp_path / "folder.npy").mkdir()
    os.mkfifo(tmp_path / "pipe.npy")
    for place, said in (("folder.npy", "is a folder"), ("pipe.npy", "is a device or a pipe")):
        run = _run("decompress", tmp_path / "c", "--out", tmp_path / place, "--overwrite")
        assert f"--out: {tmp_path / place} {said}" in run.stderr
    run = _run("decompress", tmp_path / "c", "--out", tmp_path / "x.txt")
    assert "ends in .npy or .npz" in run.stderr
    run = _run("compress", tmp_path / "c", "--error", "0.1", "--out", tmp_path / "e")
    assert "is compressed already" in run.stderr
    run = _run("compress", tmp_path / "none.npz", "--error", "0.1", "--out", tmp_path / "e")
    assert "none.npz does not exist" in run.stderr


def test_threads_are_used_and_bad_options_refused_before_a_model_is_loaded(saved: Path, tmp_path: Path) -> None:
    before = pa.get_num_threads()
    try:
        assert _run("compress", saved, "--error", "0.1", "--out", tmp_path / "c", "--threads", "1").exit_code == 0
        assert pa.get_num_threads() == 1
    finally:
        pa.set_num_threads(before)
    for options in (["--error", "2"], ["--error", "0.1", "--form", "x"], ["--ratio", "-1"]):
        run = _run("compress", "no/such-model", "--text", "a", "--out", tmp_path / "d", *options)
        assert run.exit_code == 1
        assert f"{options[-2].strip('-')}: got" in run.stderr


@pytest.mark.models
def test_a_live_model_is_compressed(tmp_path: Path) -> None:
    from pyattnorg.capture import load_model
    from pyattnorg.cli.sources import demo_model

    try:
        demo_model()
    except FileNotFoundError as missing:
        if os.environ.get("PYATTNORG_REQUIRE_MODELS") == "1":
            raise
        pytest.skip(str(missing))
    text = "A cat sits on the mat."
    run = _run(
        "compress", demo_model(), "--text", text, "--kind", "scores", "--error", "0.05",
        "--out", tmp_path / "c", "--json",
    )  # fmt: skip
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    assert told["error"] <= 0.05
    assert told["shape"][2] == 72
    loaded = load_model(demo_model())
    network = pa.capture(loaded, text).scores
    back = pa.load(tmp_path / "c").reconstruct()
    assert (back.labels, back.queries) == (network.labels, network.queries)
    assert np.linalg.norm(back.values - network.values) <= 0.0501 * np.linalg.norm(network.values)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--error", "0.1", "--kind", "weights"], "--kind: "),
        (["--error", "much"], "--error: got 'much'"),
        (["--error", "0.1", "--ratio", "2"], "exactly one"),
        ([], "exactly one"),
        (["--error", "0.1", "--text", "x"], "give none of them"),
        (["--error", "0.1", "--layers", "0"], "--layers: "),
        (["--error", "0.1", "--form", "x"], "form: got 'x'"),
    ],
)
def test_compress_refuses(options: list[str], said: str, saved: Path, tmp_path: Path) -> None:
    run = _run("compress", saved, "--out", tmp_path / "c", *options)
    assert run.exit_code == 1
    assert said in run.stderr
    assert run.stderr.count("\n") == 1
    assert not (tmp_path / "c").exists()


def test_nothing_is_overwritten_unasked(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "c").write_text("precious")
    for command in (["compress", saved, "--error", "0.1"], ["decompress", saved]):
        run = _run(*command, "--out", tmp_path / "c")
        assert run.exit_code == 1
        assert "pass --overwrite" in run.stderr
    run = _run("decompress", saved, "--out", tmp_path / "x.npy")
    assert "is an organisation" in run.stderr
    assert _run("compress", saved, "--error", "0.1", "--out", tmp_path / "no" / "c").exit_code == 1
    assert _run("compress", saved, "--error", "0.1", "--out", tmp_path, "--overwrite").exit_code == 1
