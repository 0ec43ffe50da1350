"""What the user gave as inputs, as arguments of the model's forward: text and images are encoded on the way."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyattnorg.capture.models import LoadedModel, tokenizer_of
from pyattnorg.capture.sound import is_sound, sound_arguments
from pyattnorg.checks import whole

# Arguments that tokenizers and processors give as lists or NumPy arrays unless they are asked for tensors.
_TABLES = {
    "input_ids", "attention_mask", "token_type_ids", "position_ids", "decoder_input_ids", "decoder_attention_mask",
    "labels", "pixel_values", "input_values", "input_features",
}  # fmt: skip
UNKNOWN_AT_MOST = 0.5  # share of tokens that the tokenizer does not know


@dataclass(frozen=True)
class Call:
    """Arguments of a forward, and what is known of its tokens."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    example: int | None = None
    tokens: tuple[str, ...] | None = None
    special_ids: frozenset[int] = frozenset()


def prepare(
    model: Any,
    inputs: Any,
    *,
    loaded: LoadedModel | None = None,
    tokenizer: Any = None,
    processor: Any = None,
    example: int | None = None,
    max_length: int | None = None,
) -> Call:
    """Arguments of ``model(…)`` for these inputs.

    A mapping goes in as keyword arguments, a tuple or list of tensors as positional ones, a tensor as the only one;
    NumPy arrays, and the lists that tokenizers give without ``return_tensors``, become tensors.
    Sound (the path of a WAV file, samples, or a dict of ``audio`` and ``text``) goes to models of sound that were
    loaded by name. Text is tokenised; of several texts only the one picked by `example`, so that no padding changes it.
    An image is prepared by the model's own processor.
    """
    if max_length is not None:
        max_length = whole(max_length, "max_length", at_least=1)
    example = checked_example(example)
    if loaded is not None and loaded.takes_sound and is_sound(inputs):
        kwargs, names = sound_arguments(inputs, loaded)
        return Call(kwargs=kwargs, tokens=names)
    if isinstance(inputs, Path) and not (loaded is not None and loaded.takes_images):
        raise TypeError(f"inputs: got the path {str(inputs)!r} for a model of text, expected the text itself")
    if isinstance(inputs, (str, Path)) and loaded is not None and loaded.takes_images and processor is None:
        return _image(model, _open(inputs), loaded.image_processor, example)
    if isinstance(inputs, str) or (
        isinstance(inputs, (list, tuple)) and inputs and all(isinstance(t, str) for t in inputs)
    ):
        return _text(model, inputs, loaded, tokenizer, example, max_length)
    if _is_image(inputs) or isinstance(inputs, Path):
        processor = processor if processor is not None or loaded is None else loaded.image_processor
        if processor is None:
            raise ValueError("inputs: got an image and no processor, expected processor= or a model loaded by its name")
        return _image(model, _open(inputs) if isinstance(inputs, Path) else inputs, processor, example)
    if isinstance(inputs, Mapping) or (hasattr(inputs, "keys") and hasattr(inputs, "__getitem__")):
        kwargs = {str(name): inputs[name] for name in inputs.keys()}  # noqa: SIM118  # a BatchEncoding is no Mapping
        kwargs = {name: _argument(model, name, x) for name, x in kwargs.items()}
        return Call(kwargs=kwargs, example=example, tokens=_tokens_of(inputs, kwargs, example))
    if isinstance(inputs, (tuple, list)):
        if not inputs:
            raise ValueError(f"inputs: got an empty {type(inputs).__name__}, expected the arguments of the model")
        if _is_numbers(inputs):
            return Call(args=(_with_batch(model, _table(inputs)),), example=example)
        return Call(args=tuple(_argument(model, "", x) for x in inputs), example=example)
    if inputs is None or isinstance(inputs, (bool, int, float, bytes, set)):
        raise TypeError(f"inputs: got {type(inputs).__name__}, expected text, a tensor, a tuple or a dict of arguments")
    return Call(args=(_with_batch(model, _as_tensor(inputs)),), example=example)


def checked_example(example: Any) -> int | None:
    """`example` as an int, counted from either end."""
    if example is None:
        return None
    if isinstance(example, (bool, str)) or not hasattr(example, "__index__"):
        raise TypeError(f"example: got {example!r}, expected a whole number: which example of the batch")
    return int(example)


def _is_numbers(x: Any) -> bool:
    """Whether these are numbers in lists, such as token ids that a tokenizer gave without ``return_tensors``."""
    if isinstance(x, (list, tuple)):
        return bool(x) and all(_is_numbers(y) for y in x)
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def _table(x: Any) -> Any:
    import torch

    try:
        return torch.tensor(x)
    except ValueError:
        raise ValueError(
            "inputs: got lists of different lengths, expected one table; pad them and pass the attention_mask too, or "
            "give them to capture_each() one by one"
        ) from None


def _argument(model: Any, name: str, x: Any) -> Any:
    """A NumPy array, or numbers in lists where they are known to be a table, as a tensor where the model is."""
    import numpy as np

    listed = name in _TABLES and _is_numbers(x)
    if not listed and not (isinstance(x, np.ndarray) and x.dtype.kind in "fiub"):
        return x
    made = _table(x) if listed else _as_tensor(x)
    first = next(iter(model.parameters()), None)
    if first is not None:
        made = made.to(first.device, first.dtype if made.is_floating_point() else None)
    return _with_batch(model, made) if listed else made


def _with_batch(model: Any, x: Any) -> Any:
    """Ids of one text get the axis of a batch where the model is known to want it."""
    wants = getattr(model, "main_input_name", None) == "input_ids" and hasattr(model, "config")
    flat = wants and getattr(x, "ndim", 0) == 1 and hasattr(x, "is_floating_point") and not x.is_floating_point()
    return x[None] if flat else x


def _as_tensor(x: Any) -> Any:
    import numpy as np

    if isinstance(x, np.ndarray):
        import torch

        # a copy: torch takes no array of another byte order, and warns of one that may not be written to
        return torch.from_numpy(np.array(x, x.dtype.newbyteorder("="), order="C"))
    return x


def _text(
    model: Any, texts: Any, loaded: LoadedModel | None, tokenizer: Any, example: int | None, max_length: int | None
) -> Call:
    texts = [texts] if isinstance(texts, str) else list(texts)
    if example is None and len(texts) > 1:
        raise ValueError(f"inputs: got {len(texts)} texts, expected one; pick it with example=0 to {len(texts) - 1}")
    if example is not None and not -len(texts) <= example < len(texts):
        raise ValueError(f"example: got {example}, there are {len(texts)} text(s), counted from 0")
    text = texts[example or 0]
    if tokenizer is None:
        tokenizer = loaded.tokenizer if loaded is not None else tokenizer_of(model)
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise ValueError(
            "inputs: the text has half a surrogate pair, which is no character; decode it with the right codec"
        )
    cut: dict[str, Any] = {} if max_length is None else {"truncation": True, "max_length": max_length}
    encoded = tokenizer(text, return_tensors="pt", **({"verbose": False} | cut))
    n = int(encoded["input_ids"].shape[1])
    if n == 0:
        raise ValueError("inputs: got a text without tokens, expected at least one")
    if max_length is not None and n > max_length:
        raise ValueError(
            f"max_length: got {max_length}, the tokenizer gives {n} tokens at least, special ones included"
        )
    _check_known(tokenizer, encoded["input_ids"][0].tolist())
    limit = _longest(model, tokenizer)
    if limit is not None and n > limit:
        raise ValueError(
            f"inputs: the text has {n} tokens, the model sees at most {limit}; cut it with max_length={limit}"
        )
    names = [str(t) for t in tokenizer.convert_ids_to_tokens(encoded["input_ids"][0].tolist())]
    device = _device(model)
    accepted = _accepted(model)
    kwargs = {k: v.to(device) for k, v in encoded.items() if accepted is None or k in accepted}
    return Call(kwargs=kwargs, tokens=tuple(names), special_ids=special_ids(tokenizer))


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Ids of a tokenizer's special tokens; none without a tokenizer that knows of any."""
    found = getattr(tokenizer, "all_special_ids", ())
    return frozenset(int(i) for i in found) if isinstance(found, (list, tuple, set)) else frozenset()


def _check_known(tokenizer: Any, ids: list[int]) -> None:
    """Refuse a text that the tokenizer cannot read: transformers makes one up where a folder brings none."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is None:
        return
    special = set(getattr(tokenizer, "all_special_ids", ())) - {unknown}
    told = [i for i in ids if i not in special]
    share = sum(i == unknown for i in told) / max(len(told), 1)
    if share > UNKNOWN_AT_MOST:
        raise ValueError(
            f"inputs: {share:.0%} of the text's {len(told)} tokens are unknown ({tokenizer.unk_token}) to it: "
            "the text is not of the tokenizer's kind, or that needs code of its own; pass token ids instead"
        )


def _longest(model: Any, tokenizer: Any) -> int | None:
    said = [getattr(tokenizer, "model_max_length", None), getattr(_text_config(model), "max_position_embeddings", None)]
    lengths = [n for n in said if isinstance(n, int) and 0 < n < 10**9]
    return min(lengths) if lengths else None


def _text_config(model: Any) -> Any:
    config = getattr(model, "config", None)
    return getattr(config, "text_config", None) or config


def _accepted(model: Any) -> set[str] | None:
    """Names that forward takes; None if it takes any, or cannot be asked."""
    try:
        parameters = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):
        return None
    # families that take **kwargs still refuse names they do not know of, so only those that are named are passed
    names = set(parameters)
    return names if "input_ids" in names else None


def _image(model: Any, image: Any, processor: Any, example: int | None) -> Call:
    if example not in (None, 0, -1):
        raise ValueError(f"example: got {example}, there is one image, counted from 0")
    made = processor(image)
    pixels = made["pixel_values"] if hasattr(made, "keys") else made
    first = next(iter(model.parameters()), None)
    if isinstance(pixels, (list, tuple)):
        pixels = pixels[0]
    pixels = _as_tensor(pixels)
    pixels = pixels[None] if pixels.ndim == 3 else pixels
    if first is not None:
        pixels = pixels.to(first.device, first.dtype)
    return Call(args=(pixels,)) if not hasattr(made, "keys") else Call(kwargs={"pixel_values": pixels})


def _open(path: str | Path) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("inputs: opening an image needs Pillow; pip install pillow") from None
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except OSError as error:
        raise ValueError(f"inputs: {str(path)!r} could not be opened as an image ({error})") from None


def _is_image(x: Any) -> bool:
    return any(base.__module__.startswith("PIL.") and base.__name__ == "Image" for base in type(x).__mro__)


def _device(model: Any) -> Any:
    first = next(iter(model.parameters()), None)
    return "cpu" if first is None else first.device


def _tokens_of(inputs: Any, kwargs: Mapping[str, Any], example: int | None) -> tuple[str, ...] | None:
    """Names of the tokens where a fast tokenizer's encoding still knows them."""
    tokens = getattr(inputs, "tokens", None)
    ids = kwargs.get("input_ids")
    if not callable(tokens) or ids is None or not getattr(inputs, "is_fast", False):
        return None
    try:
        names: Sequence[str] = tokens(example or 0)
    except (ValueError, IndexError):
        return None
    return tuple(str(t) for t in names) if len(names) == ids.shape[-1] else None


__all__ = ["Call", "prepare"]
