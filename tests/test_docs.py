"""The documentation holds: its code runs as it stands, its pictures are there, small, and made by the script."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from tensors import attention_like

import pyattnorg as pa

matplotlib.use("Agg")

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "method.md").read_text()
LARGEST = 100_000  # bytes of a picture


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    runpy.run_path(str(DOCS / "pictures.py"))["main"](folder)
    return folder


def test_code_of_the_page_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("attention.npy", attention_like(17, 17, 24))
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 10
    for block in blocks:
        exec(compile(block, "docs/method.md", "exec"), names)
    assert names["test"].p_value <= 1
    matplotlib.pyplot.close("all")


def test_functions_that_the_page_names_are_there() -> None:
    called = set(re.findall(r"\bpa\.(\w+)", PAGE))
    assert {name for name in called if not hasattr(pa, name)} == set()


def test_every_picture_of_the_page_is_made_and_every_one_made_is_shown(drawn: Path) -> None:
    shown = set(re.findall(r"\]\(method/(\w+\.png)\)", PAGE))
    assert shown == {path.name for path in drawn.iterdir()} == {path.name for path in (DOCS / "method").iterdir()}


def test_pictures_are_small(drawn: Path) -> None:
    for folder in (drawn, DOCS / "method"):
        assert all(1000 < path.stat().st_size < LARGEST for path in folder.iterdir())


def test_what_the_page_says_of_its_rows_is_true() -> None:
    found = runpy.run_path(str(DOCS / "pictures.py"))
    rows, keys = found["rows_of_three"]()
    by_cell, by_tree = pa.pairwise_l1(rows), pa.tree_emd(rows, keys)
    assert f"c is {by_cell[0, 2] / by_cell[0, 1]:.1f} times as far from a as b is" in PAGE
    assert f"by the tree, {by_tree[0, 2] / by_tree[0, 1]:.1f} times" in PAGE


def test_code_of_the_page_on_comparing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / "compare.md").read_text(), re.DOTALL)
    exec(compile(block, "docs/compare.md", "exec"), names)
    assert (tmp_path / "compared.svg").exists()
    assert "a and b: distance" in names["found"].summary()
    matplotlib.pyplot.close("all")


def test_quantities_of_the_page_on_comparing_are_those_of_the_code() -> None:
    from pyattnorg.comparison.quantities import HEADS_UNIT, QUANTITIES, SPECTRUM_UNIT

    page = (DOCS / "compare.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|([^|]*)\|([^|]*)\|", page, re.MULTILINE)
    told = {name: (contrast.strip(), unit.strip()) for name, _, contrast, unit in rows}
    for quantity in QUANTITIES:
        contrast, unit = told.pop(quantity.name)
        assert contrast == {"ratio": "log ratio", "difference": "difference"}[quantity.contrast]
        assert unit == (str(quantity.unit) if quantity.unit else "not counted")
    assert [unit for _, unit in told.values()] == [str(HEADS_UNIT), str(SPECTRUM_UNIT)]


def test_the_page_of_every_public_name_is_whole_and_what_the_docstrings_say() -> None:
    made = runpy.run_path(str(DOCS / "api.py"))
    listed = [name for names in made["GROUPS"].values() for name in names]
    assert sorted(listed) == sorted(pa.__all__)
    assert (DOCS / "api.md").read_text() == "\n".join(made["lines"]()), "run: python docs/api.py"
