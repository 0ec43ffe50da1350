"""Records and what names their tokens, as JSON; arrays that are not small go to a store of their own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pyattnorg.capture.passes import Inputs
from pyattnorg.capture.qk import QueriesKeys
from pyattnorg.capture.record import Place, Record
from pyattnorg.capture.spans import Spans
from pyattnorg.capture.tokens import Naming, Patches, Vocabulary

_CLASSES: dict[str, Any] = {
    cls.__name__: cls for cls in (Inputs, Naming, Patches, Place, QueriesKeys, Record, Spans, Vocabulary)
}
# One JSON object with this key stands for what JSON does not have; what it holds says for what.
MARK = "is"

Put = Callable[[str, Any], bool]
Get = Callable[[str], Any]


def encode(value: Any, put: Put | None = None, name: str = "") -> Any:
    """`value` as JSON. ``put(name, array)`` may take an array and say so; others are written out."""
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return number if math.isfinite(number) else {MARK: "float", "text": repr(number)}
    if isinstance(value, np.integer):
        return int(value)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        if put is not None and put(name, value):
            return {MARK: "array", "name": name}
        return {MARK: "values", "dtype": str(value.dtype), "shape": list(value.shape), "flat": _flat(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        if type(value).__name__ not in _CLASSES:
            raise TypeError(f"{type(value).__name__} is not written to a store")
        inside = {k: encode(v, put, f"{name}.{k}".lstrip(".")) for k, v in fields.items()}
        return {MARK: type(value).__name__, "fields": inside}
    if isinstance(value, Mapping):
        return {MARK: "dict", "items": [[encode(k), encode(v, put, f"{name}.{k}")] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {MARK: "tuple", "items": [encode(v, put, f"{name}.{i}") for i, v in enumerate(value)]}
    if isinstance(value, list):
        return [encode(v, put, f"{name}.{i}") for i, v in enumerate(value)]
    raise TypeError(f"{name or 'value'}: {type(value).__name__} cannot be written to a store")


def decode(value: Any, get: Get | None = None) -> Any:
    """What `encode` made JSON of; ``get(name)`` gives the arrays that were put away."""
    if isinstance(value, list):
        return [decode(v, get) for v in value]
    if not isinstance(value, dict):
        return value
    kind = value[MARK]
    if kind == "float":
        return float(value["text"])
    if kind == "array":
        assert get is not None
        return get(value["name"])
    if kind == "values":
        return np.array(value["flat"], dtype=value["dtype"]).reshape(value["shape"])
    if kind == "dict":
        return {decode(k): decode(v, get) for k, v in value["items"]}
    if kind == "tuple":
        return tuple(decode(v, get) for v in value["items"])
    return _CLASSES[kind](**{k: decode(v, get) for k, v in value["fields"].items()})


def _flat(array: Any) -> list[Any]:
    flat: list[Any] = np.asarray(array).reshape(-1).tolist()
    if array.dtype.kind not in "bi" and not np.isfinite(array).all():
        raise TypeError("an array with NaN or infinities is not written out as JSON")
    return flat


__all__ = ["Get", "Put", "decode", "encode"]
