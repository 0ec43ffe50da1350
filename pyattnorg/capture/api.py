"""The two doors for models: `capture` runs one forward, `capturing` watches those that the user runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyattnorg.capture.errors import CaptureError, NoAttentionError, UnsupportedAttentionError
from pyattnorg.capture.inputs import prepare
from pyattnorg.capture.models import LoadedModel, load_model, need
from pyattnorg.capture.result import Capture, build
from pyattnorg.capture.select import HeadChoice, LayerChoice, Selection
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
    kept = _kept(keep)
    selection = Selection.of(layers, heads)
    need("torch", "torch")
    from pyattnorg.capture import running

    net = running.unwrap(loaded.model if loaded is not None else model)
    call = prepare(
        net, inputs, loaded=loaded, tokenizer=tokenizer, processor=processor, example=example, max_length=max_length
    )
    recorder = running.recorder(net, selection, kept, call.example, max_bytes)
    output, recorder = running.run(net, recorder, call, evaluate=evaluate, verify=verify)
    tape = Tape(recorder, Patches.of(net), call.tokens if tokens is None else tuple(tokens), tokenizer)
    return tape.capture(output=output if "output" in kept else None)


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
) -> Iterator[Tape]:
    """Watch a model that the user runs.

    ``with capturing(model) as tape: model(…)``, then ``tape.capture()``.
    Arguments are those of `capture`. The model's mode is left alone unless `evaluate` is true; what is recorded is the
    attention before dropout, and the report says where there was any. Forwards that autograd repeats (checkpointing)
    are recorded once. Only the thread that opened it is watched.
    """
    kept = _kept(keep) - {"output"}
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
    tape = Tape(recorder, Patches.of(net), None if tokens is None else tuple(tokens), tokenizer)
    with running.mode_of(net, evaluate), recorder:
        yield tape


class Tape:
    """What `capturing` has recorded: one entry a forward of the model."""

    def __init__(self, recorder: Recorder, patches: Patches, tokens: tuple[str, ...] | None, tokenizer: Any) -> None:
        self._recorder, self._patches, self._tokens, self._tokenizer = recorder, patches, tokens, tokenizer
        self._made: dict[int, Capture] = {}

    def __len__(self) -> int:
        return len(self._recorder.passes)

    def __repr__(self) -> str:
        return f"Tape({len(self)} forward pass(es))"

    def clear(self) -> None:
        """Forget what was recorded so far."""
        self._recorder.clear()
        self._made.clear()

    def capture(self, index: int | None = None, *, output: Any = None) -> Capture:
        """The capture of one forward; `index` counts from 0 and may be left out where there was one.

        Raises
        ------
        CaptureError
            Nothing was recorded, several forwards were and none was picked, or the forward was not a capture's kind.
        """
        recorder, n = self._recorder, len(self)
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
            self._made[at] = self._make(at, output)
        return self._made[at]

    def _make(self, at: int, output: Any) -> Capture:
        recorder, one = self._recorder, self._recorder.passes[at]
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
        naming = Naming(one.inputs, recorder.example or 0, self._tokens, self._tokenizer, self._patches)
        return build(one.records, naming, one.model, output, one.left_out)


def _kept(keep: Sequence[str]) -> frozenset[str]:
    kept = frozenset([keep] if isinstance(keep, str) else keep)
    if not kept or not kept <= set(_KEEP):
        raise ValueError(f"keep: got {sorted(kept)}, expected some of {list(_KEEP)}")
    return kept


__all__ = ["Tape", "capture", "capturing"]
