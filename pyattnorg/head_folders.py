"""Folders of heads by name: those of a level of the head tree, or those of comparable size."""

from __future__ import annotations

from collections.abc import Sequence

from pyattnorg.trees import PartitionTree


def largest_folder(n: int) -> int:
    """Most of `n` heads that a folder of comparable size holds: a third of them."""
    return max(2, n // 3) if n > 2 else 1


def named_folders(tree: PartitionTree, labels: Sequence[str], level: int | None = None) -> list[list[str]]:
    """Folders of heads, by label, in tree order.

    Those of a level, 0 being the root's; without one the coarsest folders of at most `largest_folder` heads, whatever
    their level.
    """
    if level is None:
        parts = tree.parts(largest_folder(tree.n_leaves))
    else:
        tree.folder_sizes(level)  # refuses a level that is not there
        parts = tree.labels[level]
    folders: dict[int, list[str]] = {}
    for head in tree.order:
        folders.setdefault(int(parts[head]), []).append(labels[head])
    return list(folders.values())


def counted(folders: Sequence[Sequence[str]]) -> str:
    """How many folders there are: those of several heads, and heads that stand alone."""
    alone = sum(len(folder) == 1 for folder in folders)
    n = len(folders) - alone
    said = f"{n} folder{'' if n == 1 else 's'} of heads"
    return said + (f" and {alone} head{'' if alone == 1 else 's'} alone" if alone else "")


def largest_of(folders: Sequence[list[str]], n: int) -> list[list[str]]:
    """The `n` largest folders, in the order that they stand."""
    kept = sorted(sorted(range(len(folders)), key=lambda i: -len(folders[i]))[:n])
    return [folders[i] for i in kept]


def short(folder: Sequence[str], most: int = 4) -> str:
    """A folder's first heads, and how many more there are."""
    more = f" and {len(folder) - most} more" if len(folder) > most else ""
    return " ".join(folder[:most]) + more


__all__ = ["counted", "largest_folder", "largest_of", "named_folders", "short"]
