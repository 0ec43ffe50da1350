"""What all tests share: backends, instruction sets, one thread for torch, repeatable examples."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from pyattnorg import _core, devices

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None, max_examples=60)
settings.load_profile("repeatable")


def pytest_runtest_setup() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


def missing(backend: str) -> str:
    """Why a backend cannot be tested here, or nothing. PYATTNORG_REQUIRE says which must be there."""
    probe = {"emulated": devices.emulated_kernels, "cuda": devices.cuda_kernels}.get(backend)
    if probe is None or backend in os.environ.get("PYATTNORG_REQUIRE", "").split(","):
        return ""
    try:
        probe()
    except ImportError as error:
        return str(error)
    return ""


# tests/test_cuda_build.py tells which backends are not tested here, and why.
@pytest.fixture(params=["cpu", "reference", *(name for name in ("emulated", "cuda") if not missing(name))])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test on every backend that this build has."""
    monkeypatch.setenv("PYATTNORG_BACKEND", request.param)
    return str(request.param)


@pytest.fixture(params=_core.instruction_sets())
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a test on every instruction set of this machine."""
    before = _core.instruction_set()
    _core.use_instruction_set(request.param)
    yield request.param
    _core.use_instruction_set(before)
