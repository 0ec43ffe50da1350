"""Models by name: a transformers id or folder, or ``timm/NAME``, loaded as those libraries do."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pyattnorg.capture.errors import CaptureError

_SOUND = ("input_features", "input_values")


@dataclass
class LoadedModel:
    """A model with what prepares its inputs, each loaded when first asked for."""

    model: Any
    name: str
    library: str  # "transformers" or "timm"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def takes_images(self) -> bool:
        """Whether the model's input is an image."""
        return self.library == "timm" or getattr(self.model, "main_input_name", "") == "pixel_values"

    @property
    def takes_sound(self) -> bool:
        """Whether the model's input is a recording."""
        return self.library == "transformers" and getattr(self.model, "main_input_name", "") in _SOUND

    @cached_property
    def feature_extractor(self) -> Any:
        """What turns sound into the model's input."""
        transformers = need("transformers", "hf")
        return _load(
            lambda: transformers.AutoFeatureExtractor.from_pretrained(self.name, **self.options),
            "feature extractor",
            self.name,
        )

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer that belongs to it."""
        if self.library == "timm":
            raise ValueError(f"inputs: {self.name!r} is a vision model, expected an image or a tensor, got text")
        transformers = need("transformers", "hf")
        return _load(
            lambda: transformers.AutoTokenizer.from_pretrained(self.name, **self.options), "tokenizer", self.name
        )

    @cached_property
    def image_processor(self) -> Any:
        """What turns an image into the model's input."""
        if self.library == "timm":
            data = need("timm.data", "timm")
            config = data.resolve_model_data_config(self.model)
            return data.create_transform(**config, is_training=False)
        transformers = need("transformers", "hf")

        def load() -> Any:
            processor = transformers.AutoImageProcessor.from_pretrained(self.name, **self.options)
            return lambda image: processor(image, return_tensors="pt")

        return _load(load, "processor", self.name)


def load_model(
    name: str | os.PathLike[str],
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    device: Any = None,
    dtype: Any = None,
) -> LoadedModel:
    """Load a model for capture, in evaluation mode.

    Parameters
    ----------
    name : str or path
        A folder or id that transformers loads, or ``timm/NAME``. Offline settings of those libraries are respected.
    revision, trust_remote_code, device, dtype :
        As transformers spells them; `dtype` may be a name such as ``"bfloat16"``. Nothing is moved or cast by default.
        ``device="auto"`` is the GPU where torch finds one.

    Returns
    -------
    LoadedModel

    Raises
    ------
    ImportError
        The library is missing; the message says how to install it.
    ValueError
        There is no such model here, its attention weights are missing, or there is no such device.
    """
    text = os.fspath(name)
    if not text:
        raise ValueError("model: got an empty name, expected a transformers id, a folder, or 'timm/NAME'")
    dtype = dtype_of(dtype)
    device = device_of(device)  # before minutes of loading
    if text.startswith("timm/"):
        loaded = LoadedModel(_timm(text.removeprefix("timm/")), text, "timm")
    else:
        options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
        options |= {} if revision is None else {"revision": revision}
        loaded = LoadedModel(_transformers(text, dtype, options), text, "transformers", options)
    place(loaded.model, device, dtype if loaded.library == "timm" else None)
    loaded.model.eval()
    return loaded


def dtype_of(dtype: Any) -> Any:
    """The torch dtype of this name; None and "auto" are no dtypes and stay what they are."""
    torch = need("torch", "torch")
    if not isinstance(dtype, str) or dtype == "auto":
        return dtype
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"dtype: got {dtype!r}, expected a torch dtype such as 'float32' or 'bfloat16'")
    return found


def device_of(device: Any) -> Any:
    """The torch device that is meant; None is no device and stays what it is, "auto" is a GPU or None."""
    torch = need("torch", "torch")
    if device is None:
        return None
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda") if torch.cuda.is_available() else None
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"device: got {device!r}, expected a torch device such as 'cpu' or 'cuda'") from None
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        there = torch.cuda.device_count() or "no"
        raise ValueError(f"device: got {device!r}, but torch finds {there} CUDA GPU(s) here; use device='cpu'")
    return found


def place(model: Any, device: Any, dtype: Any) -> None:
    """Move a model to a device and cast it; None leaves it alone, and so does the dtype "auto"."""
    asked = {"device": device_of(device), "dtype": None if dtype == "auto" else dtype}
    asked = {name: value for name, value in asked.items() if value is not None}
    if not asked:
        return
    try:
        model.to(**asked)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # a build without it, no driver, no room
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        what = " and ".join(f"{name}={str(value)!r}" for name, value in asked.items())
        raise ValueError(f"device: the model could not be put to {what} ({said}); use device='cpu'") from error


def opened(model: Any, load: dict[str, Any], door: str = "capture") -> tuple[LoadedModel | None, Any]:
    """What came as `model`, loaded if it is a name: (with what prepares its inputs, the model itself)."""
    loaded = model if isinstance(model, LoadedModel) else None
    if isinstance(model, str) or hasattr(model, "__fspath__"):
        options = {"dtype" if name == "torch_dtype" else name: value for name, value in load.items()}
        loaded = load_model(model, **options)
    elif load:
        raise TypeError(f"{door}: unexpected argument(s) {sorted(load)}; loading options go with a model's name")
    return loaded, model if loaded is None else loaded.model


def tokenizer_of(model: Any) -> Any:
    """The tokenizer of a transformers model that was loaded by name."""
    name = getattr(model, "name_or_path", "") or ""
    if not isinstance(name, str) or not name:
        raise ValueError(
            f"inputs: got text for a {type(model).__name__} without a tokenizer, expected tokenizer=, or token ids"
        )
    return LoadedModel(model, name, "transformers").tokenizer


def _timm(name: str) -> Any:
    timm = need("timm", "timm")
    if not name:
        raise ValueError("model: got 'timm/', expected 'timm/NAME' such as 'timm/vit_small_patch14_dinov2'")
    if not name.startswith(("hf_hub:", "hf-hub:")) and not timm.is_model(name):
        alike = timm.list_models(f"*{name.split('.')[0].split('_')[0]}*")[:3]
        near = f", such as {', '.join(alike)}" if alike else "; timm.list_models() lists them"
        raise ValueError(f"model: timm knows no {name!r}, expected one of its names{near}")
    return _load(lambda: timm.create_model(name, pretrained=True), "model", f"timm/{name}")


def _transformers(name: str, dtype: Any, options: dict[str, Any]) -> Any:
    transformers = need("transformers", "hf")
    looks_like_path = name.startswith((".", "/", "~")) or Path(name).exists()
    folder = Path(name).expanduser()
    if looks_like_path and not (folder / "config.json").is_file():
        raise ValueError(f"model: {name!r} has no config.json, expected a folder that transformers saved, or an id")
    if (folder / PRUNED).is_file():
        raise ValueError(
            f"model: {name!r} holds a pruned model, whose sizes transformers refuses; load it with "
            "pyattnorg.load_pruned and pass what comes out, with its tokenizer"
        )
    name = str(folder) if looks_like_path else name
    config = _load(lambda: transformers.AutoConfig.from_pretrained(name, **options), "configuration", name)
    # the class that was saved takes every weight, heads included; a class of remote code is found by the Auto classes
    saved = next(iter(getattr(config, "architectures", None) or []), "")
    cls = None if options["trust_remote_code"] else getattr(transformers, saved, None) if saved else None
    if cls is None:
        causal = saved.endswith(("ForCausalLM", "LMHeadModel"))
        cls = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    extra = {} if dtype is None else {"dtype": dtype}
    with quiet():
        model, info = _load(
            lambda: cls.from_pretrained(name, output_loading_info=True, **options, **extra), "model", name
        )
    lost = sorted(k for k in info.get("missing_keys", ()) if "attn" in k.lower() or "attention" in k.lower())
    if lost:
        raise CaptureError(
            f"model: {name!r} lacks weights of {type(model).__name__}'s attention, such as {lost[0]!r} ({len(lost)} in "
            "all), which would be random; expected a complete checkpoint"
        )
    return model


PRUNED = "pyattnorg_pruned.json"  # in the folder of a pruned model, beside its weights


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and load reports of transformers: what matters of them is checked here."""
    log = need("transformers", "hf").utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def need(name: str, extra: str) -> Any:
    """Import a library, or say how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        top = name.split(".")[0]
        raise ImportError(
            f"model: {top} is needed and could not be imported ({error}); pip install 'pyattnorg[{extra}]'"
        ) from None


def _load(load: Any, what: str, name: str) -> Any:
    try:
        return load()
    except Exception as error:  # these libraries raise many kinds, their own included
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        first = (lines[0] if lines else type(error).__name__).split(". ")[0][:300]
        said = (os.environ.get(v, "").upper() for v in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
        offline = any(value in ("1", "TRUE", "YES", "ON") for value in said)
        hint = (
            "; the libraries are set to be offline, so it must be in their cache or a local folder" if offline else ""
        )
        kind = ImportError if isinstance(error, ImportError) else ValueError
        raise kind(f"model: the {what} of {name!r} could not be loaded ({first}){hint}") from error


__all__ = ["LoadedModel", "load_model", "need", "opened", "quiet", "tokenizer_of"]
