"""The two doors for models: `capture` runs one forward, `capturing` watches those that the user runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyattnorg.capture.cut import AxisChoice, Cut
from pyattnorg.capture.errors import CaptureError
from pyattnorg.capture.estimate import check_pass, raise_problem
from pyattnorg.capture.files import store_path
from pyattnorg.capture.inputs import Call, prepare, special_ids
from pyattnorg.capture.keeping import Keeping
from pyattnorg.capture.models import LoadedModel, need, opened
from pyattnorg.capture.passes import Pass
from pyattnorg.capture.result import Capture, build
from pyattnorg.capture.select import HeadChoice, LayerChoice, Selection
from pyattnorg.capture.steps import assembled
from pyattnorg.capture.tokens import Naming, Patches, given_names

if TYPE_CHECKING:
    from pyattnorg.capture.recorder import Recorder
    from pyattnorg.capture.writing import Writer


def capture(
    model: Any,
    inputs: Any,
    *,
    layers: LayerChoice = None,
    heads: HeadChoice = None,
    keep: str | Sequence[str] = ("scores", "weights"),
    queries: AxisChoice = None,
    keys: AxisChoice = None,
    dtype: Any = None,
    store: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
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
    inputs : text, tensor, image, sound, tuple or mapping
        A mapping gives keyword arguments, a tuple positional ones. Text needs a tokenizer: that of a model loaded by
        name, or `tokenizer`. An image (or its path) needs a processor in the same way.
        Sound is the path of a WAV file or an array of samples, for a model loaded by name; a decoder then reads what
        the model hears, or the text of ``{"audio": …, "text": …}``.
    layers : int, str, slice, range or iterable, optional
        Layers to keep, counted from 0: ``3``, ``"0-3,7"``, ``range(4)``.
    heads : int, str, iterable or callable, optional
        Heads to keep: a number in every layer, labels and globs such as ``"L3H*"``, or ``f(layer, head) -> bool``.
    keep : subset of ("scores", "weights", "qk", "output")
        What to keep. ``"qk"`` keeps queries and keys, whose bytes grow with the tokens and not with their square;
        scores and weights of a head are then computed when they are asked for. It needs attention that torch computes
        (``attn_implementation="sdpa"``, `torch.nn.MultiheadAttention`).
    queries, keys : slice, range, int or str, optional
        The part of every map to keep, such as ``slice(0, 128)`` or ``"-64:"``; counted in the model's own tokens.
    dtype : {"float16", "float32", "float64"}, optional
        Of the numbers that are kept; as they were computed without it. Half precision comes back as float32.
    store : path, optional
        Write to this folder while the model runs, a layer at a time, in memory that does not grow with their number.
        The capture that is returned reads it head by head, as `load_capture` does later. If the run is killed, the same
        call completes what is there; a capture that is complete is opened without running the model.
    overwrite : bool
        Replace another capture in that folder.
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
        Not done where only a part is kept, with `dtype`, or on disk.
    **load
        For `load_model`, where `model` is a name; the model's own number format is ``torch_dtype`` here.

    Returns
    -------
    Capture

    Raises
    ------
    CaptureError
        (A ValueError.) No attention seen, attention of a kind that gives no map of the tokens, several examples and
        none picked, or more than fits in memory. The message names the module and what to do.
    DamagedFileError, FileExistsError
        The store holds something else, or a file of it is not what it was; the message names it.
    """
    keeping, selection = Keeping.of(keep, Cut.of(queries, keys), dtype), Selection.of(layers, heads)
    if overwrite and store is None:
        raise ValueError("overwrite: got True without store=, expected the folder to write to")
    name = os.fspath(model) if isinstance(model, (str, os.PathLike)) else getattr(model, "name", "")
    loaded, net = opened(model, load)
    need("torch", "torch")
    from pyattnorg.capture import running
    from pyattnorg.capture.before import check_before

    net = running.unwrap(net)
    call = prepare(
        net, inputs, loaded=loaded, tokenizer=tokenizer, processor=processor, example=example, max_length=max_length
    )
    named = call.tokens if tokens is None else given_names(tokens)
    folder = None if store is None else store_path(store)
    check_before(net, call, selection, keeping, evaluate=evaluate, max_bytes=max_bytes, store=folder)

    def run(writer: Writer | None) -> tuple[Tape, Any]:
        recorder = running.recorder(net, selection, keeping, call.example, max_bytes, writer)
        output, [recorder] = running.run(net, [recorder], call, evaluate=evaluate, verify=verify)
        tape = Tape(recorder, Patches.of(net), named, tokenizer, call.special_ids)
        return tape, output if "output" in keeping else None

    if folder is None:
        tape, output = run(None)
        found = tape.capture(output=output)
        if check_padding:
            from pyattnorg.capture.alone import compare_alone

            compare_alone(net, tape.recorder, call, found, evaluate)
        return found
    from pyattnorg.capture.storing import captured_to

    about = {
        "name": str(name),
        "revision": load.get("revision"),
        "tokens": named,
        "tokenizer": _reader(loaded, tokenizer, call),
    }
    return captured_to(folder, net, call, selection, keeping, run, evaluate=evaluate, overwrite=overwrite, **about)


def _reader(loaded: LoadedModel | None, tokenizer: Any, call: Call) -> Any:
    """The tokenizer that read the input, if one did."""
    if tokenizer is not None or loaded is None or call.tokens is None:
        return tokenizer
    return loaded.tokenizer


@contextlib.contextmanager
def capturing(
    model: Any,
    *,
    layers: LayerChoice = None,
    heads: HeadChoice = None,
    keep: str | Sequence[str] = ("scores", "weights"),
    queries: AxisChoice = None,
    keys: AxisChoice = None,
    dtype: Any = None,
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
    windows, so that maps can be laid out on the grid (`AttentionGroup.on_grid`); `capture` does so by itself, and a
    batch of several examples is followed in any case.
    """
    keeping, selection = Keeping.of(keep, Cut.of(queries, keys), dtype), Selection.of(layers, heads)
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
    recorder = running.recorder(net, selection, keeping, example, max_bytes)
    if windows:
        recorder.follow_positions()
    tape = Tape(recorder, Patches.of(net), given_names(tokens), tokenizer)
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
        self.recorder, self._patches, self._tokens, self._tokenizer = recorder, patches, tokens, tokenizer
        self._special = special or special_ids(tokenizer)
        self._made: dict[int, Capture] = {}
        self._whole: Capture | None = None

    def __len__(self) -> int:
        return len(self.recorder.passes)

    def __repr__(self) -> str:
        return f"Tape({len(self)} forward pass(es))"

    def clear(self) -> None:
        """Forget what was recorded so far."""
        self.recorder.clear()
        self._made.clear()
        self._whole = None

    def capture(self, index: int | None = None, *, output: Any = None) -> Capture:
        """The capture of one forward; `index` counts from 0 and may be left out where there was one.

        Raises
        ------
        CaptureError
            Nothing was recorded, several forwards were and none was picked, or the forward was not a capture's kind.
        """
        recorder, n = self.recorder, len(self)
        if recorder.problem is not None:
            raise_problem(recorder.problem)
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
        if self.recorder.problem is not None:
            raise_problem(self.recorder.problem)
        if not len(self):
            raise CaptureError("capture: the model was not run inside capturing(), or by another thread; call it there")
        if self._made:
            raise CaptureError("generated: passes were taken by .capture() before; call generated() first")
        self._whole = self._make(assembled(self.recorder.passes), None) if self._whole is None else self._whole
        return self._whole

    def _make(self, one: Pass, output: Any) -> Capture:
        check_pass(self.recorder, one, kept=bool(one.records))
        return build(one.records, self.naming(one), one.model, output, one.left_out)

    def naming(self, one: Pass) -> Naming:
        """What names the tokens of a forward."""
        example = self.recorder.intake.example or 0
        return Naming(one.inputs, example, self._tokens, self._tokenizer, self._patches, self._special)


__all__ = ["Tape", "capture", "capturing"]
