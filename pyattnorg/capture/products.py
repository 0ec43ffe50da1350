"""Matrix products as the model calls them: which operand is which, and what is summed over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

NAMES = {"matmul", "__matmul__", "__rmatmul__", "bmm", "baddbmm", "baddbmm_", "einsum"}


@dataclass(frozen=True)
class Factors:
    """Two operands of a product; `bias` is what it is added to.

    For einsum, `equation` holds the labels of the operands and of the result.
    """

    left: Tensor
    right: Tensor
    bias: Tensor | None = None
    equation: tuple[str, str, str] | None = None

    @property
    def key_side(self) -> Tensor:
        """For scores: the operand that holds the keys, which is the one with the last label of the result."""
        if self.equation is None or self.equation[2][-1:] in self.equation[1]:
            return self.right
        return self.left

    @property
    def channels_first(self) -> bool:
        """For scores: whether what is summed over lies further apart in memory than the queries do."""
        if self.equation is None:
            return bool(self.left.stride(-1) > self.left.stride(-2))
        mine, other, out = self.equation
        x = self.left
        if self.key_side is self.left:
            mine, other, x = other, mine, self.right
        summed = [i for i, label in enumerate(mine) if label in other and label not in out]
        query = mine.find(out[-2:-1])
        offset = x.ndim - len(mine)
        return bool(summed) and query >= 0 and x.stride(offset + summed[-1]) > x.stride(offset + query)

    def summed(self, x: Tensor) -> int:
        """The axis of an operand of scores that is summed over: the width of its heads (a negative number)."""
        if self.equation is None:
            return -1 if x is self.left else -2
        mine, other, out = self.equation
        if x is self.right and x is not self.left:
            mine, other = other, mine
        return next((i - len(mine) for i, label in enumerate(mine) if label in other and label not in out), -1)

    def sums_over(self, x: Tensor, axis: int, kept: int) -> bool:
        """Whether the product sums over axis `axis` of operand `x` and keeps axis `kept` (negative numbers)."""
        if self.equation is None:
            return (x is self.left and axis == -1) or (x is self.right and axis == -2 and x.ndim >= 2)
        mine, other, out = self.equation
        if x is self.right and x is not self.left:
            mine, other = other, mine
        if len(mine) < max(-axis, -kept):
            return False
        summed, stays = mine[axis], mine[kept]
        return summed not in out and summed in other and stays in out

    def width(self, x: Tensor) -> int:
        """Width of the values that the weights `x` weigh."""
        y = self.right if x is self.left else self.left
        if self.equation is None:
            return int(y.shape[-1] if x is self.left else y.shape[-2])
        mine, other, out = self.equation
        if x is self.right and x is not self.left:
            mine, other = other, mine
        width = 1
        for label, size in zip(other, y.shape[-len(other) :], strict=False):
            width *= size if label in out and label not in mine else 1
        return int(width)


def function_name(func: Any) -> str:
    """The bare name of an intercepted function, of a property for its getter."""
    name = str(getattr(func, "__name__", ""))
    if name == "__get__":
        return str(getattr(getattr(func, "__self__", None), "__name__", name))
    return name.partition(".")[0]  # an aten overload is called softmax.int


def factors(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Factors | None:
    """The operands of a call of one of `NAMES`; None where it is not a product of two tensors."""
    if name == "einsum":
        return _einsum(args)
    if name.startswith("baddbmm"):
        bias, left, right = _take(args, kwargs, ("input", "batch1", "batch2"))
    else:
        bias = None
        left, right = _take(args, kwargs, ("input", "mat2" if name == "bmm" else "other"))
        if name == "__rmatmul__":
            left, right = right, left
    if not isinstance(left, Tensor) or not isinstance(right, Tensor) or left.ndim < 2 or right.ndim < 2:
        return None
    return Factors(left, right, bias if isinstance(bias, Tensor) else None)


def _take(args: Sequence[Any], kwargs: Mapping[str, Any], names: tuple[str, ...]) -> list[Any]:
    given = list(args)
    return [kwargs[n] if n in kwargs else given.pop(0) if given else None for n in names]


def _einsum(args: Sequence[Any]) -> Factors | None:
    if not args or not isinstance(args[0], str):
        return None
    operands = list(args[1]) if len(args) == 2 and isinstance(args[1], (list, tuple)) else list(args[1:])
    left_side, arrow, out = args[0].replace(" ", "").replace("...", "").partition("->")
    terms = left_side.split(",")
    if not arrow or len(terms) != 2 or len(operands) != 2 or not all(isinstance(x, Tensor) for x in operands):
        return None
    return Factors(operands[0], operands[1], None, (terms[0], terms[1], out))


__all__ = ["NAMES", "Factors", "factors", "function_name"]
