"""Pruning by folders: of heads that the head tree puts together one stays, the others go or leave their mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pyattnorg.checks import one_of
from pyattnorg.consensus import HeadConsensus
from pyattnorg.head_table import Heads
from pyattnorg.heads.ranking import HeadRanking
from pyattnorg.organization import HEADS, Organization


@dataclass(frozen=True)
class FolderChoice:
    """Of every folder of heads, the one that stays and those that go.

    `level` is that of the folders in the head tree, None where they are those of `Organization.head_folders`, which may
    come from several. `kept` maps each representative to the heads that it stands for, itself among them; `dropped` are
    rows of the table of heads, as `ablate_heads` and `prune_heads` take them (None where nothing goes).
    """

    level: int | None
    kept: Mapping[str, tuple[str, ...]]
    dropped: Heads | None

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the heads that go."""
        return tuple(head for one, folder in self.kept.items() for head in folder if head != one)

    def __repr__(self) -> str:
        where = "" if self.level is None else f"level {self.level}: "
        return f"FolderChoice({where}{len(self.kept)} heads stay for {len(self.labels) + len(self.kept)})"


def choose_folders(
    organization: Organization | HeadConsensus,
    level: int | None = None,
    *,
    representative: str = "central",
    ranking: HeadRanking | None = None,
    by: str = "gradient",
) -> FolderChoice:
    """Keep one head of every folder of the head tree, at a level or of comparable size.

    ``pa.prune_heads(model, choice.dropped)`` drops the others; with ``means=pa.head_means(model, inputs)`` they are
    merged into what is left: the mean of what they gave goes to the bias of their layer's output projection.

    Parameters
    ----------
    organization : Organization or HeadConsensus
        Of the model's attention, on one input or on several.
    level : int, optional
        Of the head tree, 0 being the root. By default the folders are those of `Organization.head_folders`: the
        coarsest that hold no more than a third of the heads.
    representative : {"central", "ranked"}
        The head with the least sum of tree distances to its folder, or the one that `ranking` wants kept most.
    ranking, by :
        For "ranked".

    Returns
    -------
    FolderChoice

    Raises
    ------
    ValueError
        A level that the tree does not have, "ranked" without a ranking, a ranking of other heads.
    """
    one_of(representative, "representative", ("central", "ranked"))
    if not isinstance(organization, (Organization, HeadConsensus)):
        raise TypeError(
            f"organization: got {type(organization).__name__}, expected what organize or head_consensus gives"
        )
    if isinstance(organization, HeadConsensus):
        heads, distances = organization.heads, organization.distances
    else:
        heads, distances = organization.network.heads, np.asarray(organization.distances_[HEADS], np.float64)
    labels = heads.labels
    if int(heads.window.max()) >= 0:
        raise ValueError("organization: its matrices are windows of heads; capture one window, or use on_grid() first")
    if representative == "ranked":
        if ranking is None:
            raise ValueError("ranking: is missing for representative='ranked'; pass what rank_heads gives")
        scores = dict(zip(ranking.labels, ranking.mean(by)))
        if not set(labels) <= set(scores):
            lost = next(label for label in labels if label not in scores)
            raise ValueError(f"ranking: knows no {lost!r}; expected one of the organisation's model")
        worth = np.array([scores[label] for label in labels])
    folders = organization.head_folders(level)
    at = {label: i for i, label in enumerate(labels)}
    kept: dict[str, tuple[str, ...]] = {}
    for folder in folders:
        mine = np.array(sorted(at[label] for label in folder))
        cost = distances[np.ix_(mine, mine)].sum(1) if representative == "central" else -worth[mine]
        kept[labels[mine[int(np.argmin(cost))]]] = tuple(labels[i] for i in mine)
    gone = [i for i, label in enumerate(labels) if label not in kept]
    return FolderChoice(level, kept, heads.take(gone) if gone else None)


__all__ = ["FolderChoice", "choose_folders"]
