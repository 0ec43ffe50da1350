"""Writing a capture to disk while the model runs: layer by layer, each whole or not there.

A store is a Zarr v3 hierarchy. `layers/00003` holds the maps of the fourth call, made under `.partial` and renamed when
its last byte is on the disk; nothing is changed afterwards. The root's attributes say whose attention it is and, at the
end, that it is complete. A capture that was killed leaves whole layers; the next one with the same model, input and
options finds them, computes the others, and ends with the very bytes that an uninterrupted one would have written.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pyattnorg.capture.codec import encode
from pyattnorg.capture.errors import CaptureError
from pyattnorg.capture.files import (
    CHUNK,
    META,
    StoredArray,
    canonical,
    create_array,
    digest,
    locked,
    need_zarr,
    read_json,
    sync_folder,
    sync_tree,
    write_group,
)
from pyattnorg.capture.record import Record
from pyattnorg.capture.stored import FORMAT, VERSION, layer_folder, read_layer, read_root

if TYPE_CHECKING:
    from torch import Tensor

    from pyattnorg.capture.keeping import Keeping
    from pyattnorg.capture.slots import Slot
    from pyattnorg.capture.tokens import Naming

PARTIAL = ".partial"


class Writer:
    """Writes one store. Use it with ``with``; what was written stays when something fails, but for a capture's refusal.

    Parameters
    ----------
    path : Path
        The store's folder. It may not be there, be empty, or hold an unfinished capture of the same `job`.
    job : mapping
        What the capture is of; see `identity`.
    overwrite : bool
        Replace a capture that is there.
    """

    def __init__(self, path: Path, job: Mapping[str, Any], *, overwrite: bool = False) -> None:
        need_zarr()
        self.path, self.job = path, dict(job)
        self._overwrite = overwrite
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Writer:
        self._made = not self.path.exists()
        try:
            self.path.mkdir(exist_ok=True)
        except FileExistsError:
            raise FileExistsError(f"store: {self.path} is a file, expected a folder of a capture, or none") from None
        except FileNotFoundError:
            raise FileNotFoundError(f"store: the folder {self.path.parent} does not exist; make it first") from None
        _refuse_foreign(self.path)
        self._stack.enter_context(locked(self.path))
        try:
            self._begin()
        except BaseException:
            self._stack.close()
            if self._made:
                shutil.rmtree(self.path, ignore_errors=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._stack.close()
        if isinstance(error, CaptureError) and self._made:
            shutil.rmtree(self.path, ignore_errors=True)  # it would be refused again: nothing to complete

    def _begin(self) -> None:
        if self._overwrite:
            for name in (META, "layers", PARTIAL):  # the root first: without it nothing passes for a capture
                with contextlib.suppress(FileNotFoundError):
                    (self.path / META).unlink() if name == META else shutil.rmtree(self.path / name)
        shutil.rmtree(self.path / PARTIAL, ignore_errors=True)
        if (self.path / META).exists():
            about = read_root(self.path)
            if about["complete"]:
                raise FileExistsError(f"store: {self.path} holds a finished capture; pass overwrite=True to replace it")
            refuse_other_job(self.path, about["job"], self.job)
        else:
            shutil.rmtree(self.path / "layers", ignore_errors=True)
            write_group(self.path, {"pyattnorg": self._about(complete=False)})
        (self.path / "layers").mkdir(exist_ok=True)
        write_group(self.path / "layers", {})
        self._found = 0
        while layer_folder(self.path, self._found).exists():
            self._found += 1
        self._digests: list[str] = []

    def _about(self, **more: Any) -> dict[str, Any]:
        about = {"format": FORMAT, "format_version": VERSION, "job": self.job} | more
        return about | {"digest": digest(canonical(about))}

    # -- layers -------------------------------------------------------------------------------------------------------

    def stored(self, index: int, slot: Slot) -> Record | None:
        """The record of call `index`, if an earlier run has written it; refuse one that is of something else."""
        if index >= self._found:
            return None
        record, stamp = read_layer(self.path, index)
        ours = (slot.scene.place.module, slot.layer, slot.shape, slot.heads.tolist())
        theirs = (record.place.module, record.layer, record.shape, record.heads.tolist())
        if ours != theirs:
            raise CaptureError(
                f"store: {layer_folder(self.path, index)} holds layer {theirs[1]} of {theirs[0]!r} with maps of "
                f"{theirs[2]}, the model now gives layer {ours[1]} of {ours[0]!r} with {ours[2]}; it is another "
                "capture's, write to another folder or pass overwrite=True"
            )
        self._digests.append(stamp)
        return record

    def shelf(self, index: int, slot: Slot, keeping: Keeping) -> StoreShelf:
        """Where the maps of call `index` go."""
        folder = self.path / PARTIAL / layer_folder(self.path, index).name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        rows = max(1, min(slot.kept_shape[1], CHUNK // slot.shape[2]))
        return StoreShelf(folder, slot.kept_shape, rows, keeping.dtype)

    def write(self, index: int, record: Record) -> Record:
        """Finish call `index`, whose maps are on its shelf already, and give back what reads it."""
        target = layer_folder(self.path, index)
        folder = self.path / PARTIAL / target.name
        seconds, record.row["seconds"] = record.row["seconds"], None  # what differs from run to run is not written
        written = encode(record, lambda name, array: _put(folder, name, array))
        arrays = sorted(p.parent.name for p in folder.glob(f"*/{META}"))
        metas = {name: digest((folder / name / META).read_text(encoding="utf-8")) for name in arrays}
        about = {"record": written, "arrays": metas}
        stamp = digest(canonical(about))
        write_group(folder, {"pyattnorg": about | {"digest": stamp}})
        sync_tree(folder)
        os.rename(folder, target)
        sync_folder(target.parent)
        self._digests.append(stamp)
        found, _ = read_layer(self.path, index)
        found.row["seconds"] = seconds
        return found

    def finish(self, naming: Naming, model: str) -> None:
        """Say that all is there."""
        shutil.rmtree(self.path / PARTIAL, ignore_errors=True)
        if len(self._digests) < self._found:
            raise CaptureError(
                f"store: {self.path} holds {self._found} layers, the model gave {len(self._digests)}; they are another "
                "capture's, write to another folder or pass overwrite=True"
            )
        more = {"naming": encode(naming), "model": model, "layers": self._digests}
        write_group(self.path, {"pyattnorg": self._about(complete=True, **more)})


class StoreShelf:
    """Takes the maps of a layer block by block into files: a shelf, see `shelf`."""

    lazy = True

    def __init__(self, folder: Path, shape: tuple[int, int, int], rows: int, dtype: str | None) -> None:
        self._folder, self._shape, self._rows, self._dtype = folder, shape, rows, dtype
        self._arrays: dict[str, Any] = {}

    def put(self, kind: str, heads: slice, rows: slice, values: Tensor) -> None:
        """Write a block."""
        from pyattnorg.capture.maths import wide

        x = wide(values.detach()).cpu().numpy()
        if kind not in self._arrays:
            dtype = self._dtype or str(x.dtype)
            self._arrays[kind] = create_array(self._folder / kind, self._shape, dtype, (1, self._rows, self._shape[2]))
        self._arrays[kind][heads, rows, :] = x

    def take(self) -> dict[str, Any]:
        """The arrays as they will be read."""
        return {kind: StoredArray(self._folder / kind) for kind in self._arrays}


def _put(folder: Path, name: str, array: Any) -> bool:
    """Write an array of a record into its layer's folder, unless it is small or there already."""
    if isinstance(array, StoredArray):
        return True
    if array.ndim < 2 or not array.size:
        return False
    rows = max(1, min(array.shape[-2], CHUNK // array.shape[-1]))
    chunks = (*(1 for _ in array.shape[:-2]), rows, array.shape[-1])
    create_array(folder / name, array.shape, str(array.dtype), chunks)[...] = np.ascontiguousarray(array)
    return True


def _refuse_foreign(path: Path) -> None:
    """Refuse a folder that holds something else than a capture, finished or not."""
    ours = {META, "layers", PARTIAL, ".lock", f".{META}.new"}
    others = sorted(p.name for p in path.iterdir() if p.name not in ours)
    if others:
        raise FileExistsError(f"store: {path} holds {others[0]!r}, expected a folder of a capture, or an empty one")
    if (path / META).exists() and "pyattnorg" not in read_json(path / META).get("attributes", {}):
        raise FileExistsError(f"store: {path / META} is of another Zarr store; write to another folder")


def refuse_other_job(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any], *, finished: bool = False) -> None:
    """Refuse to go on with (or to take for ours) a capture of something else, and say of what."""
    names = [name for name in {**theirs, **ours} if not (finished and name in ("threads", "libraries"))]
    for name in names:
        a, b = theirs.get(name), ours.get(name)
        if a != b:
            digests = isinstance(a, str) and isinstance(b, str) and len(a) == len(b) == 64
            said = "" if digests else f" ({_short(a, b)} there, {_short(b, a)} now)"
            raise FileExistsError(
                f"store: {path} holds a capture of another {name}{said}; write to another folder, or pass "
                "overwrite=True to replace it"
            )


def _short(value: Any, other: Any) -> str:
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        value = {k: v for k, v in value.items() if other.get(k) != v}
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


__all__ = ["StoreShelf", "Writer", "refuse_other_job"]
