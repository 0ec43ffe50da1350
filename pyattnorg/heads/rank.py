"""Ranking heads: how much each is to be kept, by its maps, its place in the head tree, its output and its gradients."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from pyattnorg.capture.api import capture
from pyattnorg.capture.inputs import Call
from pyattnorg.capture.models import load_model
from pyattnorg.capture.result import Capture
from pyattnorg.capture.running import refuse_wrapped, unwrap
from pyattnorg.checks import one_of, whole
from pyattnorg.head_table import Heads
from pyattnorg.heads.effects import Loss
from pyattnorg.heads.gradients import effects_of
from pyattnorg.heads.maps import map_numbers, organised_numbers
from pyattnorg.heads.outputs import output_norms, weight_norms
from pyattnorg.heads.ranking import HeadRanking
from pyattnorg.heads.tables import calls_of, heads_of, network_of
from pyattnorg.heads.twins import removal_order
from pyattnorg.network import NetworkTensor

Array = NDArray[np.float64]

ORGANISATION = ("involvement", "sparsity", "fine", "distance", "alone")
MAPS = ("confidence", "attention_entropy", "sink")
BASELINES = ("random", "confidence", "attention_entropy", "gradient", "norm")
MEASURES = (*ORGANISATION, "folders", *MAPS, "output", "norm", "gradient", "gradient_again", "twins", "random")
STAGES = 10


def rank_heads(
    model: Any,
    inputs: Any,
    *,
    by: str | Sequence[str] | None = None,
    loss: Loss | None = None,
    stages: int = STAGES,
    seed: int = 0,
    **organize: Any,
) -> HeadRanking:
    """Scores of every head by several measures, the larger the more it is to be kept.

    Parameters
    ----------
    model : torch.nn.Module, LoadedModel, or name or folder of a model
    inputs : one example or a list of them, as `capture` takes it
        Without padding; of tensors that are batches, the first example's maps are looked at.
    by : names of measures, optional
        All without it, but for ``norm`` where a model's weights are not understood, which is said in a warning.
        From the organisation of each input's weights (arXiv 2506.15541): ``involvement`` (bi-Haar l1 entropy over
        the coarsest functions), ``sparsity`` (minus the l1 entropy of all), ``fine`` (energy at fine scales),
        ``distance`` (tree distance to the nearest head: twins go first), ``alone`` (levels of the head tree at which
        it has a folder of its own), ``folders`` (the levels at which it has the largest gradient of its folder: what
        the tree calls a twin goes first, level by level).
        From the maps: ``sink`` (mass that is not on the first token), ``confidence``, ``attention_entropy``.
        From outputs and weights: ``output`` (how much it adds to the stream), ``norm`` (value and output weights).
        From gradients: ``gradient`` (Michel et al. 2019, arXiv 1905.10650), ``gradient_again`` (the same, taken anew
        each time a share of the heads has gone), ``twins`` (the order in which heads are to go if those with effects
        that others have, or undo, go first; see `pyattnorg.heads.twins.removal_order`).
        And ``random``.
    loss : callable, optional
        ``loss(output, call)`` of one call, for gradients. The default is the next token's negative log-likelihood where
        the model has one logit a token, else random projections of its first output.
    stages : int
        How often ``twins`` and ``gradient_again`` take gradients anew.
    seed : int
        Of ``random`` and of projections.
    **organize
        Options of `pyattnorg.organize`.

    Returns
    -------
    HeadRanking
        With the spread over inputs, raw and per-layer normalised.
    """
    names = MEASURES if by is None else (by,) if isinstance(by, str) else tuple(dict.fromkeys(by))
    for name in names:
        one_of(name, "by", MEASURES)
    if not names:
        raise ValueError("by: got no measure, expected at least one")
    stages, seed = whole(stages, "stages", at_least=1), whole(seed, "seed", at_least=0)
    if loss is not None and not callable(loss):
        raise TypeError(f"loss: got {type(loss).__name__}, expected a function of the model's output and its call")
    if isinstance(model, (str, os.PathLike)):
        model = load_model(model)
    refuse_wrapped(network_of(model))
    net = unwrap(network_of(model))
    calls = calls_of(model, inputs)
    captures, table = _captured(net, calls, every=bool(set(names) & {*ORGANISATION, *MAPS, "folders"}))
    values: dict[str, Array] = {}
    if "norm" in names:
        values["norm"] = weight_norms(net, table)[None]
        if np.isnan(values["norm"]).any():
            lost = table.labels[int(np.isnan(values["norm"][0]).argmax())]
            why = f"'norm' needs weights that are understood, and those of {lost} are not"
            if by is not None:
                raise ValueError(f"by: {why}; leave it out")
            warnings.warn(f"by: {why}; it is left out", RuntimeWarning, stacklevel=2)
            names = tuple(name for name in names if name != "norm")
    values |= _of_outputs(net, calls, table, names, loss, stages, seed)
    values |= _of_maps(captures, table, names, organize, values.get("gradient"))
    for name in names:
        if not np.isfinite(values[name]).all():
            odd = table.labels[int(np.argmin(np.isfinite(values[name]).all(0)))]
            raise ValueError(
                f"by: {name!r} is NaN or infinite for {odd}; look at loss= and at the model's number format"
            )
    return HeadRanking(table, {name: values[name] for name in names})


def _captured(net: nn.Module, calls: Sequence[Call], *, every: bool) -> tuple[list[Capture], Heads]:
    """Weights of the first example of each call (of the first call only, if just the table of heads is wanted)."""
    found = []
    for call in calls if every else calls[:1]:
        given: Any = call.kwargs if call.kwargs else call.args
        found.append(capture(net, given, keep=("weights",), example=0, check_padding=False))
    table = heads_of(found[0])
    for number, other in enumerate(found):
        if heads_of(other).labels != table.labels:
            raise ValueError(f"inputs: example {number} has other heads than the first; give examples of one size")
    return found, table


def _of_maps(
    captures: list[Capture], table: Heads, names: Sequence[str], options: dict[str, Any], gradient: Array | None
) -> dict[str, Array]:
    worth = np.zeros(len(table)) if gradient is None else gradient.mean(0)
    at = {key: i for i, key in enumerate(zip(table.module, table.layer.tolist(), table.head.tolist()))}

    def organised(network: NetworkTensor) -> dict[str, Array]:
        keys = zip(network.heads.module, network.heads.layer.tolist(), network.heads.head.tolist())
        return organised_numbers(network, np.array([worth[at[key]] for key in keys]), **options)

    out: dict[str, Array] = {}
    kinds: tuple[tuple[tuple[str, ...], Callable[[NetworkTensor], dict[str, Array]]], ...]
    kinds = ((MAPS, map_numbers), ((*ORGANISATION, "folders"), organised))
    for measures, numbers in kinds:
        if set(names) & set(measures):
            rows = [_whole_heads(found, numbers) for found in captures]
            out |= {name: np.stack([row[name] for row in rows]) for name in measures}
    return out


def _whole_heads(found: Capture, numbers: Callable[[NetworkTensor], dict[str, Array]]) -> dict[str, Array]:
    """Numbers of all groups in the order of `heads_of`; a head in windows has the mean of its windows."""
    columns: dict[str, list[Array]] = {}
    for group in found.groups.values():
        network = group.weights
        heads = network.heads
        keys = list(zip(heads.layer.tolist(), heads.head.tolist(), heads.module))
        first = [key for key, window in zip(keys, heads.window.tolist()) if window <= 0]
        at = {key: i for i, key in enumerate(first)}
        owner = np.array([at[key] for key in keys])
        for name, column in numbers(network).items():
            mean = np.bincount(owner, column, len(first)) / np.bincount(owner, minlength=len(first))
            columns.setdefault(name, []).append(mean)
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def _of_outputs(
    net: nn.Module, calls: Sequence[Call], table: Heads, names: Sequence[str], loss: Loss | None, stages: int, seed: int
) -> dict[str, Array]:
    out: dict[str, Array] = {}
    if "random" in names:
        out["random"] = np.random.default_rng(seed).random((1, len(table)))
    if "output" in names:
        out["output"] = np.stack([output_norms(net, call, table) for call in calls])

    def effects(gone: Sequence[int]) -> Array:
        return effects_of(net, calls, table, loss, seed, gone)

    if {"gradient", "folders"} & set(names):
        first = effects(())
        out["gradient"] = np.abs(first).reshape(len(table), len(calls), -1).mean(2).T
    for name, together in (("twins", True), ("gradient_again", False)):
        if name in names:
            order = removal_order(effects, len(table), stages, together=together)
            out[name] = np.empty((1, len(table)))
            out[name][0, order] = np.arange(len(table)) / len(table)
    return out


__all__ = ["BASELINES", "MEASURES", "ORGANISATION", "rank_heads"]
