"""A capture that goes to disk: begun, taken up again, or found complete."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from pyattnorg.capture.estimate import check_pass
from pyattnorg.capture.files import META, locked
from pyattnorg.capture.identity import job_of
from pyattnorg.capture.inputs import Call
from pyattnorg.capture.keeping import Keeping
from pyattnorg.capture.result import Capture, build
from pyattnorg.capture.select import Selection
from pyattnorg.capture.stored import load_capture, read_root
from pyattnorg.capture.tokens import Vocabulary
from pyattnorg.capture.writing import Writer, refuse_other_job

if TYPE_CHECKING:
    from pyattnorg.capture.api import Tape


def captured_to(
    folder: Path,
    model: nn.Module,
    call: Call,
    selection: Selection,
    keeping: Keeping,
    run: Callable[[Writer | None], tuple[Tape, Any]],
    *,
    name: str,
    revision: str | None,
    tokens: tuple[str, ...] | None,
    tokenizer: Any,
    evaluate: bool,
    overwrite: bool,
) -> Capture:
    """Run the capture into `folder`, and give what reads it; what is complete there is only opened."""
    job = job_of(
        model, call, selection, keeping, name=name, revision=revision, tokenizer=tokenizer, tokens=tokens,
        evaluate=evaluate,
    )  # fmt: skip
    if not overwrite and (folder / META).is_file():
        about = read_root(folder)
        if about["complete"]:
            refuse_other_job(folder, about["job"], job, finished=True)
            if (folder / ".lock").exists():  # killed between its last byte and the end
                with contextlib.suppress(OSError), locked(folder):
                    pass
            capture = load_capture(folder)
            return replace(capture, output=run(None)[1]) if "output" in keeping else capture
    with _told(folder), Writer(folder, job, overwrite=overwrite) as writer:
        tape, output = run(writer)
        recorder = tape.recorder
        one = recorder.passes[-1] if recorder.passes else None
        one = check_pass(recorder, one, kept=one is not None and bool(one.records))
        naming = tape.naming(one)
        if naming.tokenizer is not None:
            naming = replace(naming, tokenizer=Vocabulary.of(naming.tokenizer, naming.inputs))
        seconds = {r.row["module"]: r.row["seconds"] for r in one.records}
        build(list(one.records), naming, one.model)  # refuses what makes no tensors, before it is said to be complete
        writer.finish(naming, one.model, one.left_out)
    capture = load_capture(folder)
    for row in capture.report:
        row["seconds"] = seconds.get(row["module"])
    return replace(capture, output=output)


@contextlib.contextmanager
def _told(folder: Path) -> Iterator[None]:
    """The system's errors say what became of the store, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(
                error.errno,
                f"store: {error.strerror} for {folder}: its disk is full; layers that are whole stay, so make room and "
                "call it again, or take less with layers=, heads=, dtype='float16' or keep=('weights',)",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise type(error)(
                error.errno, f"store: {folder} cannot be written ({error.strerror}); choose a folder of your own"
            ) from error
        raise


__all__ = ["captured_to"]
