"""Write docs/api.md, every public name in one line, from the docstrings: python docs/api.py."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyattnorg as pa

ROOT = Path(__file__).parents[1]
TITLE = """\
# Every public name

One line each, made from the docstrings by `python docs/api.py`; `help(pa.haar)` has shapes, dtypes, errors and sources.
Names are reached as `pa.name` after `import pyattnorg as pa`. [method.md](method.md) explains the ideas in order.
"""
GROUPS = {
    "From a model to its attention": (
        "capture", "capture_each", "capturing", "from_arrays", "load_capture", "load_each", "estimate", "Capture",
        "Estimate", "NetworkTensor", "Heads", "CaptureError", "NoAttentionError", "UnsupportedAttentionError",
        "CaptureTooLargeError",
    ),
    "Organise a network, look at it, keep it": (
        "organize", "Organization", "report", "load", "head_consensus", "HeadConsensus",
        "softmax_invariance", "SoftmaxInvariance", "head_entropies",
    ),
    "Organise any tensor": ("Questionnaire", "data_weights"),
    "Partition trees": (
        "PartitionTree", "Folders", "entropy_tree", "flexible_tree", "binary_tree", "layer_tree", "quadtree",
    ),
    "Distances, affinities, diffusion": (
        "pairwise_l1", "tree_emd", "cosine_affinity", "gaussian_affinity", "dual_affinity", "diffusion_map",
        "DiffusionMap",
    ),
    "Bases on trees": (
        "haar", "ihaar", "haar_basis", "haar_layout", "HaarLayout", "martingale_differences",
        "imartingale_differences", "best_basis", "packet_transform", "inverse_packet_transform", "PacketBasis",
    ),
    "How sparse, how smooth": (
        "l1_entropy", "lp_entropy", "effective_number", "energy_curve", "coefficients_needed", "coarsest_entropy",
        "published_head_entropy", "published_network_entropy", "mixed_holder", "MixedHolder",
    ),
    "Shrinkage and paraproducts": (
        "denoise", "shrink", "keep_volumes", "noise_level", "paraproduct", "Paraproduct", "Regularity",
    ),
    "Compare networks, trees and matrices": (
        "compare", "Comparison", "tree_distance", "cophenetic_correlation", "adjusted_rand_index", "mantel",
        "MantelTest", "tanglegram", "Tanglegram", "plot_tanglegram",
    ),
    "Act on heads": (
        "rank_heads", "HeadRanking", "ablate_heads", "head_means", "HeadMeans", "choose_folders", "FolderChoice",
        "prune_heads", "Pruned", "CannotPruneError", "save_pruned", "load_pruned",
    ),
    "Fewer bytes": ("compress", "Compressed"),
    "Settings, warnings, errors": (
        "show_config", "set_num_threads", "get_num_threads", "MovedToHostWarning", "DamagedFileError", "__version__",
    ),
}  # fmt: skip


def behind(name: str) -> Any:
    """What does the work under a public name: `capture` and `report` are packages that can be called."""
    found = getattr(pa, name)
    return inspect.unwrap(getattr(found, name) if isinstance(found, ModuleType) else found)


def line(name: str) -> str:
    """A row of a table: the name, what it is, and the file where it lives."""
    if name == "__version__":
        return "| `__version__` | The version, such as `0.1.0`. | [`_version.py`](../pyattnorg/_version.py) |"
    found = behind(name)
    first = " ".join((inspect.getdoc(found) or "").split("\n\n")[0].split()).replace("|", "\\|")
    home = Path(inspect.getsourcefile(found) or "").resolve().relative_to(ROOT / "pyattnorg").as_posix()
    call = "" if isinstance(found, type) else "()"
    return f"| `{name}{call}` | {first} | [`{home}`](../pyattnorg/{home}) |"


def lines() -> Iterator[str]:
    """The page."""
    yield TITLE
    for title, names in GROUPS.items():
        yield f"## {title}\n\n| name | what it is | where |\n|---|---|---|"
        yield "\n".join(line(name) for name in names) + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "api.md").write_text("\n".join(lines()), encoding="utf-8")
