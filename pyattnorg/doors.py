"""Packages that are called by their own name: `pyattnorg.capture` is a package, and its main function too."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def open_door(name: str, function: Callable[..., Any]) -> None:
    """Let the module `name` be called like `function`, so that no order of imports makes one hide the other."""

    class Door(ModuleType):
        __call__ = staticmethod(function)

    Door.__doc__ = function.__doc__
    module = sys.modules[name]
    module.__class__ = Door
    module.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
