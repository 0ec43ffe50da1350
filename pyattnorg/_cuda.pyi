import numpy as np
from numpy.typing import NDArray

__version__: str

class Place:
    def __init__(self, device: int, stream: int) -> None: ...

class Walk:
    def __init__(
        self, steps: NDArray[np.uint8], there: int, leaf: int, leaf_scale: int, n_leaves: int, concentration: float
    ) -> None: ...

def device_count() -> int: ...
def pairwise_work(points: int, features: int, term: str, split: int, wide: bool) -> int: ...
def pairwise(
    number: str,
    x: int,
    shape: tuple[int, int],
    stride: tuple[int, int],
    weights: int,
    term: str,
    split: int,
    out: int,
    work: int,
    place: Place,
) -> None: ...
def tree_emd_work(points: int, a: Walk, b: Walk, wide: bool) -> int: ...
def tree_emd(
    number: str,
    x: int,
    shape: tuple[int, int, int],
    stride: tuple[int, int, int],
    a: Walk,
    b: Walk,
    out: int,
    work: int,
    place: Place,
) -> None: ...
def folder_averages(number: str, x: int, outer: int, inner: int, tree: Walk, out: int, place: Place) -> None: ...
def haar_work(outer: int, n: int, inner: int, wide: bool) -> int: ...
def haar(
    number: str,
    x: int,
    shape: tuple[int, int, int],
    tree: tuple[int, int, int],
    n_rounds: int,
    inverse: bool,
    out: int,
    work: int,
    place: Place,
) -> None: ...
def rotations(sizes: NDArray[np.int32]) -> NDArray[np.float64]: ...
def norms_work(n: int) -> int: ...
def norms(number: str, x: int, n: int, out: int, work: int, place: Place) -> None: ...
def cosines(number: str, x: int, n: int, work: int, place: Place) -> None: ...
def gaussian(number: str, x: int, n: int, widths: int, place: Place) -> None: ...
def exponential(number: str, x: int, n: int, width: float, place: Place) -> None: ...
def ranked_work() -> int: ...
def ranked(number: str, values: int, n: int, rank: int, out: int, work: int, place: Place) -> None: ...
def merge_work(n: int, wide: bool) -> int: ...
def merge_start(number: str, distances: int, n: int, work: int, place: Place) -> None: ...
def merge_passes(
    number: str,
    x: int,
    shape: tuple[int, int, int],
    passes: int,
    merges: int,
    costs: int,
    left: int,
    work: int,
    place: Place,
) -> None: ...
def weigh_features_work(features: int, wide: bool) -> int: ...
def weigh_features(
    number: str,
    x: int,
    shape: tuple[int, int],
    noise: float,
    columns: int,
    factors: int,
    kept: int,
    work: int,
    place: Place,
) -> None: ...
def close_gaps(
    number: str, x: int, shape: tuple[int, int], columns: int, factors: int, kept: int, place: Place
) -> None: ...
def around_work(n: int, features: int, wide: bool) -> int: ...
def around(
    number: str,
    x: int,
    shape: tuple[int, int],
    steps: int,
    first: int,
    near: int,
    counts: tuple[int, int],
    out: int,
    work: int,
    place: Place,
) -> None: ...

class Interchange:
    def __init__(self, merges: NDArray[np.int32]) -> None: ...
    def plan(self) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint8]]: ...
    def learn(self, found: NDArray[np.float64]) -> None: ...
    def exchange(self, least_share: float, least_gain: float) -> bool: ...
    def give(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]: ...
