"""What an installation that is not in place receives."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Laid into a wheel by CMake, or made by Python.
BUILT = {".so", ".pyd", ".pyc"}


def test_every_file_of_the_package_is_installed(tmp_path):
    """A folder missing from the list of packages is noticed only by those who install a wheel."""
    python_files = "from setuptools import setup; setup(script_name='setup.py')"
    # A list of files that an earlier installation left in the checkout must not help.
    fresh = ["egg_info", "--egg-base", str(tmp_path)]
    command = [sys.executable, "-c", python_files, *fresh, "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "PYTHONWARNINGS": "ignore"}, timeout=120)

    def files(top: Path) -> set[str]:
        return {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file() and path.suffix not in BUILT}

    assert files(tmp_path / "pyattnorg") == files(ROOT / "pyattnorg")
