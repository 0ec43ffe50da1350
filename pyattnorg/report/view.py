"""What a page says of an organisation, worked out once: its blocks, folders, tables and names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg.organization import HEADS, KEYS, QUERIES, Organization
from pyattnorg.pictures import readable
from pyattnorg.report.blocks import Blocks, by_runs, by_tree
from pyattnorg.sparsity import coefficients_needed

MOST_POINTS = 256  # a side of a matrix
MOST_HEADS = 512  # in the tree, the scatter, the gallery and the table
MOST_FOLDERS = 24  # in the gallery
NAME_LENGTH = 18
CLOSE_ENOUGH = 0.05  # relative error at which coefficients are counted


@dataclass(frozen=True)
class View:
    """An organisation and the head that is shown of it."""

    organization: Organization
    head: str
    rows: list[dict[str, Any]]  # the table of heads

    @classmethod
    def of(cls, organization: Organization, head: str | None = None) -> View:
        """A view that shows this head, or the most involved one."""
        rows = organization.head_table()
        return cls(organization, head or str(max(rows, key=lambda row: float(row["involvement"]))["label"]), rows)

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """Names of queries, keys and heads."""
        o = self.organization
        return tuple(shortened(o._names(axis)) for axis in (QUERIES, KEYS, HEADS))

    @cached_property
    def folders(self) -> list[list[int]]:
        """Heads of each telling folder, in tree order."""
        at = {label: i for i, label in enumerate(self.organization.labels)}
        return [[at[label] for label in folder] for folder in self.organization.head_folders()]

    @cached_property
    def shared(self) -> list[int]:
        """Numbers of the folders of more than one head."""
        return [i for i, folder in enumerate(self.folders) if len(folder) > 1]

    @cached_property
    def heads(self) -> Blocks:
        """Heads as the tree and the scatter show them."""
        return by_tree(self.organization.trees_[HEADS], MOST_HEADS)

    @cached_property
    def head_matrix_blocks(self) -> Blocks:
        """Heads as the affinity shows them."""
        return by_tree(self.organization.trees_[HEADS], MOST_POINTS)

    def organized(self, axis: int) -> Blocks:
        """Queries or keys in tree order."""
        return by_tree(self.organization.trees_[axis], MOST_POINTS)

    def as_given(self, axis: int) -> Blocks:
        """Queries or keys in the order that came."""
        return by_runs(self.organization.network.shape[axis], MOST_POINTS)

    @cached_property
    def layers(self) -> NDArray[np.int64]:
        """Layer of every head."""
        return self.organization.network.heads.layer

    @cached_property
    def decay(self) -> dict[str, NDArray[np.float64]]:
        """Coefficient magnitudes in each basis."""
        return self.organization.decay()

    @cached_property
    def needed(self) -> dict[str, float]:
        """Share of the coefficients that leave a relative error of at most 5 %, in each basis."""
        found = {}
        for name, magnitudes in self.decay.items():
            found[name] = coefficients_needed(magnitudes, CLOSE_ENOUGH) / len(magnitudes)
        return found

    def habits(self, heads: list[int]) -> list[tuple[str, float]]:
        """Where the attention of some heads goes on average: (place, share), largest first.

        Known for weights between the same tokens only. The first and the last token are not counted as neighbours.
        """
        network = self.organization.network
        q, k, _ = network.shape
        if network.kind != "weights" or q != k or network.queries != network.keys or q < 4:
            return []
        mean = network.values[:, :, heads].mean(2, dtype=np.float64)
        first, last = self.names[KEYS][0], self.names[KEYS][-1]
        places = {
            f"the first token ({first})": mean[1:, 0],
            f"the last token ({last})": mean[:-1, -1],
            "the token itself": np.diagonal(mean)[1:-1],
            "the token before": np.diagonal(mean, -1)[1:],
            "the token after": np.diagonal(mean, 1)[:-1],
        }
        return sorted(((name, float(cells.mean())) for name, cells in places.items()), key=lambda item: -item[1])

    @cached_property
    def collapsed(self) -> list[str]:
        """What is drawn with less detail than there is, in words."""
        said = []
        for axis, what in ((QUERIES, "queries"), (KEYS, "keys")):
            n = self.organization.network.shape[axis]
            if n > MOST_POINTS:
                said.append(
                    f"{n:,} {what} are drawn as {MOST_POINTS}: averages over folders of their tree where organised, "
                    f"over runs of neighbours where as given"
                )
        for n_shown, what in ((MOST_POINTS, "the affinity"), (MOST_HEADS, "the tree and the scatter")):
            if len(self.rows) > n_shown:
                said.append(f"{len(self.rows):,} heads are drawn as {n_shown} folders of their tree in {what}")
        if len(self.rows) > MOST_HEADS:
            said.append(f"the table lists the {MOST_HEADS} most involved heads, and the gallery shows folders only")
        if len(self.shared) > MOST_FOLDERS:
            said.append(f"the gallery shows the {MOST_FOLDERS} largest of {len(self.shared)} folders of heads")
        return said


def shortened(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names cut to a length that fits, blanks and unprintable characters made visible."""
    out = []
    for name in readable(names):
        seen = "".join(c if c.isprintable() else "·" for c in name).strip() or "␣"
        out.append(seen if len(seen) <= NAME_LENGTH else seen[: NAME_LENGTH - 1] + "…")
    return tuple(out)


def layer_span(layers: NDArray[np.int64]) -> str:
    """Layers of some heads in words: ``layer 3``, ``layers 0-2``, ``layers 1, 4, 6-9``."""
    found = np.unique(layers)
    runs = np.split(found, np.flatnonzero(np.diff(found) > 1) + 1)
    said = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"layer{'' if len(found) == 1 else 's'} {said}"


__all__ = ["MOST_FOLDERS", "MOST_HEADS", "MOST_POINTS", "View", "layer_span", "shortened"]
