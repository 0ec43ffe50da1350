"""What this installation is and uses."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from pyattnorg import devices, kernels
from pyattnorg._version import __version__
from pyattnorg.threads import get_num_threads

COMPANIONS = ("numpy", "scipy", "torch", "transformers", "timm", "plotly", "matplotlib")


def configuration() -> dict[str, str]:
    """Version, backend, instruction set, threads, CUDA and the versions of what we work with, by name."""
    found = {
        "pyattnorg": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "backend": kernels.backend(),
        "instruction set": f"{kernels.instruction_set()} (of {', '.join(kernels.instruction_sets())})",
        "threads": str(get_num_threads()),
        "cuda": _cuda(),
    }
    for name in COMPANIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _cuda() -> str:
    """What kernels on a GPU would say."""
    try:
        return f"yes, {devices.cuda_kernels().device_count()} device(s)"
    except ImportError as error:
        return f"no: {error}"


def show_config() -> None:
    """Print what is installed and used: kernels, instruction set, threads, CUDA, versions."""
    for name, value in configuration().items():
        print(f"{name:16s} {value}")
