"""Saving and loading: it comes back, damage is said, nothing is overwritten or left half written."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensors import attention_like

import pyattnorg as pa
from pyattnorg.store import FORMAT_VERSION, write_atomically


def _network(**options: Any) -> pa.NetworkTensor:
    heads = {"layer": [0, 0, 1, 1], "head": [0, 1, 0, 1], "kv_group": [0, 0, 1, 1], "group": ["", "", "", ""]}
    options = {"kind": "weights", "heads": heads, "queries": list("abcdef"), "meta": {"model": "é"}} | options
    return pa.NetworkTensor(attention_like(6, 5, 4), **options)


@pytest.fixture
def organized() -> pa.Organization:
    return pa.organize(_network(), alpha=(0.0, 1.0, 0.5), n_iter=2)


@pytest.fixture
def path(organized: pa.Organization, tmp_path: Path) -> Path:
    organized.save(tmp_path / "saved.npz")
    return tmp_path / "saved.npz"


def _same(one: pa.Organization, other: pa.Organization) -> bool:
    a, b = one.network, other.network
    return (
        np.array_equal(a.values, b.values)
        and (a.values.dtype, a.kind, a.heads, a.queries, a.keys, a.meta)
        == (b.values.dtype, b.kind, b.heads, b.queries, b.keys, b.meta)
        and one.history_ == other.history_
        and (one.n_iter_, one.converged_) == (other.n_iter_, other.converged_)
        and all(np.array_equal(x, y) for x, y in zip(one.distances_, other.distances_))
        and all(np.array_equal(x, y) for x, y in zip(one.affinities_, other.affinities_))
        and one.questionnaire.get_params() == other.questionnaire.get_params()
        and one.summary() == other.summary()
    )


# -- there and back ---------------------------------------------------------------------------------------------------


def test_everything_comes_back(organized: pa.Organization, path: Path) -> None:
    loaded = pa.load(path)
    assert _same(loaded, organized)
    assert np.array_equal(loaded.coefficients(), organized.coefficients())
    assert loaded.head_table() == organized.head_table()
    assert pa.load(str(path)).trees_ == organized.trees_


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": np.array([0.0, 1.0, 0.5])},
        {"alpha": np.float32(0.5), "n_iter": np.int64(2)},
        {"tree": "binary", "balance": 2.0, "random_state": np.int64(3)},
        {"beta": [1.0, 1.0, 0.0], "schedule": "paper", "initial": "gaussian"},
        {"tree": ("binary", "flexible", "binary"), "cut": "random", "n_trees": 3, "random_state": 1},
        {"weights": ("data", "powers", "data"), "constant": (1.0, 2.0, 1.0), "missing": 0.0, "tol": 0.1},
    ],
    ids=str,
)
def test_options_of_any_number_come_back(options: dict[str, Any], tmp_path: Path) -> None:
    organized = pa.organize(_network(), **options)
    organized.save(tmp_path / "saved")
    loaded = pa.load(tmp_path / "saved")
    assert loaded.trees_ == organized.trees_
    assert loaded.history_ == organized.history_
    assert loaded.questionnaire.forests_ == organized.questionnaire.forests_
    again = pa.Questionnaire(**loaded.questionnaire.get_params()).fit(loaded.network.values)
    assert again.trees_ == organized.trees_


def test_a_function_of_weights_leaves_its_name(tmp_path: Path) -> None:
    def flat(tree: pa.PartitionTree) -> Any:
        return np.ones(tree.n_folders)

    organized = pa.organize(_network(), weights=("powers", flat, "data"))
    organized.save(tmp_path / "saved")
    loaded = pa.load(tmp_path / "saved")
    assert loaded.trees_ == organized.trees_
    told = loaded.questionnaire.get_params()["weights"]
    assert told[::2] == ("powers", "data")
    assert told[1].startswith("function ")
    assert told[1].endswith("flat")
    with pytest.raises(ValueError, match=r"^weights: got 'function .*flat'"):
        loaded.questionnaire.fit(loaded.network.values)


def test_files_from_before_trees_were_seen_to_move(path: Path, organized: pa.Organization) -> None:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    about = json.loads(arrays["about"].tobytes())
    del about["moved"]
    for name in ("weights", "cut", "n_trees", "missing", "tol"):
        del about["options"][name]
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(path, **arrays)
    loaded = pa.load(path)
    assert loaded.trees_ == organized.trees_
    assert [step["moved"] for step in loaded.history_] == [(None, None, None)] * len(loaded.history_)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 3, 2), (3, 12, 8)])
def test_any_size_and_dtype(shape: tuple[int, ...], dtype: type, tmp_path: Path) -> None:
    organized = pa.organize(np.random.default_rng(0).random(shape).astype(dtype), n_iter=1)
    organized.save(tmp_path / "saved.npz")
    assert _same(pa.load(tmp_path / "saved.npz"), organized)


def test_masked_networks_come_back_as_they_were_organised(tmp_path: Path) -> None:
    visible = np.tri(6, 5, dtype=bool)
    visible[2] = False
    organized = pa.organize(_network(visible=visible))
    organized.save(tmp_path / "saved.npz")
    assert _same(pa.load(tmp_path / "saved.npz"), organized)
    assert pa.load(tmp_path / "saved.npz").network.meta["left_out"]["queries"] == [2]


def test_no_pickle_in_it(path: Path) -> None:
    with np.load(path, allow_pickle=False) as file:
        assert all(file[name].dtype.kind in "fiu" for name in file.files)


def test_meta_that_is_no_json_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"^network.meta: "):
        pa.organize(_network(meta={"model": object()})).save(tmp_path / "saved.npz")
    assert not list(tmp_path.iterdir())


# -- never overwritten, never half written -----------------------------------------------------------------------------


def test_a_file_is_overwritten_only_when_asked(organized: pa.Organization, path: Path) -> None:
    before = path.read_bytes()
    other = pa.organize(_network(), n_iter=1)
    with pytest.raises(FileExistsError, match=r"saved.npz exists; pass overwrite=True"):
        other.save(path)
    assert path.read_bytes() == before
    other.save(path, overwrite=True)
    assert _same(pa.load(path), other)
    assert [p.name for p in path.parent.iterdir()] == ["saved.npz"]


def test_folders_pipes_and_links_keep_their_place(organized: pa.Organization, path: Path) -> None:
    (path.parent / "folder").mkdir()
    for overwrite in (False, True):
        with pytest.raises(IsADirectoryError, match=r"^path: .*folder is a folder"):
            organized.save(path.parent / "folder", overwrite=overwrite)
    os.mkfifo(path.parent / "pipe")
    with pytest.raises(OSError, match=r"^path: .*pipe is a device or a pipe"):
        organized.save(path.parent / "pipe", overwrite=True)
    assert (path.parent / "pipe").is_fifo()
    (path.parent / "link").symlink_to(path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        organized.save(path.parent / "link")
    pa.organize(_network(), n_iter=1).save(path.parent / "link", overwrite=True)
    assert (path.parent / "link").is_symlink()
    assert path.read_bytes() != before
    assert _same(pa.load(path), pa.load(path.parent / "link"))


def test_the_file_of_one_array_is_said_to_be_one(path: Path) -> None:
    np.save(path.with_suffix(".npy"), np.zeros(3))
    with pytest.raises(pa.DamagedFileError, match=r"NumPy file of one array; numpy.load reads it"):
        pa.load(path.with_suffix(".npy"))


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt(), MemoryError()])
def test_a_crash_leaves_the_old_file_and_nothing_else(path: Path, error: BaseException) -> None:
    before = path.read_bytes()

    def write(file: Any) -> None:
        file.write(b"half")
        raise error

    with pytest.raises(type(error)):
        write_atomically(path, write, overwrite=True)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["saved.npz"]


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    def write(file: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: .*here\.npz"):
        write_atomically(tmp_path / "here.npz", write, overwrite=False)
    assert list(tmp_path.iterdir()) == []


def test_a_crash_within_save(organized: pa.Organization, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    monkeypatch.setattr(np, "savez", lambda file, **arrays: file.write(b"PK") and 1 / 0)
    with pytest.raises(ZeroDivisionError):
        organized.save(path, overwrite=True)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["saved.npz"]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_permissions_are_those_of_any_new_file(organized: pa.Organization, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        organized.save(tmp_path / "saved.npz")
        assert (tmp_path / "saved.npz").stat().st_mode & 0o777 == 0o640
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_saving_never_changes_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that put it to 0 and back at once could leave it there."""
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("umask was changed"))
    write_atomically(tmp_path / "saved.npz", lambda file: None, overwrite=False)
    long = tmp_path / ("n" * 250)
    write_atomically(long, lambda file: None, overwrite=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == [long.name, "saved.npz"]


def test_folders_that_are_not_there(organized: pa.Organization, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none does not exist"):
        organized.save(tmp_path / "none" / "saved.npz")
    with pytest.raises(FileNotFoundError, match=r"saved\.npz does not exist"):
        pa.load(tmp_path / "saved.npz")


# -- damaged, foreign, newer -------------------------------------------------------------------------------------------


def _refused(path: Path) -> str:
    with pytest.raises(pa.DamagedFileError, match=path.name) as caught:
        pa.load(path)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_files_cut_short(path: Path) -> None:
    whole = path.read_bytes()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        path.write_bytes(whole[:length])
        _refused(path)


def _wrong(path: Path, expected: pa.Organization) -> str:
    """What is wrong with loading an altered file; nothing where it is refused, or where nothing changed."""
    try:
        return "" if _same(pa.load(path), expected) else "another organisation"
    except pa.DamagedFileError as error:
        return "" if path.name in str(error) else repr(error)
    except Exception as error:
        return repr(error)


def test_flipped_bytes_are_found_or_change_nothing(organized: pa.Organization, path: Path) -> None:
    whole = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    places = [*rng.integers(0, len(whole), 150).tolist(), *range(64), *range(len(whole) - 120, len(whole))]
    flips = [(place, whole[place] ^ int(rng.integers(1, 256))) for place in places]
    for entry in (i for i in range(len(whole)) if whole[i : i + 4] == b"PK\x01\x02"):
        flips += [(entry + 8, flag) for flag in (1, 32, 64)]  # encrypted, patched, strongly encrypted
        flips += [(entry + 10, method) for method in (1, 8, 12, 14, 99)]  # deflated and others
    wrong = {}
    for place, value in flips:
        altered = whole.copy()
        altered[place] = value
        path.write_bytes(altered)
        if text := _wrong(path, organized):
            wrong[place, value] = text
    assert not wrong


def test_foreign_files(path: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_text("no archive at all")
    _refused(foreign)
    foreign.write_bytes(pickle.dumps({"values": 1}))
    _refused(foreign)
    with foreign.open("wb") as file:
        np.save(file, np.zeros(3))
    _refused(foreign)
    with foreign.open("wb") as file:
        np.savez(file, a=np.zeros(3))
    _refused(foreign)
    with foreign.open("wb") as file:
        np.savez(file, about=np.array([object()], dtype=object))
    _refused(foreign)
    with zipfile.ZipFile(foreign, "w") as archive:
        archive.writestr("about.npy", b"")
    _refused(foreign)


def _altered(path: Path, change: Any) -> Path:
    """The file with another `about` or other arrays."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    about = json.loads(arrays.pop("about").tobytes())
    change(arrays, about)
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    with path.open("wb") as file:
        np.savez(file, **arrays)
    return path


def test_newer_versions_and_other_formats_are_named(path: Path) -> None:
    text = _refused(
        _altered(path, lambda arrays, about: about.update(format_version=FORMAT_VERSION + 1, pyattnorg="9.9"))
    )
    assert "9.9" in text
    assert "newer" in text
    assert "sonnets" in _refused(_altered(path, lambda arrays, about: about.update(format="sonnets")))


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays, about: arrays.pop("affinity_1"),
        lambda arrays, about: arrays.pop("tree_0_2"),
        lambda arrays, about: about.pop("heads"),
        lambda arrays, about: about.update(entropies=[]),
        lambda arrays, about: about.update(options={"depth": 3}),
        lambda arrays, about: about.update(options=None),
        lambda arrays, about: about.update(kind="sonnets"),
        lambda arrays, about: about.update(format_version="one"),
        lambda arrays, about: arrays.update(values=arrays["values"][:, :, 0]),
        lambda arrays, about: arrays.update(values=np.full_like(arrays["values"], np.nan)),
        lambda arrays, about: arrays.update(tree_0_0=np.array([[0, 1, 0], [0, 0, 1]])),
        lambda arrays, about: arrays.update(tree_1_0=arrays["tree_1_1"]),
        lambda arrays, about: arrays.update(distance_2=arrays["distance_2"][:2, :2]),
        lambda arrays, about: arrays.update(affinity_0=arrays["affinity_0"][0]),
        lambda arrays, about: arrays.update(affinity_0=arrays["affinity_0"] * np.nan),
        lambda arrays, about: arrays.update(distance_2=arrays["distance_2"] + np.inf),
    ],
)
def test_altered_content_is_refused(path: Path, change: Any) -> None:
    _refused(_altered(path, change))


def test_what_a_file_lacks_is_named(path: Path) -> None:
    _altered(path, lambda arrays, about: arrays.pop("values"))
    with pytest.raises(pa.DamagedFileError, match="it lacks 'values'"):
        pa.load(path)


def test_about_that_is_no_table(path: Path) -> None:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    for text in ("[]", "3", "null", "{", "\xff"):
        arrays["about"] = np.frombuffer(text.encode("latin-1"), np.uint8)
        with path.open("wb") as file:
            np.savez(file, **arrays)
        _refused(path)


def test_which_cells_are_real_comes_back(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((8, 8, 4))
    organized = pa.organize(pa.NetworkTensor(x, visible=np.tril(np.ones((8, 8), bool))), masked="floor", n_iter=1)
    organized.save(tmp_path / "o.npz")
    network = pa.load(tmp_path / "o.npz").network
    assert np.array_equal(network.visible_cells(), organized.network.visible_cells())
    assert network.meta["masked"] == "floor"
    assert np.isnan(network.shown(0)).sum() == 28
