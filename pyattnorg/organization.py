"""A fitted questionnaire that knows its heads and tokens: what is found is given by name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyattnorg import devices
from pyattnorg.arrays import Array, FloatArray, as_tensor
from pyattnorg.checks import position, whole
from pyattnorg.diffusion import DiffusionMap
from pyattnorg.haar import haar
from pyattnorg.head_folders import counted, largest_folder, largest_of, named_folders, short
from pyattnorg.network import Masked, NetworkTensor
from pyattnorg.progress import Progress
from pyattnorg.questionnaire import Questionnaire
from pyattnorg.rounds import Iteration
from pyattnorg.sparsity import head_numbers, l1_entropy
from pyattnorg.trees import PartitionTree

QUERIES, KEYS, HEADS = 0, 1, 2
SHUFFLE_SEED = 0


def organize(
    network: NetworkTensor | Array,
    *,
    masked: Masked = "mean",
    trees: Sequence[PartitionTree | None] | None = None,
    affinities: Sequence[Array | None] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Organization:
    """Organise the queries, keys and heads of a network.

    Parameters
    ----------
    network : NetworkTensor or array, shape (queries, keys, heads)
        An array is taken as scores with every cell visible, but for -inf and the dtype's lowest number. It is
        organised on a GPU where it lies there, or after `NetworkTensor.cuda`, or by the option `device`.
    masked : {"mean", "floor", "raw"}
        What stands in invisible cells of scores; see `NetworkTensor.filled`.
    trees : sequence of PartitionTree or None, optional
        Trees to start from (to keep, where ``tree="given"``), for queries, keys and heads.
    affinities : sequence of arrays or None, optional
        Affinities to build the first trees of queries and keys from; see `Questionnaire.fit`.
    progress : callable, optional
        Called as ``progress(stage, done, total)``.
    **options
        Those of `pyattnorg.Questionnaire`.
    """
    if hasattr(network, "groups") and hasattr(network, "report"):
        raise TypeError("network: got a capture, expected one of its tensors: pass its .weights or .scores")
    if isinstance(network, (str, os.PathLike)):
        raise TypeError(f"network: got {network!r}; expected a tensor: capture a model, or load an organisation")
    unknown = sorted(set(options) - set(Questionnaire().get_params()))
    if unknown:
        raise TypeError(f"{unknown[0]}: no option of Questionnaire; kind and visible are said to NetworkTensor")
    tensor = network if isinstance(network, NetworkTensor) else NetworkTensor(network)
    lies = _device_of(network)
    where = tensor.device or lies
    if where is not None:
        options.setdefault("device", where)
    filled = tensor.filled(masked)
    # What is there already, with nothing to be filled, is not brought there again; what is kept is here in any case.
    there = lies is not None and lies != "cpu" and options["device"] == lies and filled.visible is None
    values = as_tensor(network) if there else filled.values
    questionnaire = Questionnaire(**options).fit(values, trees=trees, affinities=affinities, progress=progress)
    questionnaire.keep(filled.values)
    return Organization(filled, questionnaire)


def _device_of(network: NetworkTensor | Array) -> str | None:
    """The GPU that an array lies on."""
    return str(as_tensor(network).device) if devices.memory_for(network) else None


class Organization:
    """A network and its fitted questionnaire.

    Attributes
    ----------
    network : NetworkTensor
        As it was organised: a number in every cell (`visible` says which are real), queries and keys that nothing can
        see left out.
    questionnaire : Questionnaire
        Fitted. Its results are attributes here too: `trees_`, `affinities_`, `distances_`, `history_`, `n_iter_`,
        `converged_`; axis 0 is queries, 1 keys, 2 heads.
    """

    def __init__(self, network: NetworkTensor, questionnaire: Questionnaire) -> None:
        self.network = network
        self.questionnaire = questionnaire

    # -- the questionnaire's results ----------------------------------------------------------------------------

    @property
    def trees_(self) -> tuple[PartitionTree, ...]:
        return self.questionnaire.trees_

    @property
    def affinities_(self) -> tuple[FloatArray, ...]:
        return self.questionnaire.affinities_

    @property
    def distances_(self) -> tuple[FloatArray, ...]:
        return self.questionnaire.distances_

    @property
    def history_(self) -> list[Iteration]:
        return self.questionnaire.history_

    @property
    def n_iter_(self) -> int:
        return self.questionnaire.n_iter_

    @property
    def converged_(self) -> bool:
        return self.questionnaire.converged_

    def order(self, axis: int) -> NDArray[np.int32]:
        """Points of an axis in the order of its tree's leaves."""
        return self.questionnaire.order(axis)

    def embedding(self, axis: int = HEADS, n_components: int = 3, time: float = 1.0, **options: Any) -> DiffusionMap:
        """Diffusion map of an axis; further options are those of `pyattnorg.diffusion_map`."""
        return self.questionnaire.embedding(axis, n_components, time, **options)

    def organized(self) -> FloatArray:
        """The tensor with every axis in the order of its tree."""
        out: FloatArray = self.questionnaire.organized()
        return out

    def coefficients(self) -> FloatArray:
        """Tri-Haar coefficients of the network."""
        return self.questionnaire.coefficients()

    def transform(self, x: Array) -> Any:
        """Tri-Haar coefficients of another tensor of this shape."""
        return self.questionnaire.transform(x)

    def inverse_transform(self, c: Array) -> Any:
        """The tensor that has these tri-Haar coefficients."""
        return self.questionnaire.inverse_transform(c)

    # -- by name ------------------------------------------------------------------------------------------------

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of every head."""
        return self.network.labels

    def head_folders(self, level: int | None = None) -> list[list[str]]:
        """Folders of heads, by label, in tree order.

        Parameters
        ----------
        level : int, optional
            Those of one level of the tree; 0 is the root's. By default the coarsest folders that hold no more than a
            third of the heads (`PartitionTree.parts`), whatever their level. A head stands alone where the next larger
            folder holds more: it may be like no other, or have joined many at once.
        """
        return named_folders(self.trees_[HEADS], self.labels, level)

    @property
    def largest_folder(self) -> int:
        """Most heads that a folder of `head_folders` holds by default: a third of them."""
        return largest_folder(len(self.labels))

    def nearest_heads(self, label: str | int, n: int = 3) -> list[str]:
        """The `n` heads nearest to one, nearest first, by the tree distance of the last iteration."""
        n = whole(n, "n", at_least=0)
        head = self.network.index(label)
        order = np.argsort(self.distances_[HEADS][head], kind="stable")
        return [self.labels[i] for i in order if i != head][:n]

    def head_table(self) -> list[dict[str, Any]]:
        """One row a head, in the order of the network.

        label, layer, head, kv_group, group, module; folder (number of its folder in `head_folders`), position (in tree
        order); involvement: the paper's head entropy ``sum |c_ab|`` over the 10 x 10 coarsest bi-Haar functions over
        the largest of any head; entropy: normalised l1 entropy of its bi-Haar coefficients; effective: their effective
        number; x, y, z: diffusion coordinates (where there are so many); nearest: its three nearest heads.
        """
        c = haar(self.network.values, [self.trees_[QUERIES], self.trees_[KEYS], None])
        numbers = head_numbers(np.moveaxis(c, HEADS, 0))
        folder_of = {label: i for i, folder in enumerate(self.head_folders()) for label in folder}
        position = np.argsort(self.trees_[HEADS].order)
        columns = self.network.heads.to_dict()
        coordinates = self._coordinates
        rows = []
        for i, label in enumerate(self.labels):
            row = {"label": label} | {name: column[i] for name, column in columns.items()}
            row |= {"folder": folder_of[label], "position": int(position[i])}
            row |= {name: float(column[i]) for name, column in numbers.items()}
            row |= {name: float(value) for name, value in zip("xyz", coordinates[i])}
            row["nearest"] = " ".join(self.nearest_heads(label))
            rows.append(row)
        return rows

    @cached_property
    def _coordinates(self) -> FloatArray:
        """Up to three diffusion coordinates of every head."""
        available = min(3, len(self.labels) - 1)
        if not available:
            return np.zeros((len(self.labels), 0))
        found: FloatArray = self.embedding(HEADS, available).coordinates
        return found

    def _in_other_bases(self) -> dict[str, FloatArray]:
        """Coefficients in the bases that the organised one is compared with."""
        values = self.network.values
        as_given = [PartitionTree.dyadic(n) for n in values.shape]
        rng = np.random.default_rng(SHUFFLE_SEED)
        shuffled = values[np.ix_(*(rng.permutation(n) for n in values.shape))]
        return {"given": haar(values, as_given), "shuffled": haar(shuffled, as_given), "entries": values}

    @cached_property
    def _entropies(self) -> dict[str, float]:
        others = {name: l1_entropy(c) for name, c in self._in_other_bases().items()}
        return {"organized": self.history_[-1]["entropy"]} | others

    def entropies(self) -> dict[str, float]:
        """Normalised l1 entropy of the network in four bases, the lower the sparser.

        ``organized``: the tri-Haar basis of its trees; ``given``: that of dyadic trees on the order that came;
        ``shuffled``: the same after a random permutation of every axis (seed 0); ``entries``: no transform.
        """
        return dict(self._entropies)

    def decay(self) -> dict[str, NDArray[np.float64]]:
        """Coefficient magnitudes, largest first, over their norm, in the bases of `entropies`."""
        out = {}
        for name, c in {"organized": self.coefficients(), **self._in_other_bases()}.items():
            magnitude = np.sort(np.abs(c), axis=None)[::-1]
            # Sorted as they are, which is quick; squares of millions add up in float64 only.
            out[name] = magnitude / (np.sqrt(np.square(magnitude, dtype=np.float64).sum()) or 1.0)
        return out

    # -- drawing it (matplotlib; each takes `ax` and returns it) --------------------------------------------------

    def plot_tree(self, axis: int = HEADS, *, ax: Any = None) -> Any:
        """The tree of an axis by level; heads are coloured by layer."""
        from pyattnorg.pictures import draw_tree

        axis = self._axis(axis)
        return draw_tree(self.trees_[axis], self._names(axis), layers=self._layers(axis), ax=ax)

    def plot_embedding(self, axis: int = HEADS, *, ax: Any = None) -> Any:
        """The first two diffusion coordinates of an axis; heads are coloured by layer."""
        from pyattnorg.pictures import draw_embedding

        axis = self._axis(axis)
        available = min(2, len(self.affinities_[axis]) - 1)
        coordinates = self.embedding(axis, available).coordinates if available else np.zeros((1, 1))
        return draw_embedding(coordinates, self._names(axis), layers=self._layers(axis), ax=ax)

    def plot_affinity(self, axis: int = HEADS, *, ax: Any = None) -> Any:
        """The affinity of an axis in the order of its tree."""
        from pyattnorg.pictures import draw_affinity

        axis = self._axis(axis)
        return draw_affinity(self.affinities_[axis], self.order(axis), self._names(axis), ax=ax)

    def plot_head(self, label: str, *, organized: bool = True, ax: Any = None) -> Any:
        """One head's matrix, queries and keys in the order of their trees or as they came."""
        from pyattnorg.pictures import draw_head

        matrix = self.network.shown(label)
        at = [self.order(axis) if organized else np.arange(n) for axis, n in enumerate(matrix.shape)]
        queries, keys = ([self._names(axis)[i] for i in at[axis]] for axis in (QUERIES, KEYS))
        return draw_head(matrix[np.ix_(*at)], queries, keys, ax=ax)

    def plot_decay(self, *, ax: Any = None) -> Any:
        """Coefficient magnitudes, largest first, in the bases of `entropies`."""
        from pyattnorg.pictures import draw_decay

        return draw_decay(self.decay(), ax=ax)

    def _axis(self, axis: int) -> int:
        return position(axis, "axis", len(self.trees_), "expected")

    def _names(self, axis: int) -> tuple[str, ...]:
        """Names of the points of an axis; their numbers where they have none."""
        given = (self.network.queries, self.network.keys, self.labels)[axis]
        return tuple(str(i) for i in range(self.network.shape[axis])) if given is None else given

    def _layers(self, axis: int) -> NDArray[np.int64] | None:
        return self.network.heads.layer if axis == HEADS else None

    # -- showing it ---------------------------------------------------------------------------------------------

    def summary(self, n: int = 5) -> str:
        """What was found, in one screen of text; the `n` most and least involved heads."""
        n = whole(n, "n", at_least=0)
        q, k, h = self.network.shape
        entropies = self.entropies()
        table = sorted(self.head_table(), key=lambda row: (-row["involvement"], row["position"]))
        folders = self.head_folders()
        tol = self.questionnaire.tol
        settled = f"which moved no tree by more than {tol:g} at last" if tol else "which changed no tree at last"
        state = settled if self.converged_ else "the last of which still changed trees"
        rounds = "1 iteration" if self.n_iter_ == 1 else f"{self.n_iter_} iterations"
        lines = [
            f"{self.network.kind}: {q} queries x {k} keys x {h} heads, {rounds}, {state}",
            *(
                f"{name:8s} tree of {tree.n_levels} levels, {tree.n_folders} folders"
                for name, tree in zip(("queries", "keys", "heads"), self.trees_)
            ),
            "normalised l1 entropy: "
            + ", ".join(f"{entropies[name]:.4f} {name}" for name in ("organized", "given", "shuffled", "entries")),
            f"{counted(folders)}: " + "; ".join(short(folder) for folder in largest_of(folders, 6)),
            "most involved heads:  " + _involved(table[:n]),
            "least involved heads: " + _involved(table[::-1][:n]),
        ]
        left_out = self.network.meta.get("left_out")
        if left_out:
            lines.append(f"left out, seen by nothing: {len(left_out['queries'])} queries, {len(left_out['keys'])} keys")
        return "\n".join(lines)

    def to_frame(self) -> Any:
        """The table of heads as a pandas DataFrame, indexed by label."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_frame needs pandas: pip install pandas, or use head_table()") from None
        return pandas.DataFrame(self.head_table()).set_index("label")

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the organisation to one file (.npz); `pyattnorg.load` reads it back."""
        from pyattnorg.store import save

        save(self, path, overwrite=overwrite)

    def __repr__(self) -> str:
        q, k, h = self.network.shape
        return f"Organization({self.network.kind}, {q} x {k} x {h}, {counted(self.head_folders())})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>"


def _involved(rows: list[dict[str, Any]]) -> str:
    return ", ".join(f"{row['label']} {row['involvement']:.2f}" for row in rows)
