"""Acting on heads: `rank_heads`, `ablate_heads`, `prune_heads`, and what goes with them.

Nothing here imports torch before it is used. `choose` reads which heads are meant; `ablate` changes what heads give
while a model runs (`pyattnorg.capture.intervene` does it); `anatomy`, `plans`, `surgery` take them out of weights;
`saving` writes and reads such models; `rank`, with `maps`, `outputs`, `gradients` and `twins`, says which to take.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyattnorg.heads.ablate import ablate_heads
    from pyattnorg.heads.anatomy import CannotPruneError
    from pyattnorg.heads.folders import FolderChoice, choose_folders
    from pyattnorg.heads.means import HeadMeans, head_means
    from pyattnorg.heads.prune import Pruned, prune_heads
    from pyattnorg.heads.rank import rank_heads
    from pyattnorg.heads.ranking import HeadRanking
    from pyattnorg.heads.saving import load_pruned, save_pruned

_WHERE = {
    "CannotPruneError": "anatomy",
    "FolderChoice": "folders",
    "HeadMeans": "means",
    "HeadRanking": "ranking",
    "Pruned": "prune",
    "ablate_heads": "ablate",
    "choose_folders": "folders",
    "head_means": "means",
    "load_pruned": "saving",
    "prune_heads": "prune",
    "rank_heads": "rank",
    "save_pruned": "saving",
}

__all__ = [
    "CannotPruneError",
    "FolderChoice",
    "HeadMeans",
    "HeadRanking",
    "Pruned",
    "ablate_heads",
    "choose_folders",
    "head_means",
    "load_pruned",
    "prune_heads",
    "rank_heads",
    "save_pruned",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'pyattnorg.heads' has no attribute {name!r}")
    try:
        found = getattr(import_module(f"pyattnorg.heads.{_WHERE[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"{name} needs torch: pip install 'pyattnorg[torch]'") from None
    globals()[name] = found
    return found
