"""pyattnorg: see how a transformer's attention is organised.

Capture a model's attention (`capture`), organise its queries, keys and heads (`organize`), look at the result
(`Organization`, `report`). The pieces are here too: trees, affinities, tree distances, diffusion maps, Haar transforms,
sparsity, shrinkage, paraproducts.
"""

from typing import TYPE_CHECKING, Any

from pyattnorg._version import __version__
from pyattnorg.affinity import cosine_affinity, dual_affinity, gaussian_affinity
from pyattnorg.arrays import MovedToHostWarning
from pyattnorg.builders import binary_tree, flexible_tree
from pyattnorg.checks import DamagedFileError
from pyattnorg.compression import Compressed, compress
from pyattnorg.config import show_config
from pyattnorg.consensus import HeadConsensus, head_consensus
from pyattnorg.diffusion import DiffusionMap, diffusion_map
from pyattnorg.distances import pairwise_l1, tree_emd
from pyattnorg.entropy_trees import entropy_tree
from pyattnorg.folder_weights import data_weights
from pyattnorg.folders import Folders
from pyattnorg.haar import haar, haar_basis, ihaar
from pyattnorg.haar_layout import HaarLayout, haar_layout
from pyattnorg.head_table import Heads
from pyattnorg.holder import MixedHolder, mixed_holder
from pyattnorg.invariance import SoftmaxInvariance, softmax_invariance
from pyattnorg.known_trees import layer_tree, quadtree
from pyattnorg.martingale import imartingale_differences, martingale_differences
from pyattnorg.network import NetworkTensor
from pyattnorg.organization import Organization, organize
from pyattnorg.packets import PacketBasis, best_basis, inverse_packet_transform, packet_transform
from pyattnorg.paraproduct import Paraproduct, paraproduct
from pyattnorg.published import coarsest_entropy, published_head_entropy, published_network_entropy
from pyattnorg.questionnaire import Questionnaire
from pyattnorg.regularity import Regularity
from pyattnorg.shrinkage import denoise, keep_volumes, noise_level, shrink
from pyattnorg.sparsity import (
    coefficients_needed,
    effective_number,
    energy_curve,
    head_entropies,
    l1_entropy,
    lp_entropy,
)
from pyattnorg.store import load
from pyattnorg.tanglegrams import Tanglegram, plot_tanglegram, tanglegram
from pyattnorg.threads import get_num_threads, set_num_threads
from pyattnorg.tree_comparison import MantelTest, adjusted_rand_index, cophenetic_correlation, mantel, tree_distance
from pyattnorg.trees import PartitionTree

if TYPE_CHECKING:
    from pyattnorg.capture import (
        Capture,
        CaptureError,
        CaptureTooLargeError,
        NoAttentionError,
        UnsupportedAttentionError,
        capture,
        capture_each,
        capturing,
        from_arrays,
        load_capture,
        load_each,
    )
    from pyattnorg.capture.estimate import Estimate, estimate
    from pyattnorg.comparison import Comparison, compare
    from pyattnorg.heads import (
        CannotPruneError,
        FolderChoice,
        HeadMeans,
        HeadRanking,
        Pruned,
        ablate_heads,
        choose_folders,
        head_means,
        load_pruned,
        prune_heads,
        rank_heads,
        save_pruned,
    )  # fmt: skip
    from pyattnorg.report import report

# Read when first asked for: `import pyattnorg` stays quick. `capture` and `report` are packages that can be called.
_PACKAGES = ("capture", "report")
_LATER = dict.fromkeys(
    (
        "Capture", "CaptureError", "CaptureTooLargeError", "Estimate", "NoAttentionError", "UnsupportedAttentionError",
        "capture_each", "capturing", "estimate", "from_arrays", "load_capture", "load_each",
    ),
    "capture",
) | dict.fromkeys(
    (
        "CannotPruneError", "FolderChoice", "HeadMeans", "HeadRanking", "Pruned", "ablate_heads", "choose_folders",
        "head_means", "load_pruned", "prune_heads", "rank_heads", "save_pruned",
    ),
    "heads",
) | dict.fromkeys(("Comparison", "compare"), "comparison")  # fmt: skip

__all__ = [
    "CannotPruneError",
    "Capture",
    "CaptureError",
    "CaptureTooLargeError",
    "Comparison",
    "Compressed",
    "DamagedFileError",
    "DiffusionMap",
    "Estimate",
    "FolderChoice",
    "Folders",
    "HaarLayout",
    "HeadConsensus",
    "HeadMeans",
    "HeadRanking",
    "Heads",
    "MantelTest",
    "MixedHolder",
    "MovedToHostWarning",
    "NetworkTensor",
    "NoAttentionError",
    "Organization",
    "PacketBasis",
    "Paraproduct",
    "PartitionTree",
    "Pruned",
    "Questionnaire",
    "Regularity",
    "SoftmaxInvariance",
    "Tanglegram",
    "UnsupportedAttentionError",
    "__version__",
    "ablate_heads",
    "adjusted_rand_index",
    "best_basis",
    "binary_tree",
    "capture",
    "capture_each",
    "capturing",
    "choose_folders",
    "coarsest_entropy",
    "coefficients_needed",
    "compare",
    "compress",
    "cophenetic_correlation",
    "cosine_affinity",
    "data_weights",
    "denoise",
    "diffusion_map",
    "dual_affinity",
    "effective_number",
    "energy_curve",
    "entropy_tree",
    "estimate",
    "flexible_tree",
    "from_arrays",
    "gaussian_affinity",
    "get_num_threads",
    "haar",
    "haar_basis",
    "haar_layout",
    "head_consensus",
    "head_entropies",
    "head_means",
    "ihaar",
    "imartingale_differences",
    "inverse_packet_transform",
    "keep_volumes",
    "l1_entropy",
    "layer_tree",
    "load",
    "load_capture",
    "load_each",
    "load_pruned",
    "lp_entropy",
    "mantel",
    "martingale_differences",
    "mixed_holder",
    "noise_level",
    "organize",
    "packet_transform",
    "pairwise_l1",
    "paraproduct",
    "plot_tanglegram",
    "prune_heads",
    "published_head_entropy",
    "published_network_entropy",
    "quadtree",
    "rank_heads",
    "report",
    "save_pruned",
    "set_num_threads",
    "show_config",
    "shrink",
    "softmax_invariance",
    "tanglegram",
    "tree_distance",
    "tree_emd",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER and name not in _PACKAGES:
        raise AttributeError(f"module 'pyattnorg' has no attribute {name!r}")
    from importlib import import_module

    package = import_module(f"pyattnorg.{_LATER.get(name, name)}")
    found = package if name in _PACKAGES else getattr(package, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
