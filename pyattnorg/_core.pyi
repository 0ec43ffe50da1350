from typing import overload

import numpy as np
from numpy.typing import NDArray

__version__: str

krylov_vectors: int

class Program:
    def __init__(
        self,
        leaf: NDArray[np.int32],
        slot: NDArray[np.int32],
        add: NDArray[np.uint8],
        scale: NDArray[np.float64],
        n_leaves: int,
    ) -> None: ...

class HaarPlan:
    def __init__(self, steps: NDArray[np.int32], slot: NDArray[np.int32]) -> None: ...

@overload
def pairwise(
    x: NDArray[np.float32],
    weights: NDArray[np.float32] | None,
    term: str,
    split: int,
    out: NDArray[np.float32],
    threads: int,
) -> None: ...
@overload
def pairwise(
    x: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
    term: str,
    split: int,
    out: NDArray[np.float64],
    threads: int,
) -> None: ...
@overload
def tree_emd(x: NDArray[np.float32], a: Program, b: Program, out: NDArray[np.float32], threads: int) -> None: ...
@overload
def tree_emd(x: NDArray[np.float64], a: Program, b: Program, out: NDArray[np.float64], threads: int) -> None: ...
@overload
def folder_averages(
    x: NDArray[np.float32],
    parent: NDArray[np.int32],
    size: NDArray[np.int32],
    leaf: NDArray[np.int32],
    out: NDArray[np.float32],
    threads: int,
) -> None: ...
@overload
def folder_averages(
    x: NDArray[np.float64],
    parent: NDArray[np.int32],
    size: NDArray[np.int32],
    leaf: NDArray[np.int32],
    out: NDArray[np.float64],
    threads: int,
) -> None: ...
@overload
def haar(
    x: NDArray[np.float32], plans: list[HaarPlan | None], inverse: bool, out: NDArray[np.float32], threads: int
) -> bool: ...
@overload
def haar(
    x: NDArray[np.float64], plans: list[HaarPlan | None], inverse: bool, out: NDArray[np.float64], threads: int
) -> bool: ...
@overload
def norms(x: NDArray[np.float32], threads: int) -> tuple[float, float]: ...
@overload
def norms(x: NDArray[np.float64], threads: int) -> tuple[float, float]: ...
@overload
def symmetry(x: NDArray[np.float32], threads: int) -> tuple[float, float, float]: ...
@overload
def symmetry(x: NDArray[np.float64], threads: int) -> tuple[float, float, float]: ...
@overload
def median(values: NDArray[np.float32]) -> float: ...
@overload
def median(values: NDArray[np.float64]) -> float: ...
@overload
def entropy_tree(
    x: NDArray[np.float32],
    features: int,
    distances: NDArray[np.float32],
    merges: NDArray[np.int32],
    costs: NDArray[np.float64],
    threads: int,
) -> None: ...
@overload
def entropy_tree(
    x: NDArray[np.float64],
    features: int,
    distances: NDArray[np.float64],
    merges: NDArray[np.int32],
    costs: NDArray[np.float64],
    threads: int,
) -> None: ...
@overload
def improve_tree(
    x: NDArray[np.float32],
    merges: NDArray[np.int32],
    costs: NDArray[np.float64],
    most_sweeps: int,
    least_share: float,
    least_gain: float,
    threads: int,
) -> int: ...
@overload
def improve_tree(
    x: NDArray[np.float64],
    merges: NDArray[np.int32],
    costs: NDArray[np.float64],
    most_sweeps: int,
    least_share: float,
    least_gain: float,
    threads: int,
) -> int: ...
@overload
def shrink_features(x: NDArray[np.float32], noise: float, threads: int) -> int: ...
@overload
def shrink_features(x: NDArray[np.float64], noise: float, threads: int) -> int: ...
def flexible_tree(
    phi: NDArray[np.float64], rate: NDArray[np.float64], constant: float, threads: int
) -> NDArray[np.int32]: ...
@overload
def krylov(
    k: NDArray[np.float32],
    f: NDArray[np.float64],
    basis: NDArray[np.float64],
    known: int,
    have: int,
    want: int,
    projected: NDArray[np.float64],
    residual: NDArray[np.float64],
    threads: int,
) -> None: ...
@overload
def krylov(
    k: NDArray[np.float64],
    f: NDArray[np.float64],
    basis: NDArray[np.float64],
    known: int,
    have: int,
    want: int,
    projected: NDArray[np.float64],
    residual: NDArray[np.float64],
    threads: int,
) -> None: ...
@overload
def products(k: NDArray[np.float32], vectors: NDArray[np.float64], out: NDArray[np.float64], threads: int) -> None: ...
@overload
def products(k: NDArray[np.float64], vectors: NDArray[np.float64], out: NDArray[np.float64], threads: int) -> None: ...
def tree_distance(
    order_a: NDArray[np.int32],
    common_a: NDArray[np.int32],
    order_b: NDArray[np.int32],
    common_b: NDArray[np.int32],
    threads: int,
) -> int: ...
def instruction_set() -> str: ...
def instruction_sets() -> list[str]: ...
def use_instruction_set(name: str) -> None: ...
