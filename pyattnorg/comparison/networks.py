"""What is compared: networks, each on one input or several, and the size in which all of them are looked at."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyattnorg.checks import whole
from pyattnorg.network import NetworkTensor
from pyattnorg.organization import Organization

MOST = (64, 64, 72)  # queries, keys and heads of the common size, unless another one is asked for
AXES = ("queries", "keys", "heads")


@dataclass(frozen=True)
class Network:
    """A network on its inputs: tensors of one kind with the same heads."""

    name: str
    inputs: tuple[NetworkTensor, ...]

    @property
    def n_heads(self) -> int:
        return self.inputs[0].shape[2]


def read_networks(given: Sequence[Any], names: Sequence[str] | None) -> tuple[Network, ...]:
    """Networks as they were given, each a tensor, an organisation, or a list of these.

    Raises
    ------
    TypeError, ValueError
        Fewer than two, names that do not fit, a capture with several parts, different kinds of tensors.
    """
    if len(given) < 2:
        raise ValueError(f"networks: got {len(given)}, expected two or more to compare")
    found = tuple(_network(one, name) for one, name in zip(given, _names(given, names)))
    kinds = {tensor.kind for network in found for tensor in network.inputs}
    if len(kinds) > 1:
        said = ", ".join(f"{network.name} {network.inputs[0].kind}" for network in found)
        raise ValueError(f"networks: got different kinds ({said}), expected all scores or all weights")
    return found


def _names(given: Sequence[Any], names: Sequence[str] | None) -> list[str]:
    if names is None:
        return _told_names(given)
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise ValueError(f"names: got {names!r}, expected one for each of {len(given)} networks")
    found = [str(name) for name in names]
    if len(found) != len(given):
        raise ValueError(f"names: got {found}, expected one for each of {len(given)} networks")
    if len(set(found)) < len(found) or "" in found:
        raise ValueError(f"names: got {found}, expected different ones, none of them empty")
    return found


def _network(given: Any, name: str) -> Network:
    several = isinstance(given, (list, tuple))
    if several and not given:
        raise ValueError(f"{name}: got an empty list, expected a tensor for at least one input")
    tensors = tuple(_without_padding(_tensor(one, name, several), name) for one in (given if several else [given]))
    for at, tensor in enumerate(tensors):
        if tensor.labels != tensors[0].labels:
            here, those = (f"{len(t.labels)}, from {t.labels[0]} to {t.labels[-1]}" for t in (tensor, tensors[0]))
            raise ValueError(
                f"{name}: its inputs have different heads: input {at + 1} has {here}, input 1 {those}; expected the "
                "tensors of one network on several inputs, with the same heads in the same order; other networks are "
                "arguments of their own"
            )
    for first, second in repeated(tensors):
        warnings.warn(
            f"{name}: inputs {first + 1} and {second + 1} hold the same numbers; p values and intervals take them for "
            "two inputs and say too much. Give every input once",
            UserWarning,
            stacklevel=5,
        )
    return Network(name, tensors)


def _without_padding(tensor: NetworkTensor, name: str) -> NetworkTensor:
    """Self-attention without the tokens that no query of any head can see, as `pyattnorg.capture` gives it."""
    if not tensor.in_memory or tensor.visible is None or tensor.shape[0] != tensor.shape[1]:
        return tensor
    unseen = np.flatnonzero(~tensor.visible.any(0 if tensor.visible.ndim == 2 else (0, 2)))
    if len(unseen) == tensor.shape[1]:
        raise ValueError(f"{name}: visible: no cell is visible, so there is nothing to compare; check the mask")
    return tensor.without(unseen.tolist()) if len(unseen) else tensor


def repeated(tensors: Sequence[NetworkTensor]) -> list[tuple[int, int]]:
    """Inputs that are there twice: the first of equal ones with each other one. Heads are read one at a time."""
    like: dict[Any, list[int]] = {}
    found = []
    for at, tensor in enumerate(tensors if len(tensors) > 1 else ()):
        key = (tensor.shape, hashlib.sha256(tensor.head(0).tobytes()).digest())
        for other in like.setdefault(key, []):
            if tensor is tensors[other] or all(
                np.array_equal(tensor.head(i), tensors[other].head(i)) for i in range(1, len(tensor))
            ):
                found.append((other, at))
                break
        else:
            like[key].append(at)
    return found


def _tensor(one: Any, name: str, several: bool) -> NetworkTensor:
    if isinstance(one, Organization):
        return one.network
    if isinstance(one, NetworkTensor):
        return one
    if hasattr(one, "groups") and hasattr(one, "report"):
        raise TypeError(f"{name}: got a capture, expected one of its tensors: pass its .weights or .scores")
    if hasattr(one, "weights") and hasattr(one, "scores"):
        raise TypeError(f"{name}: got a part of a capture, expected one of its tensors: pass its .weights or .scores")
    if isinstance(one, (str, os.PathLike)):
        raise TypeError(f"{name}: got {one!r}, expected a tensor: capture a model, or load an organisation")
    if not hasattr(one, "__array__") and not hasattr(one, "__dlpack__") and not isinstance(one, (list, tuple)):
        raise TypeError(
            f"{name}: got {type(one).__name__}, expected a NetworkTensor, an Organization, an array (queries, keys, "
            "heads), or a list of these, one an input"
        )
    try:
        return NetworkTensor(one)
    except (TypeError, ValueError) as error:
        hint = "; a list is one network on several inputs" if several else ""
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"{name}: {error}{hint}") from None


def _told_names(given: Sequence[Any]) -> list[str]:
    """Names that the tensors bring along, where these tell the networks apart, or else letters."""
    told = []
    for one in given:
        first = one[0] if isinstance(one, (list, tuple)) and one else one
        first = first.network if isinstance(first, Organization) else first
        told.append(str(first.meta.get("model") or "") if isinstance(first, NetworkTensor) else "")
    if all(told) and len(set(told)) == len(told):
        return told
    return [chr(ord("a") + i) if len(given) <= 26 else f"network {i + 1}" for i in range(len(given))]


def common_size(networks: Sequence[Network], size: Sequence[int] | None) -> tuple[int, int, int]:
    """The size of all sub-tensors: as asked, or the least that is there of every axis, at most `MOST`."""
    shapes = np.array([tensor.shape for network in networks for tensor in network.inputs])
    least = [int(n) for n in shapes.min(0)]
    if size is None:
        q, k, h = (min(n, most) for n, most in zip(least, MOST))
        return q, k, h
    if isinstance(size, (str, bytes)) or not hasattr(size, "__getitem__") or np.shape(size) != (3,):
        raise ValueError(f"size: got {size!r}, expected (queries, keys, heads)")
    q, k, h = (whole(n, "size", at_least=1) for n in size)
    for asked, there, axis in zip((q, k, h), least, AXES):
        if asked > there:
            raise ValueError(f"size: got {asked} {axis}, the smallest network has {there}; ask for no more")
    return q, k, h


def are_shared(networks: Sequence[Network], shared: bool | None) -> bool:
    """Whether all networks were given the same tokens: as said, or where names of tokens show it.

    Names of squares of an image (r0c0) are those of any image: there ``meta["input"]`` has to be the same, too.

    Raises
    ------
    ValueError
        It was said, but numbers of inputs or of tokens differ.
    """
    shared = _said(shared, "shared")
    first = networks[0].inputs
    fits = all(
        len(network.inputs) == len(first) and all(a.shape[:2] == b.shape[:2] for a, b in zip(first, network.inputs))
        for network in networks
    )
    if shared is None:
        return fits and all(
            a.queries is not None
            and a.queries == b.queries
            and a.keys is not None
            and a.keys == b.keys
            and (not _are_places(a.queries) or ("input" in a.meta and a.meta["input"] == b.meta.get("input")))
            for network in networks
            for a, b in zip(first, network.inputs)
        )
    if shared and not fits:
        raise ValueError("shared: got True, but the networks have different numbers of inputs or of tokens")
    return shared


def _said(value: bool | None, name: str) -> bool | None:
    if value is not None and not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name}: got {value!r}, expected True, False or None")
    return None if value is None else bool(value)


def _are_places(names: Sequence[str]) -> bool:
    """Whether names say where a token is, as those of squares of an image do, and not what it is."""
    return any(re.fullmatch(r"r\d+c\d+", name) for name in names)


def are_paired(networks: Sequence[Network], paired: bool | None, *, shared: bool) -> bool:
    """Whether input i is the same for all networks, whatever its tokens: as said, where shared, or as ``meta`` tells.

    Raises
    ------
    ValueError
        It was said, but numbers of inputs differ.
    """
    paired = _said(paired, "paired")
    if len({len(network.inputs) for network in networks}) > 1:
        if paired:
            raise ValueError(
                f"paired: got True, but the networks have {[len(network.inputs) for network in networks]} inputs"
            )
        return False
    if paired is not None:
        return paired
    told = [[tensor.meta.get("input") for tensor in network.inputs] for network in networks]
    return shared or (None not in told[0] and all(one == told[0] for one in told))
