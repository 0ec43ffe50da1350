"""The two doors for models: `capture` runs one forward, `capturing` watches those that the user runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyattnorg.capture.errors import CaptureError, NoAttentionError, UnsupportedAttentionError
from pyattnorg.capture.inputs import Call, prepare, special_ids
from pyattnorg.capture.models import LoadedModel, load_model, need
from pyattnorg.capture.passes import Pass, by_name
from pyattnorg.capture.result import Capture, build
from pyattnorg.capture.select import HeadChoice, LayerChoice, Selection
from pyattnorg.capture.steps import assembled
from pyattnorg.capture.tokens import Naming, Patches

if TYPE_CHECKING:
    from pyattnorg.capture.recorder import Recorder

_KEEP = ("scores", "weights", "output")


def capture(
    model: Any,
    inputs: Any,
    *,
    layers: LayerChoice = None,
    heads: HeadChoice = None,
    keep: Sequence[str] = ("scores", "weights"),
    example: int | None = None,
    tokens: Sequence[str] | None = None,
    tokenizer: Any = None,
    processor: Any = None,
    verify: bool = False,
    evaluate: bool = True,
    max_length: int | None = None,
    max_bytes: int | None = None,
    check_padding: bool = True,
    **load: Any,
) -> Capture:
    """Run a model once and take the attention of every head, before and after softmax.

    The model is left as it was: same output, same mode, no hooks, whatever happens inside.

    Parameters
    ----------
    model : torch.nn.Module, LoadedModel or str
        Any PyTorch model whose attention is ``scaled_dot_product_attention``, ``torch.nn.MultiheadAttention`` or a
        softmax written out. A name or folder is loaded by `load_model`, with further keyword arguments.
    inputs : text, tensor, image, tuple or mapping
        A mapping gives keyword arguments, a tuple positional ones. Text needs a tokenizer: that of a model loaded by
        name, or `tokenizer`. An image (or its path) needs a processor in the same way.
    layers : int, str, slice, range or iterable, optional
        Layers to keep, counted from 0: ``3``, ``"0-3,7"``, ``range(4)``.
    heads : int, str, iterable or callable, optional
        Heads to keep: a number in every layer, labels and globs such as ``"L3H*"``, or ``f(layer, head) -> bool``.
    keep : subset of ("scores", "weights", "output")
        What to hold in memory.
    example : int, optional
        Which example of a batch; needed where there are several. Its padding is left out.
    tokens : sequence of str, optional
        Names of the tokens, where no tokenizer gives them.
    tokenizer, processor : optional
        For text and images.
    verify : bool
        Run the model once more without capture, and compare outputs bit for bit.
    evaluate : bool
        Run in evaluation mode (no dropout), whatever mode the model is in; it is put back afterwards.
    max_length : int, optional
        Cut text to this many tokens.
    max_bytes : int, optional
        Refuse a capture larger than this; by default what the machine's free memory allows.
    check_padding : bool
        Where the example is padded, run it alone too and compare: the report has the difference (``padding_error``)
        and warns where padding changes what the model does, as without ``position_ids`` that follow the mask.
    **load
        For `load_model`, where `model` is a name.

    Returns
    -------
    Capture

    Raises
    ------
    CaptureError
        (A ValueError.) No attention seen, attention of a kind that gives no map of the tokens, several examples and
        none picked, or more than fits in memory. The message names the module and what to do.
    """
    loaded = model if isinstance(model, LoadedModel) else None
    if isinstance(model, str) or hasattr(model, "__fspath__"):
        loaded = load_model(model, **load)
    elif load:
        raise TypeError(f"capture: unexpected argument(s) {sorted(load)}; loading options go with a model's name")
    kept = kinds_of(keep)
    selection = Selection.of(layers, heads)
    need("torch", "torch")
    from pyattnorg.capture import running

    net = running.unwrap(loaded.model if loaded is not None else model)
    call = prepare(
        net, inputs, loaded=loaded, tokenizer=tokenizer, processor=processor, example=example, max_length=max_length
    )
    recorder = running.recorder(net, selection, kept, call.example, max_bytes)
    output, [recorder] = running.run(net, [recorder], call, evaluate=evaluate, verify=verify)
    names = call.tokens if tokens is None else tuple(tokens)
    tape = Tape(recorder, Patches.of(net), names, tokenizer, call.special_ids)
    found = tape.capture(output=output if "output" in kept else None)
    if check_padding:
        compare_alone(net, recorder, call, found, evaluate)
    return found


@contextlib.contextmanager
def capturing(
    model: Any,
    *,
    layers: LayerChoice = None,
    heads: HeadChoice = None,
    keep: Sequence[str] = ("scores", "weights"),
    example: int | None = None,
    tokens: Sequence[str] | None = None,
    tokenizer: Any = None,
    evaluate: bool = False,
    max_bytes: int | None = None,
    windows: bool = False,
) -> Iterator[Tape]:
    """Watch a model that the user runs.

    ``with capturing(model) as tape: model(…)``, then ``tape.capture()``.
    Arguments are those of `capture`. The model's mode is left alone unless `evaluate` is true; what is recorded is the
    attention before dropout, and the report says where there was any. Forwards that autograd repeats (checkpointing)
    are recorded once. Only the thread that opened it is watched. `windows` follows where tokens go on their way into
    windows, so that maps can be laid out on the grid (`AttentionGroup.on_grid`); `capture` does so by itself.
    """
    kept = kinds_of(keep) - {"output"}
    selection = Selection.of(layers, heads)
    net = model.model if isinstance(model, LoadedModel) else model
    if (
        isinstance(model, LoadedModel)
        and tokenizer is None
        and model.library == "transformers"
        and not model.takes_images
    ):
        tokenizer = model.tokenizer
    need("torch", "torch")
    from pyattnorg.capture import running

    running.refuse_wrapped(net)
    net = running.unwrap(net)
    recorder = running.recorder(net, selection, kept, example, max_bytes)
    if windows:
        recorder.follow_positions()
    tape = Tape(recorder, Patches.of(net), None if tokens is None else tuple(tokens), tokenizer)
    with running.mode_of(net, evaluate), recorder:
        yield tape


class Tape:
    """What `capturing` has recorded: one entry a forward of the model."""

    def __init__(
        self,
        recorder: Recorder,
        patches: Patches,
        tokens: tuple[str, ...] | None,
        tokenizer: Any,
        special: frozenset[int] = frozenset(),
    ) -> None:
        self._recorder, self._patches, self._tokens, self._tokenizer = recorder, patches, tokens, tokenizer
        self._special = special or special_ids(tokenizer)
        self._made: dict[int, Capture] = {}
        self._whole: Capture | None = None

    def __len__(self) -> int:
        return len(self._recorder.passes)

    def __repr__(self) -> str:
        return f"Tape({len(self)} forward pass(es))"

    def clear(self) -> None:
        """Forget what was recorded so far."""
        self._recorder.clear()
        self._made.clear()
        self._whole = None

    def capture(self, index: int | None = None, *, output: Any = None) -> Capture:
        """The capture of one forward; `index` counts from 0 and may be left out where there was one.

        Raises
        ------
        CaptureError
            Nothing was recorded, several forwards were and none was picked, or the forward was not a capture's kind.
        """
        recorder, n = self._recorder, len(self)
        self._check_problem()
        if index is None and n > 1:
            raise CaptureError(
                f"index: the tape holds {n} forward passes, expected one; take .capture(0) to .capture({n - 1})"
            )
        if n == 0 or not -n <= (index or 0) < n:
            raise CaptureError(
                "capture: the model was not run inside capturing(), or by another thread; call it there"
                if n == 0
                else f"index: got {index}, the tape holds {n} forward pass(es), counted from 0"
            )
        at = (index or 0) % n
        if at not in self._made:
            self._made[at] = self._make(recorder.passes[at], output)
        return self._made[at]

    def generated(self) -> Capture:
        """The capture of a generation: the prompt's forward and one forward a new token, as one tensor.

        Queries are those of all steps, keys those of the last one; what a step did not see yet is not visible. Made for
        greedy search and sampling: beams change places from step to step, and their rows would not be one text's.

        Raises
        ------
        CaptureError
            The passes do not follow one another, or some were taken out by `capture` before.
        """
        self._check_problem()
        if not len(self):
            raise CaptureError("capture: the model was not run inside capturing(), or by another thread; call it there")
        if self._made:
            raise CaptureError("generated: passes were taken by .capture() before; call generated() first")
        self._whole = self._make(assembled(self._recorder.passes), None) if self._whole is None else self._whole
        return self._whole

    def _check_problem(self) -> None:
        recorder = self._recorder
        if recorder.problem is not None:
            error = recorder.problem
            if isinstance(error, CaptureError):
                raise error
            first = next(iter(str(error).splitlines()), "")
            raise CaptureError(
                f"capture: recording failed ({type(error).__name__}: {first}), "
                "expected plain tensors; under torch.func or with tensors of another kind run the model without them, "
                "else please report this"
            ) from error

    def _make(self, one: Pass, output: Any) -> Capture:
        recorder = self._recorder
        if not one.complete:
            raise CaptureError("capture: the forward did not end (it raised, or is still running); run it again")
        if not one.records and not one.seen and one.left_out:
            raise UnsupportedAttentionError(one.left_out[0])
        if not one.records and not one.seen:
            raise NoAttentionError(recorder.explain_nothing(one))
        lost = one.lost()
        if lost is not None:
            raise UnsupportedAttentionError(
                f"{lost.module}: its softmax of shape {lost.shape} is not attention as it can be captured here "
                f"({lost.reason}), and the capture would lack it; this kind is not supported in this version"
            )
        selection = recorder.selection
        lacking = selection.missing(one.seen)
        if lacking or not one.records:
            what = f"layers: got {lacking}" if lacking else f"{selection.text} leaves no head"
            raise CaptureError(f"{what}, the model has layers {min(one.seen)} to {max(one.seen)}; ask for those")
        example = recorder.example or 0
        naming = Naming(one.inputs, example, self._tokens, self._tokenizer, self._patches, self._special)
        return build(one.records, naming, one.model, output, one.left_out)


def compare_alone(net: Any, recorder: Recorder, call: Call, found: Capture, evaluate: bool) -> None:
    """Run a padded example alone, and say in the report of `found` whether its maps are the same."""
    from pyattnorg.capture import padding, running

    alone = padding.cropped(by_name(net, call.args, call.kwargs), recorder.passes[-1].inputs, recorder.example or 0)
    if alone is None:
        return
    kinds = {kind for group in found.groups.values() for kind in group.tensors}
    kept = frozenset(["weights" if "weights" in kinds else "scores"])
    other = running.recorder(net, recorder.selection, kept, None, recorder.max_bytes)
    try:
        _, [other] = running.run(net, [other], Call(kwargs=alone), evaluate=evaluate)
        padding.judge(found, Tape(other, Patches(), None, None).capture())
    except Exception as error:  # whatever the model does with the shorter input
        padding.unchecked(found, error)


def kinds_of(keep: Sequence[str]) -> frozenset[str]:
    """What `keep` asks for."""
    kept = frozenset([keep] if isinstance(keep, str) else keep)
    if not kept or not kept <= set(_KEEP):
        raise ValueError(f"keep: got {sorted(kept)}, expected some of {list(_KEEP)}")
    return kept


__all__ = ["Tape", "capture", "capturing", "compare_alone", "kinds_of"]
