"""The files of a store: Zarr v3 arrays with checksums, JSON with digests, and every doubt about them said by name."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.checks import DamagedFileError

META = "zarr.json"
CHUNK = 1 << 22  # cells of a chunk at most: 16 MB of float32


def need_zarr() -> Any:
    """The zarr library, or how to install it."""
    try:
        zarr = importlib.import_module("zarr")
    except ImportError as error:
        raise ImportError(
            f"store: zarr is needed and could not be imported ({error}); pip install 'pyattnorg[store]'"
        ) from None
    if int(str(zarr.__version__).split(".")[0]) < 3:
        raise ImportError(f"store: zarr {zarr.__version__} is too old, expected 3 or newer; pip install -U zarr")
    return zarr


def create_array(path: Path, shape: tuple[int, ...], dtype: str, chunks: tuple[int, ...]) -> Any:
    """A new Zarr v3 array: little endian, zstd, CRC-32C after every chunk, and every chunk written."""
    zarr = need_zarr()
    codecs = importlib.import_module("zarr.codecs")
    return zarr.create_array(
        store=str(path), shape=shape, dtype=dtype, chunks=chunks, fill_value=0, zarr_format=3, filters=None,
        compressors=[codecs.ZstdCodec(level=1), codecs.Crc32cCodec()], config={"write_empty_chunks": True},
    )  # fmt: skip


class StoredArray:
    """An array of a store, read when it is asked for and only where.

    `shape` is (heads, queries, keys) of maps with chunks of one head; any other array is read as a whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        about = read_json(path / META)
        try:
            self.shape: tuple[int, ...] = tuple(int(n) for n in about["shape"])
            self._chunks = tuple(int(n) for n in about["chunk_grid"]["configuration"]["chunk_shape"])
            self.dtype: np.dtype[Any] = np.dtype(about["data_type"])
            if about["zarr_format"] != 3 or len(self._chunks) != len(self.shape):
                raise ValueError("its chunks do not fit its shape")
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(f"{path / META} describes no array of a capture ({error})") from None
        self._array: Any = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_array": None}

    def check(self) -> None:
        """Raise if a chunk's file is not there: zarr would read zeros in its place."""
        ranges = [range(-(-n // c)) for n, c in zip(self.shape, self._chunks, strict=True)]
        for index in np.ndindex(*(len(r) for r in ranges)):
            self._file(index)

    def head(self, i: int, rows: slice = slice(None)) -> NDArray[Any]:
        """One head of maps, or some rows of it; chunks that hold none of them are not read."""
        start, stop, step = rows.indices(self.shape[1])
        at = range(start, stop, step)
        out = np.empty((len(at), *self.shape[2:]), self.dtype)
        if not len(at):
            return out
        low, high = min(at[0], at[-1]), max(at[0], at[-1]) + 1
        whole = np.empty((high - low, *self.shape[2:]), self.dtype)
        size = self._chunks[1]
        for block in range(low // size, -(-high // size)):
            a, b = max(block * size, low), min((block + 1) * size, high)
            index = (i, block, *(0 for _ in self.shape[2:]))
            whole[a - low : b - low] = self._read((i, slice(a, b)), index)
        return whole if step == 1 else whole[np.array(at) - low]

    def read(self) -> NDArray[Any]:
        """The whole array."""
        self.check()
        return np.asarray(self._read(Ellipsis, None))

    def _read(self, what: Any, chunk: tuple[int, ...] | None) -> Any:
        file = self.path if chunk is None else self._file(chunk)
        try:
            if self._array is None:
                self._array = need_zarr().open_array(str(self.path), mode="r", zarr_format=3)
            return self._array[what]
        except (ImportError, MemoryError, PermissionError):
            raise
        except Exception as error:  # whatever bytes make codecs stumble over, it is the file that is wrong
            raise DamagedFileError(f"{file} is damaged: {str(error) or type(error).__name__}") from None

    def _file(self, index: tuple[int, ...]) -> Path:
        file = self.path.joinpath("c", *(str(i) for i in index))
        if not file.is_file():
            raise DamagedFileError(f"{file} is missing from its store; copy it there, or capture again")
        return file


def digest(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(value: Any) -> str:
    """JSON that is the same for the same value."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


def write_group(folder: Path, attributes: Any) -> None:
    """Make `folder` a Zarr group with these attributes: its file is whole or as it was."""
    text = json.dumps(
        {"zarr_format": 3, "node_type": "group", "attributes": attributes}, sort_keys=True, ensure_ascii=False,
        allow_nan=False, indent=1,
    )  # fmt: skip
    target, made = folder / META, folder / f".{META}.new"
    with open(made, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(made, target)
    sync_folder(folder)


def read_json(path: Path) -> Any:
    """A JSON object."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DamagedFileError(f"{path} is missing from its store; copy it there, or capture again") from None
    except ValueError as error:
        raise DamagedFileError(f"{path} is damaged: no JSON ({error})") from None
    if not isinstance(found, dict):
        raise DamagedFileError(f"{path} is damaged: no JSON object")
    return found


def sync_tree(folder: Path) -> None:
    """Have everything in a folder written to the disk, so that renaming it never comes before its content."""
    for where, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(where, name), "rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(where))


def sync_folder(folder: Path) -> None:
    """Have the names in a folder written to the disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from writing to a store meanwhile; the system gives the lock back when one is killed."""
    try:
        import fcntl
    except ImportError:  # not on every system; there, two writers are the user's to avoid
        yield
        return
    file = open(folder / ".lock", "a")  # noqa: SIM115  # closed below, after its name is gone
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BlockingIOError(f"store: {folder} is being written by another process; wait for it") from None
        yield
        with contextlib.suppress(OSError):
            os.unlink(folder / ".lock")
    finally:
        file.close()


def store_path(store: Any) -> Path:
    """The folder that ``store=`` names."""
    if not isinstance(store, (str, os.PathLike)):
        raise TypeError(f"store: got {type(store).__name__}, expected the path of a folder")
    if not os.fspath(store):
        raise ValueError("store: got an empty path, expected that of a folder")
    return Path(store)


__all__ = [
    "CHUNK", "META", "StoredArray", "canonical", "create_array", "digest", "locked", "need_zarr", "read_json",
    "store_path", "sync_folder", "sync_tree", "write_group",
]  # fmt: skip
