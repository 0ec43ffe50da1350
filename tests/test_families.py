"""Every family is captured right: output untouched, softmax of scores is weights, masks, labels, nothing left behind.

The table of supported attention classes in docs/models.md is written from what is seen here:
``PYATTNORG_WRITE_TABLE=1 pytest tests/test_families.py``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("timm")
import torch
import transformers
from capture_models import softmax
from families import FAMILIES, Family
from torch import nn
from torch.nn.modules import module as module_hooks

from pyattnorg.capture import Capture, capture

PAGE = Path(__file__).parents[1] / "docs" / "models.md"
START, END = "<!-- table of attention classes: written by tests/test_families.py -->", "<!-- end of table -->"

OLD = int(transformers.__version__.split(".")[0]) < 5  # outside CI
Row = tuple[str, str, str, str, str]  # library, attention class, how it is seen, model, trait
SEEN: dict[str, list[Row]] = {}


def traces(model: nn.Module) -> list[Any]:
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    everywhere = [len(v) for k, v in vars(module_hooks).items() if k.startswith("_global_") and hasattr(v, "__len__")]
    return [hooks, everywhere, [sorted(vars(m)) for m in model.modules()], torch._C._len_torch_function_stack()]


def tensors(x: Any) -> list[torch.Tensor]:
    if isinstance(x, torch.Tensor):
        return [x]
    items = x.values() if hasattr(x, "values") else x if isinstance(x, (list, tuple)) else ()
    return [t for item in items for t in tensors(item)]


def forward(model: nn.Module, given: dict[str, Any]) -> list[torch.Tensor]:
    with torch.no_grad():
        return [t.clone() for t in tensors(model(**given))]


def mask_of(kind: str, n: int) -> np.ndarray[Any, Any]:
    """Visible cells (n, n) of "full", "causal", "causal 4", "band 2"."""
    name, _, width = kind.partition(" ")
    i, j = np.ogrid[:n, :n]
    if name == "causal":
        return (j <= i) & (i - j < int(width or n))
    return np.abs(i - j) <= int(width or n)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f"{f.library}-{f.name}")
def test_family(family: Family) -> None:
    if OLD and not hasattr(transformers, family.name) and family.library == "transformers":
        pytest.skip(f"transformers {transformers.__version__} has no {family.name}")
    model, given = family.make(), family.inputs()
    before, left = forward(model, given), traces(model)
    got = capture(model, given, example=1, verify=True)
    assert traces(model) == left
    after = forward(model, given)
    assert len(before) == len(after)
    assert all(a.dtype == b.dtype and bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in zip(before, after))

    shapes = {name: (*g.shape[:2], g.shape[2]) for name, g in got.groups.items()}
    # names of modules, which groups go by, were others before transformers 5
    assert shapes == family.groups or (OLD and sorted(shapes.values()) == sorted(family.groups.values()))
    check_numbers(family, got)
    check_masks(family, got)
    check_labels(family, got, model)
    alone = capture(model, {k: v[1:2] if isinstance(v, torch.Tensor) else v for k, v in given.items()})
    for name, group in got.groups.items():
        other = alone[name].weights
        assert other.labels == group.weights.labels
        np.testing.assert_allclose(other.values, group.weights.values, atol=3e-4)
    SEEN[family.name] = rows_of(family, got, model)


def check_numbers(family: Family, got: Capture) -> None:
    for group in got.groups.values():
        seen = group.weights.visible_cells()
        weights = group.weights.values
        assert np.isfinite(group.scores.values[seen]).all()
        mass = weights.sum(1, keepdims=True)
        some = seen.any(1, keepdims=True)
        if family.softmax:
            np.testing.assert_allclose(mass[some], 1, atol=1e-5)
        else:
            assert (mass < 1).all()
        again = softmax(group.scores.values, seen) * (1 if family.softmax else mass)
        np.testing.assert_allclose(np.where(some, again, 0), weights, atol=2e-5)
        flat = weights.max() < 1.02 / group.shape[1] and group.shape[1] > 1
        assert not flat or family.flat  # flat maps hide mistakes
    for row in got.report:
        assert row["nonfinite"] == 0
        assert row["softmax_error"] is None or row["softmax_error"] < 1e-5
        assert row["output_error"] is None or row["output_error"] < 1e-4
        assert (row["sink_mass"] is None) == family.softmax
        assert row["bytes"] > 0


def check_masks(family: Family, got: Capture) -> None:
    for group in got.groups.values():
        seen = group.weights.visible_cells()
        assert (group.weights.values[~seen] == 0).all()
        if family.mask == "any":
            continue
        if family.mask == "full":
            assert seen.all()
            continue
        kinds = family.mask.split(" | ")
        layers = sorted(set(group.weights.heads.layer.tolist()))
        for i, layer in enumerate(layers):
            want = mask_of(kinds[i % len(kinds)], group.shape[0])
            for column in np.flatnonzero(group.weights.heads.layer == layer):
                assert np.array_equal(seen[:, :, column], want)


def check_labels(family: Family, got: Capture, model: nn.Module) -> None:
    modules = dict(model.named_modules())
    for name, group in got.groups.items():
        heads = group.weights.heads
        assert set(heads.group) == {name}
        assert list(heads.layer) == sorted(heads.layer)  # layer-major
        assert set(heads.module) <= set(modules)
        for layer in np.unique(heads.layer):
            mine = heads.layer == layer
            windows = max(int(heads.window[mine].max()) + 1, 1)
            count = int(mine.sum()) // windows
            assert heads.head[mine].tolist() == list(range(count)) * windows
            assert (
                heads.window[mine].tolist()
                == np.repeat(np.arange(windows) if heads.window[mine].max() >= 0 else -1, count).tolist()
            )
            wanted = family.kv if family.kv and family.kv_in == name else tuple(range(count))
            if "multi-query" in family.trait:
                wanted = (0,) * count
            assert heads.kv_group[mine].tolist()[:count] == list(wanted) or "two maps" in family.trait
            path = next(m for m, on in zip(heads.module, mine, strict=True) if on)
            numbers = [int(part) for part in path.split(".") if part.isdigit()]
            by_path = not any(word in family.trait for word in ("one set", "shared", "two attentions"))
            if len(numbers) == 1 and by_path:
                assert numbers[0] == layer


def rows_of(family: Family, got: Capture, model: nn.Module) -> list[Row]:
    modules = dict(model.named_modules())
    trait = family.trait
    out = []
    for row in got.report:
        cls = type(modules[row["module"]]).__name__
        cls = family.name if family.library == "torch" else cls
        out.append((family.library, cls, row["backend"], family.name, trait))
    return list(dict.fromkeys(out))


def table() -> str:
    names: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for family in FAMILIES:
        for library, cls, backend, model, trait in SEEN[family.name]:
            entry = names.setdefault((library, cls), {"how": {}, "models": {}, "traits": {}})
            entry["how"][backend] = entry["models"][model] = None
            if trait:
                entry["traits"][trait] = None
    order = {"transformers": 0, "timm": 1, "torch": 2}
    lines = ["| library | attention class | seen as | tried on | with |", "|---|---|---|---|---|"]
    for (library, cls), entry in sorted(names.items(), key=lambda item: (order[item[0][0]], item[0][1].lower())):
        how, models, traits = (", ".join(entry[k]) for k in ("how", "models", "traits"))
        lines.append(f"| {library} | `{cls}` | {how} | {models if library != 'torch' else ''} | {traits} |")
    return "\n".join(lines)


def test_there_are_enough_of_them() -> None:
    count = {name: sum(f.library == name for f in FAMILIES) for name in ("timm", "transformers", "torch")}
    assert count["timm"] >= 35
    assert count["transformers"] >= 20
    assert count["torch"] >= 5
    assert len({f.name for f in FAMILIES}) == len(FAMILIES)


def test_the_table_in_the_docs_is_what_was_seen() -> None:
    if len(SEEN) < len(FAMILIES):
        pytest.skip("the table is written from a run of all families, and only some ran")
    page = PAGE.read_text()
    first, _, rest = page.partition(START)
    _, _, last = rest.partition(END)
    wanted = f"{first}{START}\n\n{table()}\n\n{END}{last}"
    if os.environ.get("PYATTNORG_WRITE_TABLE"):
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted, "docs/models.md is not what was seen; write it with PYATTNORG_WRITE_TABLE=1"
