"""What the README shows runs as it stands, names of models aside."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensors import attention_like

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parent.parent / "README.md").read_text(), re.DOTALL)


def test_every_block_is_run_here() -> None:
    assert len(BLOCKS) == 4
    assert [("MiniLM" in block, "timm" in block) for block in BLOCKS] == [(0, 0), (1, 0), (0, 1), (1, 0)]


def test_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("attention.npy", attention_like(17, 17, 24))
    exec(compile(BLOCKS[0], "README.md", "exec"), {})


def test_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    timm = pytest.importorskip("timm")
    make = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained: make(name, depth=2, num_classes=2))  # no network
    names: dict[str, Any] = {}
    exec(compile(BLOCKS[2], "README.md", "exec"), names)
    assert names["capture"].scores.shape == (197, 197, 12)


@pytest.mark.models
@pytest.mark.parametrize("block", [1, 3])
def test_texts(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyattnorg.cli.sources import demo_model

    monkeypatch.chdir(tmp_path)
    code = BLOCKS[block]
    for name in ("path/or/id/of/MiniLM", "path/or/id/of/another"):
        code = code.replace(name, str(demo_model()))
    exec(compile(code, "README.md", "exec"), {})
    assert [path.name for path in tmp_path.iterdir()] == [{1: "report.html", 3: "mini.pyatn"}[block]]
