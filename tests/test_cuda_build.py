"""The CUDA sources by nvcc, where there is one: no kernel spills, the extension imports without a driver."""

from __future__ import annotations

import importlib.util
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import missing

ROOT = Path(__file__).resolve().parent.parent
nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="no nvcc here: the CUDA sources are compiled by g++ alone"
)


@pytest.mark.parametrize("backend", ["emulated", "cuda"])
def test_a_backend_is_tested_or_said_to_be_missing(backend: str) -> None:
    why = missing(backend)
    if why:
        pytest.skip(why)


@nvcc
def test_no_kernel_spills_or_has_a_stack() -> None:
    static = runpy.run_path(str(ROOT / "bench" / "static_cuda.py"))
    found = static["figures"](shutil.which("nvcc"), "sm_90")
    assert len(found) > 50
    assert {f.kernel for f in found} == set(static["THREADS"])
    assert [f.name for f in found if f.stack or f.spills] == []
    assert all(0 < f.occupancy <= 1 for f in found)


def test_the_extension_imports_where_there_is_no_driver() -> None:
    if importlib.util.find_spec("pyattnorg._cuda") is None:
        pytest.skip("_cuda was not built: no nvcc here, or PYATTNORG_CUDA=OFF")
    code = "from pyattnorg import _cuda; print(_cuda.device_count() >= 0, _cuda.__version__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("True ")


def test_the_same_files_are_compiled_for_both() -> None:
    told = (ROOT / "csrc" / "cuda" / "cuda.cmake").read_text()
    names = told.split("set(cuda_names")[1].split(")")[0].split()
    assert sorted(names) == sorted(path.stem for path in (ROOT / "csrc" / "cuda").glob("*.cu"))


def test_every_mutant_fits_the_sources() -> None:
    mutants = runpy.run_path(str(ROOT / "bench" / "mutants.py"))["MUTANTS"]
    assert len(mutants) >= 20
    for name, (file, old, new) in mutants.items():
        assert (ROOT / "csrc" / file).read_text().count(old) == 1, name
        assert old != new, name


def test_what_bench_gpu_found_is_kept(tmp_path: Path) -> None:
    gpu = runpy.run_path(str(ROOT / "bench" / "gpu.py"))
    out, clock = tmp_path / "results.md", gpu["Clock"](1)
    gpu["written"](out, ["| first |"])
    gpu["written"](out, ["| second |"])
    text = out.read_text()
    assert "| second |" in text
    assert "| first |" not in text
    assert (
        text.replace("| second |", "")
        == "".join(gpu["RESULTS"].read_text().partition(gpu["BEGIN"])[:2])
        + "\n\n\n\n"
        + gpu["END"]
        + gpu["RESULTS"].read_text().partition(gpu["END"])[2]
    )
    said = [sys.executable, "-c", "import time; print('said', flush=True); time.sleep(60)"]
    ended = gpu["run_all"]([said, ["/no/such/program"], [sys.executable, "-c", "raise SystemExit(3)"]], clock, 6)
    assert [word for word, _ in ended] == ["stopped after 6 s", "FAILED: cannot be started", "FAILED (3)"]
    assert ended[0][1] == "said\n"
    assert gpu["run"](said, gpu["Clock"](0), 60)[0] == "left out: no time"
    assert gpu["last_line"]("one\ntwo | three\n\n") == "two / three"


def test_bench_gpu_ends_what_its_parts_have_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = runpy.run_path(str(ROOT / "bench" / "gpu.py"))
    inner = f"import pathlib, time; time.sleep(8); pathlib.Path({str(tmp_path / 'late')!r}).touch()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    monkeypatch.setenv("PYTHONPATH", "/carried")
    path = [sys.executable, "-c", "import os; print(os.environ['PYTHONPATH'])"]
    gpu["run_all"].__globals__["log_file"] = tmp_path / "log"
    ended = gpu["run_all"]([[sys.executable, "-c", outer], path], gpu["Clock"](1), 5)
    assert [word for word, _ in ended] == ["stopped after 5 s", "passed"]
    assert ended[1][1].strip().endswith("/carried")
    assert "/carried\npassed\n" in (tmp_path / "log").read_text()
    time.sleep(4)
    assert not (tmp_path / "late").exists()


def test_bench_gpu_goes_on_where_the_card_took_no_more_work(tmp_path: Path) -> None:
    gpu = runpy.run_path(str(ROOT / "bench" / "gpu.py"))
    rows = "import sys\nfor i in range(int(sys.argv[3]), 5):\n print('|', i, '|'); (i in (1, 2)) and sys.exit(4)"
    (tmp_path / "cases.py").write_text(rows)
    clock = gpu["Clock"]((gpu["SANITIZERS"] + 30) / 60)
    assert gpu["benchmarks"]([sys.executable, str(tmp_path / "cases.py")], clock) == (
        "passed",
        [f"| {i} |" for i in range(5)],
    )
    (tmp_path / "cases.py").write_text("print('| 0 |'); print('why'); raise SystemExit(1)")
    assert gpu["benchmarks"]([sys.executable, str(tmp_path / "cases.py")], clock) == ("FAILED (1), why", ["| 0 |"])
    (tmp_path / "cases.py").write_text("raise SystemExit(4)")  # before any row: not again and again
    assert gpu["benchmarks"]([sys.executable, str(tmp_path / "cases.py")], clock) == ("FAILED (4), ", [])
    assert gpu["benchmarks"]([], gpu["Clock"](0)) == ("left out: no time, ", [])


def test_both_extensions_live_in_one_process() -> None:
    if any(importlib.util.find_spec(f"pyattnorg.{name}") is None for name in ("_cuda", "_emulated")):
        pytest.skip("_cuda and _emulated are not both built here")
    code = "from pyattnorg import _cuda, _emulated; print(_cuda.Place(0, 0), _emulated.Place(0, 0))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_stub_of_the_device_kernels_is_true(tmp_path: Path) -> None:
    pytest.importorskip("mypy.stubtest")
    found = importlib.util.find_spec("pyattnorg._cuda")
    if found is None or found.origin is None:
        pytest.skip("_cuda was not built: no nvcc here, or PYATTNORG_CUDA=OFF")
    for file in (Path(found.origin), ROOT / "pyattnorg" / "_cuda.pyi"):
        shutil.copy(file, tmp_path)
    (tmp_path / "allowed").write_text("_cuda.(Interchange|Place|Walk).*\n")  # pybind11's own have no names
    options = ["--allowlist", "allowed", "--ignore-unused-allowlist"]
    run = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "_cuda", *options], capture_output=True, text=True, cwd=tmp_path
    )
    assert run.returncode == 0, run.stdout + run.stderr
