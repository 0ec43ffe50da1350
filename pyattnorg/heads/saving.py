"""Pruned models on disk: the model's own files, and a small JSON that says which heads are gone."""

from __future__ import annotations

import contextlib
import errno
import inspect
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from pyattnorg.capture.models import PRUNED as FILE
from pyattnorg.capture.models import LoadedModel, need, quiet
from pyattnorg.checks import DamagedFileError
from pyattnorg.heads.anatomy import anatomies, sizes

if TYPE_CHECKING:
    from pyattnorg.heads.surgery import Plan

RECORD = "pyattnorg_pruned"  # an attribute of a pruned model
FORMAT, VERSION = "pyattnorg pruned heads", 1
_WEIGHTS = "model.safetensors"


def records_of(model: nn.Module, plans: list[Plan]) -> dict[str, dict[str, Any]]:
    """What is gone of every module, in the numbers of the model before it was ever pruned."""
    record: dict[str, dict[str, Any]] = {k: dict(v) for k, v in getattr(model, RECORD, {}).items()}
    for plan in plans:
        one = plan.anatomy
        old = record.get(one.path, {"heads": one.heads, "kept": list(range(one.heads)), "zeroed": [], "bias": False})
        record[one.path] = {
            "heads": old["heads"],
            "kept": [old["kept"][h] for h in plan.kept],
            "zeroed": sorted({*old["zeroed"], *(old["kept"][h] for h in plan.zeroed)}),
            "bias": bool(old["bias"]) or plan.shift is not None,
        }
    return record


def save_pruned(model: Any, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a pruned model to a folder, from which `load_pruned` reads it.

    A transformers model is written by its own ``save_pretrained``, any other as ``model.safetensors``; beside it lies
    ``pyattnorg_pruned.json``, which says which heads every module kept. (`from_pretrained` alone refuses the folder, as
    sizes differ.) Of a LoadedModel the tokenizer, or what prepares its images, is written too, so that the command line
    reads the folder as it reads any other.

    Everything is written beside the folder and then put into it, so that a disk that is full leaves what was there.

    Raises
    ------
    FileExistsError
        The folder holds something and `overwrite` is False.
    ValueError
        The model was not pruned.
    """
    net = model.model if isinstance(model, LoadedModel) else model
    record = getattr(net, RECORD, None)
    if not record:
        raise ValueError(f"model: this {type(net).__name__} was not pruned by prune_heads; use its own way of saving")
    path = Path(folder)
    if path.is_file() or (path.is_dir() and any(path.iterdir()) and not overwrite):
        raise FileExistsError(f"folder: {path} is there already; choose another one, or pass overwrite=True")
    own = hasattr(net, "save_pretrained") and hasattr(net, "config")
    about: dict[str, Any] = {
        "format": FORMAT, "version": VERSION, "class": type(net).__name__,
        "library": "transformers" if own else "torch", "modules": record,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as name:
        part = Path(name)
        try:
            _write(model, net, part, own)
            files = sorted(str(file.relative_to(part)) for file in part.rglob("*") if file.is_file())
            about["weights"] = [file for file in files if file.endswith(".safetensors")]
            (part / FILE).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        except Exception as error:  # safetensors has an error class of its own
            if "No space left" in str(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from None
            raise
        (path / FILE).unlink(missing_ok=True)  # what is half replaced is no pruned model
        for file in [*files, FILE]:
            (path / file).parent.mkdir(parents=True, exist_ok=True)
            os.replace(part / file, path / file)


def _write(model: Any, net: nn.Module, path: Path, own: bool) -> None:
    """Weights, configuration and what reads the inputs."""
    if not own:
        need("safetensors.torch", "store").save_model(net, str(path / _WEIGHTS))
        return
    named = "save_original_format" in inspect.signature(net.save_pretrained).parameters
    with quiet():  # weights under the names that the model has, not those of an older release
        net.save_pretrained(path, **({"save_original_format": False} if named else {}))
        if isinstance(model, LoadedModel):
            _save_reader(model, path)


def _save_reader(loaded: LoadedModel, path: Path) -> None:
    """Write what reads the model's inputs, if it has that."""
    transformers = need("transformers", "hf")
    kinds = [transformers.AutoImageProcessor if loaded.takes_images else transformers.AutoTokenizer]
    kinds += [transformers.AutoFeatureExtractor] if loaded.takes_sound else []
    for kind in kinds:
        with contextlib.suppress(OSError, ValueError, ImportError):  # none is there: the model is whole without
            kind.from_pretrained(loaded.name, **loaded.options).save_pretrained(path)


def load_pruned(folder: str | os.PathLike[str], model: nn.Module | None = None) -> Any:
    """Read a model that `save_pruned` wrote, in evaluation mode.

    Parameters
    ----------
    folder : path
    model : torch.nn.Module, optional
        The model before pruning (its weights are replaced), for those that are not of transformers.

    Raises
    ------
    DamagedFileError
        Files that are missing, or do not go together.
    ValueError
        A model is needed and was not given.
    """
    path = Path(folder)
    about = _read(path / FILE)
    if model is None:
        model = _build(path, about)
    _prune_alike(model, about["modules"], path)
    _fill(model, path, about.get("weights"))
    setattr(model, RECORD, about["modules"])
    return model.eval()


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise FileNotFoundError(f"folder: {file} does not exist; expected a folder that save_pruned wrote")
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        good = about["format"] == FORMAT and isinstance(about["modules"], dict)
    except (ValueError, KeyError, TypeError):
        good, about = False, {}
    if not good:
        raise DamagedFileError(f"{file}: is not what save_pruned writes")
    if about["version"] != VERSION:
        raise DamagedFileError(f"{file}: has version {about['version']}, this pyattnorg reads version {VERSION}")
    return dict(about)


def _build(path: Path, about: Mapping[str, Any]) -> Any:
    """The transformers model as it was before it was pruned; its weights are still to come."""
    if about["library"] != "transformers":
        raise ValueError(f"model: {path} holds a {about['class']} that is not of transformers; pass it as model=")
    transformers = need("transformers", "hf")
    cls = getattr(transformers, about["class"], None)
    if cls is None:
        raise ValueError(f"model: transformers has no {about['class']}; build it and pass it as model=")
    config = transformers.AutoConfig.from_pretrained(path)
    with quiet():
        return cls._from_config(config)


def _prune_alike(model: nn.Module, modules: Mapping[str, Any], path: Path) -> None:
    from pyattnorg.heads.removed import like
    from pyattnorg.heads.surgery import Plan, Surgery

    there = {one.path: one for one in anatomies(model)}
    surgery = Surgery(model)
    for name, about in modules.items():
        one = there.get(name)
        if one is None or one.heads != about["heads"]:
            raise DamagedFileError(
                f"{path / FILE}: says that {name!r} had {about['heads']} heads; the model has no such"
            )
        out = one.out[1]
        bias = like(out.weight.device, out.weight.dtype, sizes(out)[1]) if about["bias"] else None
        plan = Plan(one, tuple(about["kept"]), (), bias)
        surgery.operate(plan)
        surgery.cut_sinks(plan)


def _fill(model: nn.Module, path: Path, weights: Sequence[str] | None) -> None:
    load_file = need("safetensors.torch", "store").load_file
    files = sorted(path.glob("*.safetensors")) if weights is None else [path / str(name) for name in weights]
    if not files:
        raise DamagedFileError(f"{path}: holds no weights (*.safetensors)")
    state: dict[str, Any] = {}
    for file in files:
        try:
            state.update(load_file(str(file)))
        except Exception as error:  # safetensors has an error class of its own
            raise DamagedFileError(f"{file}: cannot be read ({error})") from None
    first = next(iter(state.values()), None)
    if first is not None and first.is_floating_point():
        model.to(first.dtype)
    try:
        lost = model.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise DamagedFileError(
            f"{path}: its weights do not fit what {FILE} says ({str(error).splitlines()[-1]})"
        ) from None
    tie = getattr(model, "tie_weights", None)
    if callable(tie):
        tie()
    stored = {id(p) for name, p in model.named_parameters(remove_duplicate=False) if name in state}
    missing = [
        n for n in lost.missing_keys if id(dict(model.named_parameters(remove_duplicate=False)).get(n)) not in stored
    ]
    if missing or lost.unexpected_keys:
        odd = (missing or list(lost.unexpected_keys))[0]
        raise DamagedFileError(f"{path}: its weights do not fit what {FILE} says; {odd!r} is on one side only")


__all__ = ["FILE", "RECORD", "load_pruned", "records_of", "save_pruned"]
