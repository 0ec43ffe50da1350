"""Saving and loading an organisation: one .npz file of plain arrays and a JSON text, no pickle."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pyattnorg._version import __version__
from pyattnorg.arrays import FloatArray, plain, require_finite
from pyattnorg.checks import DamagedFileError
from pyattnorg.compression.container import MAGIC
from pyattnorg.network import NetworkTensor
from pyattnorg.organization import Organization
from pyattnorg.questionnaire import Questionnaire
from pyattnorg.trees import PartitionTree

NUMPY = b"\x93NUMPY"
FORMAT = "pyattnorg organization"
FORMAT_VERSION = 1


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], None], *, overwrite: bool) -> None:
    """Write a file under a temporary name and rename it, so that it is whole or not there.

    Raises
    ------
    FileExistsError
        The file is there and `overwrite` is False.
    IsADirectoryError, OSError
        It is a folder, or a device or a pipe, which a file must not take the place of.
    FileNotFoundError
        Its folder is not there.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"path: {target} is a folder, expected the name of a file")
    if target.exists() and not target.is_file():
        raise OSError(f"path: {target} is a device or a pipe, expected the name of a file")
    if target.exists() and not overwrite:
        raise FileExistsError(f"path: {target} exists; pass overwrite=True to replace it")
    if target.is_symlink():
        target = target.resolve()  # the link stays, what it points to is replaced
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path: the folder {target.parent} does not exist; make it first")
    name = str(target.with_name(f".{target.name[:40]}.{secrets.token_hex(6)}"))
    # Opened so, it has the permissions of any new file; to ask for the umask is to change it, for all threads.
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.replace(name, target)
    except BaseException as error:
        os.unlink(name)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:  # such as a full disk
            raise OSError(error.errno, os.strerror(error.errno), str(target)) from None
        raise


def save(organization: Organization, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write an organisation; `load` reads it back."""
    network, fitted = organization.network, organization.questionnaire
    arrays: dict[str, Any] = {"values": network.values}
    if network.visible is not None:
        arrays["visible"] = network.visible
    for axis in range(3):
        arrays[f"affinity_{axis}"] = fitted.affinities_[axis]
        arrays[f"distance_{axis}"] = fitted.distances_[axis]
        for i, iteration in enumerate(fitted.history_):
            arrays[f"tree_{i}_{axis}"] = iteration["trees"][axis].labels
        for i, tree in enumerate(fitted.forests_[axis] if fitted.n_trees > 1 else ()):
            arrays[f"forest_{i}_{axis}"] = tree.labels
    about = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "pyattnorg": __version__,
        "kind": network.kind,
        "heads": network.heads.to_dict(),
        "queries": network.queries,
        "keys": network.keys,
        "meta": network.meta,
        "options": {name: _written(option) for name, option in fitted.get_params().items()},
        "entropies": [iteration["entropy"] for iteration in fitted.history_],
        "moved": [iteration["moved"] for iteration in fitted.history_],
        "converged": fitted.converged_,
        "tree_kinds": fitted.tree_kinds_,
    }
    try:
        text = json.dumps(about, default=plain)
    except (TypeError, ValueError) as error:
        raise TypeError(f"network.meta: cannot be written as JSON ({error}); keep plain values there") from None
    arrays["about"] = np.frombuffer(text.encode(), np.uint8)
    write_atomically(path, lambda file: np.savez(file, **arrays), overwrite=overwrite)


def _written(option: Any) -> Any:
    """An option as JSON has it. A function, such as one of folder weights, leaves its name: fitting anew refuses it."""
    if isinstance(option, (list, tuple)):
        return [_written(one) for one in option]
    return f"function {getattr(option, '__qualname__', option)}" if callable(option) else option


def load(path: str | os.PathLike[str]) -> Any:
    """Read what `Organization.save` or `Compressed.save` wrote: an Organization, or a Compressed.

    Of a compressed tensor only the header is read at first.

    Raises
    ------
    FileNotFoundError
        No such file.
    DamagedFileError
        A file that is cut short, altered, or of another kind or version; a ValueError.
    """
    target = Path(path)
    if not target.exists():
        raise FileNotFoundError(f"path: {target} does not exist")
    if target.is_dir():
        raise DamagedFileError(
            f"{target} is a folder; if it is the store of a capture, pyattnorg.load_capture reads it"
        )
    try:
        with open(target, "rb") as opened:
            begins = opened.read(len(MAGIC))
        if begins == MAGIC:
            from pyattnorg.compression.compressed import Compressed

            return Compressed(target)
        if begins.startswith(NUMPY):
            raise ValueError("it is the NumPy file of one array; numpy.load reads it")
        with open(target, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = _Arrays({name: file[name] for name in file.files})
        if "about" not in arrays:
            raise ValueError("it holds other arrays")
        about = json.loads(arrays.pop("about").tobytes())
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']!r}")
        if about["format_version"] > FORMAT_VERSION:
            raise ValueError(f"it was written by pyattnorg {about['pyattnorg']}, which is newer; upgrade to read it")
        return _restored(arrays, about)
    except (PermissionError, DamagedFileError):
        raise
    except Exception as error:  # whatever bytes make zipfile, numpy and json stumble over, it is the file that is wrong
        raise DamagedFileError(f"{target} is no readable pyattnorg organisation: {error}") from None


def _restored(arrays: dict[str, Any], about: dict[str, Any]) -> Organization:
    network = NetworkTensor(
        arrays["values"],
        kind=about["kind"],
        visible=arrays.get("visible"),
        heads=about["heads"],
        queries=about["queries"],
        keys=about["keys"],
        meta=about["meta"],
    )
    options: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in about["options"].items()}
    fitted = Questionnaire(**options)
    unknown = [[None] * 3] * len(about["entropies"])  # of files written before it was kept
    fitted.history_ = [
        {"trees": _trees(arrays, f"tree_{i}"), "entropy": entropy, "moved": tuple(moved)}
        for i, (entropy, moved) in enumerate(zip(about["entropies"], about.get("moved", unknown)))
    ]
    for iteration in fitted.history_:
        if tuple(tree.n_leaves for tree in iteration["trees"]) != network.shape:
            raise ValueError("its trees do not fit its values")
    fitted.trees_ = fitted.history_[-1]["trees"]
    several = [_trees(arrays, f"forest_{i}") for i in range(fitted.n_trees)] if fitted.n_trees > 1 else [fitted.trees_]
    fitted.forests_ = tuple(zip(*several))
    fitted.affinities_ = tuple(_square(arrays, f"affinity_{axis}", n) for axis, n in enumerate(network.shape))
    fitted.distances_ = tuple(_square(arrays, f"distance_{axis}", n) for axis, n in enumerate(network.shape))
    told = options["tree"] if isinstance(options["tree"], tuple) else (options["tree"],) * 3  # files of before
    fitted.tree_kinds_ = tuple(about.get("tree_kinds", told))
    fitted.n_iter_, fitted.converged_ = len(fitted.history_), bool(about["converged"])
    fitted._values = network.values
    return Organization(network, fitted)


def _trees(arrays: dict[str, Any], name: str) -> tuple[PartitionTree, ...]:
    return tuple(PartitionTree.from_labels(arrays[f"{name}_{axis}"]) for axis in range(3))


def _square(arrays: dict[str, Any], name: str, n: int) -> FloatArray:
    found: FloatArray = arrays[name]
    if found.shape != (n, n) or found.dtype.kind != "f":
        raise ValueError(f"its {name} has shape {found.shape}, expected ({n}, {n})")
    require_finite(found, f"its {name}")
    return found


class _Arrays(dict[str, Any]):
    """Arrays by name; one that is not there is missing from the file."""

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"it lacks {name!r}")
