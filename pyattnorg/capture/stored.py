"""Reading a capture from disk: what it is of at once, its maps head by head."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyattnorg.capture.codec import decode
from pyattnorg.capture.files import META, StoredArray, canonical, digest, read_json
from pyattnorg.capture.record import Record
from pyattnorg.capture.result import Capture, build
from pyattnorg.checks import DamagedFileError

FORMAT = "pyattnorg capture"
VERSION = 1


def load_capture(path: str | os.PathLike[str]) -> Capture:
    """Open the store of a capture that was written with ``capture(…, store=path)``.

    Its report, tokens and table of heads are read at once, its maps head by head when they are asked for: a network of
    any size opens in little memory. Checksums are looked at as chunks are read.

    Parameters
    ----------
    path : str or path
        The store's folder.

    Returns
    -------
    Capture
        ``capture.store`` says what it is of: model, revision, hashes of weights, tokenizer and input, libraries.

    Raises
    ------
    FileNotFoundError
        There is no such folder.
    DamagedFileError
        (A ValueError.) A file that is missing, altered or of another kind, or a capture that was not finished; the
        message names the file and says what to do.
    """
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"path: {folder} does not exist")
    if not folder.is_dir():
        raise DamagedFileError(
            f"{folder} is a file, expected the folder of a capture; pyattnorg.load reads organisations"
        )
    if (folder / "examples.json").is_file() and not (folder / META).exists():
        raise DamagedFileError(f"{folder} holds captures of many examples; pyattnorg.load_each reads them")
    about = read_root(folder)
    if not about["complete"]:
        raise DamagedFileError(
            f"{folder} holds a capture that was not finished; run the same capture with store= again to complete it"
        )
    records = []
    for index, stamp in enumerate(about["layers"]):
        record, found = read_layer(folder, index)
        if found != stamp:
            raise DamagedFileError(f"{layer_folder(folder, index) / META} is another capture's: its digest differs")
        records.append(record)
    try:
        naming = decode(about["naming"])
        store = {"path": str(folder), **about["job"]}
        return build(records, naming, about["model"], None, about.get("left_out", ()), store)
    except (KeyError, TypeError, IndexError) as error:
        raise DamagedFileError(f"{folder / META} is damaged: {error}") from None


def layer_folder(path: Path, index: int) -> Path:
    """Where the record of a call is."""
    return path / "layers" / f"{index:05d}"


def read_root(path: Path) -> dict[str, Any]:
    """What a store says of itself, checked."""
    if not (path / META).is_file():
        raise DamagedFileError(f"{path} is no store of a capture: it has no {META}")
    about = _attributes(path)
    if about is None or about.get("format") != FORMAT:
        raise DamagedFileError(f"{path / META} is no capture's: another program wrote it")
    if not isinstance(about.get("format_version"), int) or about["format_version"] > VERSION:
        raise DamagedFileError(f"{path / META} was written by a newer pyattnorg; upgrade to read it")
    return _undamaged(about, path / META)


def read_layer(path: Path, index: int) -> tuple[Record, str]:
    """The record of a call and its digest; its files are there, and their metadata are what they were."""
    folder = layer_folder(path, index)
    about = _attributes(folder)
    if about is None:
        raise DamagedFileError(f"{folder / META} is no capture's: another program wrote it")
    stamp = about.get("digest")
    about = _undamaged(about, folder / META)
    arrays: dict[str, StoredArray] = {}
    for name, told in about["arrays"].items():
        meta = folder / name / META
        found = StoredArray(folder / name)
        if digest(meta.read_text(encoding="utf-8")) != told:
            raise DamagedFileError(f"{meta} is damaged: its digest differs")
        found.check()
        arrays[name] = found
    try:
        record = decode(about["record"], arrays.__getitem__)
        if not isinstance(record, Record):
            raise TypeError("it holds no record")
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(f"{folder / META} is damaged, or of a newer pyattnorg: {error}") from None
    return record, str(stamp)


def _attributes(folder: Path) -> dict[str, Any] | None:
    attributes = read_json(folder / META).get("attributes")
    found = attributes.get("pyattnorg") if isinstance(attributes, dict) else None
    return found if isinstance(found, dict) else None


def _undamaged(about: dict[str, Any], file: Path) -> dict[str, Any]:
    about = dict(about)
    if about.pop("digest", None) != digest(canonical(about)):
        raise DamagedFileError(f"{file} is damaged: its digest differs")
    return about


__all__ = ["FORMAT", "VERSION", "layer_folder", "load_capture", "read_layer", "read_root"]
