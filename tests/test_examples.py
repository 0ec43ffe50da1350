"""Every script of the examples finds what it imports, run by itself from anywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

# One process for all, since what they share takes seconds to import; each starts with its own folder alone on the path.
IMPORT = """
import importlib, sys
from pathlib import Path
examples, before = Path(sys.argv[1]), list(sys.path)
failed = []
for script in sorted(examples.glob("*/*.py")):
    sys.path[:] = [str(script.parent), *before]
    try:
        importlib.import_module(script.stem)
    except Exception as error:
        failed.append(f"{script.relative_to(examples)}: {error!r}")
    for name, module in list(sys.modules.items()):
        if str(examples) in str(getattr(module, "__file__", None)):
            del sys.modules[name]
sys.exit("\\n".join(failed) or 0)
"""


def test_scripts_find_what_they_import(tmp_path: Path) -> None:
    for needed in ("torch", "transformers", "matplotlib"):
        pytest.importorskip(needed)
    run = subprocess.run(
        [sys.executable, "-c", IMPORT, str(EXAMPLES)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
