"""The demo, with its real pretrained model."""

from __future__ import annotations

import json
import os

import pytest
from typer.testing import CliRunner

import pyattnorg as pa
from pyattnorg.cli.app import app
from pyattnorg.cli.sources import demo_model


@pytest.mark.models
def test_demo_on_the_real_model(tmp_path):
    try:
        demo_model()
    except FileNotFoundError as missing:
        if os.environ.get("PYATTNORG_REQUIRE_MODELS") == "1":
            raise
        pytest.skip(str(missing))
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo"), "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["shape"] == {"queries": 130, "keys": 130, "heads": 72}
    assert told["entropy"]["after"] < told["entropy"]["shuffled"]
    organization = pa.load(tmp_path / "demo" / "organization.npz")
    assert organization.network.keys[0] == "[CLS]"
    # the first layer's heads are a family of their own: most of them share one folder
    first = max(told["head_folders"], key=lambda folder: sum(label.startswith("L0H") for label in folder))
    assert sum(label.startswith("L0H") for label in first) >= 8
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert len(page) < 12e6
    assert "March Hare" in page
