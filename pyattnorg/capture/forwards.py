"""Whose forward is running: the chain of modules, the passes they make, and what was given to the model.

Module hooks are global ones, so that nothing is attached to the modules (a hook on a module switches fast paths off),
but for one on the root that reads keyword arguments.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import count
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from pyattnorg.capture.fastpath import FAST, away, refuse_other_output, run_again
from pyattnorg.capture.layout import Batches, Scene, tensors_in
from pyattnorg.capture.passes import Pass
from pyattnorg.capture.places import Places

_TRANSPARENT = (nn.Softmax, nn.Dropout, nn.Identity)  # their forward is part of the module around them


class Guard:
    """Does something of ours inside the model's forward; what it raises is kept for later, the model never sees it."""

    def __init__(self, on_error: Callable[[], None]) -> None:
        self.problem: Exception | None = None
        self._on_error = on_error

    def __call__(self, do: Callable[..., Any], *args: Any) -> None:
        """Call ``do(*args)``."""
        try:
            do(*args)
        except Exception as error:
            if self.problem is None:
                self.problem = error
            self._on_error()


class Forwards:
    """Watches the forwards of one model, in the thread that opened it."""

    def __init__(
        self, model: nn.Module, guard: Guard, on_end: Callable[[], None], *, shapes_only: bool = False
    ) -> None:
        self.root: nn.Module | None = model
        self._shapes_only = shapes_only
        self._kind = type(model).__name__
        self._guard, self._on_end = guard, on_end
        self._modules = dict(model.named_modules())
        self._names = {id(m): name for name, m in self._modules.items()}
        self._kinds = Counter(map(type, self._modules.values()))
        self.passes: list[Pass] = []
        self.places = Places(self._modules)
        self.batches = Batches()
        self.running: list[nn.Module] = []
        self.paused = 0  # while another capture runs within this forward: what it sees is not this model's
        self._calls: list[int] = []  # a number for each running call
        self._numbers = count()
        self.on_return: Callable[[nn.Module, Any, Mapping[str, Any]], None] | None = None  # and of every return
        self.on_call: Callable[[Any, Mapping[str, Any]], None] | None = None  # told of every call's arguments
        self.on_output: Callable[[nn.Module, Any], Any] | None = None  # may give another output of a module
        self.on_pass: Callable[[], None] | None = None
        self.on_batch: Callable[[], None] | None = None  # told when sizes of the model's inputs were read
        self.each_call_is_a_pass = False  # also of a part of the model that is called by itself
        self.ignores_away = False

    def open(self, stack: ExitStack) -> nn.Module:
        """Register the hooks; `stack` removes them."""
        root = self.root
        if root is None:
            raise RuntimeError("a recorder watches once; make another")
        self._thread = threading.get_ident()
        stack.callback(self._forget)
        if not isinstance(root, FAST):
            reading = root.register_forward_pre_hook(self._read_root, with_kwargs=True)
            stack.callback(reading.remove)
        before = module_hooks.register_module_forward_pre_hook(self._before)
        stack.callback(before.remove)
        after = module_hooks.register_module_forward_hook(self._after, with_kwargs=True, always_call=True)
        # remove() leaves this entry behind
        stack.callback(module_hooks._global_forward_hooks_with_kwargs.pop, after.id, None)
        stack.callback(after.remove)
        return root

    def _forget(self) -> None:
        # no circle may keep anything alive
        self.root = self.on_call = self.on_return = self.on_output = self.on_pass = self.on_batch = None
        for held in (self.running, self._calls, self._modules, self._names):
            held.clear()

    def scene(self) -> Scene | None:
        """The module at work, and those around it."""
        return self._scene(self.running)

    def around(self, scene: Scene) -> Scene:
        """The innermost module that was running then and still is: a softmax may have a module of its own."""
        common = [a for a, b in zip(self.running, scene.chain, strict=False) if a is b]
        return self._scene(common) or scene

    def _scene(self, chain: list[nn.Module]) -> Scene | None:
        running = [m for m in chain if not isinstance(m, _TRANSPARENT)]
        if not running:
            return None
        place = self.places.place([self._names[id(m)] for m in running])
        return Scene(place, running[-1], tuple(running[-2:-5:-1]), tuple(chain))

    def call_of(self, scene: Scene, queries: int) -> tuple[object, object]:
        """The call that a map belongs to, and what it has in common with calls of the same module for other tokens.

        One call may give several maps, for queries in chunks or one head at a time, and a module may be called for
        every chunk; by call these would look like layers. A root without modules for its layers is numbered so all the
        same (None), and a shared attention module too if its queries are as many as the input's tokens.
        """
        at = max((i for i, m in enumerate(self.running) if m is scene.module), default=0)
        if at == 0:
            return None, None
        apart = at > 1 and queries not in self.batches.lengths
        return self._calls[at], (self._calls[at - 1], id(scene.module)) if apart else self._calls[at]

    def count_like(self, module: nn.Module) -> int:
        """Modules of the same class in the model."""
        return self._kinds[type(module)]

    def _mine(self, module: nn.Module) -> bool:
        if self.paused or (away() and not self.ignores_away):
            return False
        if threading.get_ident() != self._thread or id(module) not in self._names:
            return False
        # not while autograd runs: what checkpointing computes again there was recorded before
        return bool(torch._C._current_graph_task_id() == -1)

    def _before(self, module: nn.Module, args: Any) -> None:
        if not self._mine(module):
            return
        if not self.running:
            if module is self.root or not self.passes or self.each_call_is_a_pass:
                self.passes.append(Pass(self._kind))
                if self.on_pass is not None:
                    self._guard(self.on_pass)
                self.places.restart()
                self.batches = Batches()
            self._guard(self._read, module, args, {})
        self.running.append(module)
        self._calls.append(next(self._numbers))
        if self.on_call is not None:
            self._guard(self.on_call, args, {})

    def _read_root(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any] | None = None) -> None:
        # another thread may run the module while torch is only half done with registering this: without kwargs
        if kwargs is not None and self._mine(module) and len(self.running) == 1:
            self._guard(self._read, module, args, kwargs)

    def _read(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        if not self._shapes_only:
            self.passes[-1].inputs.read(module, args, kwargs)
        self.batches.read(tensors_in([*args, *kwargs.values()]))
        if self.on_batch is not None:
            self.on_batch()

    def _after(self, module: nn.Module, args: Any, *rest: Any) -> Any:
        if not self._mine(module) or module not in self.running:
            return None
        while self.running and self.running[-1] is not module:
            self.running.pop()  # modules whose forward was left by an exception that was caught further out
        if self.on_return is not None and len(rest) == 2:  # it did not raise
            self._guard(self.on_return, module, args, rest[0])
        self.running.pop()
        del self._calls[len(self.running) :]
        again = None
        raised = len(rest) == 1  # always_call tells of an exception by leaving out the keyword arguments
        fast = isinstance(module, FAST) and not self._shapes_only
        if self.on_output is not None and not raised:
            again = self.on_output(module, rest[1])
        if fast and not raised and not any(isinstance(m, FAST) for m in self.running):
            again = run_again(module, args, rest[0])
            self._guard(refuse_other_output, self._names[id(module)], module, rest[1], again)
        if not self.running:
            self._on_end()
            if self.passes and not raised:
                self.passes[-1].complete = True
        return again


__all__ = ["Forwards", "Guard"]
