"""The package tests itself: versions agree, imports run one way, heavy ones come late, all that is public is told."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyattnorg as pa
from pyattnorg import _core, config, kernels
from pyattnorg._version import __version__

PACKAGE = Path(pa.__file__).parent
MODULES = {
    ".".join(("pyattnorg", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

# A module may import those of lower levels, and of its own where no circle comes of it.
LEVELS = (
    ("_core", "_cuda", "_emulated", "_version"),
    (
        "arrays",
        "checks",
        "doors",
        "dropping",
        "folders",
        "head_table",
        "visibility",
        "progress",
        "threads",
        "memory",
        "devices",
    ),
    ("lazy",),
    ("trees", "network", "plans", "reference", "known_trees"),
    ("device_plans",),
    ("device_kernels", "device_trees"),
    ("kernels", "on_device"),
    (
        "config",
        "placing",
        "sampling",
        "spaces",
        "distances",
        "affinity",
        "diffusion",
        "builders",
        "folder_weights",
        "axis_options",
        "tree_comparison",
    ),
    ("haar_layout", "haar", "martingale"),
    ("entropy_arithmetic", "entropy_trees", "entropy_rounds"),
    ("packets",),
    ("sparsity", "published", "shrinkage", "holder", "regularity", "scales", "paraproduct"),
    ("questionnaire", "rounds", "pictures", "tanglegrams", "head_folders"),
    ("organization", "consensus", "invariance", "store", "comparison", "compression"),
    ("heads", "report", "cli", "__main__"),  # what acts on models may import what captures them
)
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
COMPILED = {"pyattnorg._core", "pyattnorg._cuda", "pyattnorg._emulated"}
CAPTURE_NEEDS = {
    "arrays",
    "checks",
    "devices",
    "doors",
    "head_table",
    "visibility",
    "network",
    "lazy",
    "memory",
    "threads",
    "_version",
}
ON_USE = {
    "torch",
    "torchvision",
    "transformers",
    "timm",
    "plotly",
    "matplotlib",
    "zarr",
    "dask",
    "pandas",
    "PIL",
    "sklearn",
}


def _imports(path: Path, module: str, *, everywhere: bool) -> Iterator[str]:
    """Names of imported modules, absolute; only those that run with the import unless `everywhere`."""
    todo: list[ast.AST] = [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if not everywhere and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES or full in COMPILED else str(node.module)
        todo.extend(ast.iter_child_nodes(node))


def _part(module: str) -> str:
    """First part of a module's name within the package; nothing for the package itself or what lies outside."""
    parts = module.split(".")
    return parts[1] if parts[0] == "pyattnorg" and len(parts) > 1 else ""


# -- imports ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [module for module in MODULES if _part(module)])
def test_imports_run_one_way(module: str) -> None:
    own = _part(module)
    for imported in _imports(MODULES[module], module, everywhere=True):
        part = _part(imported)
        if imported == "pyattnorg":
            assert LEVEL.get(own, 0) == len(LEVELS) - 1, f"{module} imports the package itself"
        if not part or part == own:
            continue
        if own == "capture":
            assert part in CAPTURE_NEEDS, f"{module} imports {imported}"
        else:
            assert part != "capture" or LEVEL[own] == len(LEVELS) - 1, f"{module} imports {imported}"
            assert part == "capture" or LEVEL[part] <= LEVEL[own], f"{module} imports {imported}"


def test_every_module_has_its_level() -> None:
    assert {_part(module) for module in MODULES} - set(LEVEL) - {"", "capture"} == set()


def test_no_circles() -> None:
    edges = {
        module: {name for name in _imports(path, module, everywhere=False) if name in MODULES and name != "pyattnorg"}
        for module, path in MODULES.items()
    }
    done: set[str] = set()
    while edges:
        free = {module for module, needs in edges.items() if needs - {module} <= done}
        assert free, f"modules that import one another: {sorted(edges)}"
        done |= free
        edges = {module: needs for module, needs in edges.items() if module not in free}


@pytest.mark.parametrize("module", MODULES)
def test_heavy_packages_are_imported_on_use(module: str) -> None:
    outside = {name.split(".")[0] for name in _imports(MODULES[module], module, everywhere=False)}
    # What lies behind pyattnorg.capture and .heads works on torch alone; the packages load it late, see below.
    behind = module.startswith(("pyattnorg.capture.", "pyattnorg.heads."))
    assert not outside & (ON_USE - {"torch"} if behind else ON_USE)


def test_only_one_module_each_imports_the_compiled_parts() -> None:
    users = {
        compiled: {m for m, path in MODULES.items() if compiled in _imports(path, m, everywhere=True)}
        for compiled in COMPILED
    }
    assert users["pyattnorg._core"] == {"pyattnorg.kernels"}
    assert users["pyattnorg._cuda"] == users["pyattnorg._emulated"] == {"pyattnorg.devices"}


@pytest.mark.parametrize(
    "module", ["pyattnorg", "pyattnorg.capture", "pyattnorg.cli", "pyattnorg.heads", "pyattnorg.report"]
)
def test_import_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert not set(run.stdout.split()) & ON_USE


def test_numeric_core_works_where_torch_is_not() -> None:
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "transformers", "timm", "plotly", "matplotlib", "pandas"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import numpy as np, pyattnorg as pa
print(pa.organize(np.random.default_rng(0).random((6, 5, 4))).summary()[:7])
"""
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "scores:\n"), run.stderr


# -- versions, names, texts -------------------------------------------------------------------------------------------


def test_versions_agree() -> None:
    assert pa.__version__ == __version__ == _core.__version__
    try:
        installed = importlib.metadata.version("pyattnorg")
    except importlib.metadata.PackageNotFoundError:
        return
    assert installed == __version__


def test_public_names_are_there() -> None:
    missing = []
    for name in pa.__all__:
        try:
            getattr(pa, name)
        except (AttributeError, ImportError) as error:
            missing.append((name, str(error)))
    assert not missing
    assert sorted(pa.__all__) == pa.__all__
    assert set(dir(pa)) == set(pa.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        pa.nonsense  # noqa: B018


def _public() -> Iterator[tuple[str, object]]:
    for module in MODULES:
        if "._" in module or module.startswith(("pyattnorg.capture", "pyattnorg.cli", "pyattnorg.report")):
            continue
        loaded = importlib.import_module(module)
        yield module, loaded
        for name, value in vars(loaded).items():
            if name.startswith("_") or getattr(value, "__module__", "") != module:
                continue
            if inspect.isfunction(value) or inspect.isclass(value):
                yield f"{module}.{name}", value


def test_all_that_is_public_has_a_docstring() -> None:
    assert [name for name, value in _public() if not inspect.getdoc(value)] == []


def test_public_functions_say_their_types() -> None:
    bare = []
    for name, value in _public():
        if inspect.isfunction(value):
            signature = inspect.signature(value)
            annotations = [p.annotation for p in signature.parameters.values()] + [signature.return_annotation]
            if inspect.Signature.empty in annotations:
                bare.append(name)
    assert bare == []


def test_configuration_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    pa.show_config()
    out = capsys.readouterr().out
    found = config.configuration()
    assert all(name in out and value in out for name, value in found.items())
    assert found["pyattnorg"] == __version__
    assert kernels.instruction_set() in found["instruction set"]
    assert found["backend"] == "cpu"


def test_stub_of_the_compiled_core_is_true(tmp_path: Path) -> None:
    pytest.importorskip("mypy.stubtest")
    for file in (Path(_core.__file__), PACKAGE / "_core.pyi"):  # alone, or mypy would read all that the package imports
        shutil.copy(file, tmp_path)
    (tmp_path / "allowed").write_text("_core.(HaarPlan|Program)\n")  # their metaclass is pybind11's, which has no name
    options = ["--allowlist", "allowed", "--ignore-unused-allowlist"]
    run = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "_core", *options], capture_output=True, text=True, cwd=tmp_path
    )
    assert run.returncode == 0, run.stdout + run.stderr


# -- invariants -------------------------------------------------------------------------------------------------------

# Of trees (T), affinities and distances (E), the walk (M), and the whole of it; each is a test that has its name.
INVARIANTS = (
    *(f"T{i}" for i in range(1, 6)),
    *(f"E{i}" for i in range(1, 7)),
    *(f"M{i}" for i in range(1, 5)),
    "pipeline_permuted",
    "pipeline_twin",
    "pipeline_backends",
    "pipeline_paper",
    "recovery",
)


def test_every_invariant_is_a_test_by_its_name() -> None:
    named = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        tests = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        named |= {i for i in INVARIANTS for test in tests if f"_{i}_" in test}
    assert sorted(set(INVARIANTS) - named) == []
