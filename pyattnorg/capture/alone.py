"""Whether padding changed a capture: the example is run alone as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyattnorg.capture.api import Tape
from pyattnorg.capture.inputs import Call
from pyattnorg.capture.keeping import Keeping
from pyattnorg.capture.passes import by_name
from pyattnorg.capture.result import Capture
from pyattnorg.capture.tokens import Patches

if TYPE_CHECKING:
    from pyattnorg.capture.recorder import Recorder


def compare_alone(net: Any, recorder: Recorder, call: Call, found: Capture, evaluate: bool) -> None:
    """Run a padded example alone, and say in the report of `found` whether its maps are the same."""
    from pyattnorg.capture import padding, running

    keeping = recorder.intake.keeping
    if keeping.cut.text or keeping.dtype is not None or not keeping.maps:
        return  # parts, rounded maps, and those that are not there are nothing to compare
    alone = padding.cropped(
        by_name(net, call.args, call.kwargs), recorder.passes[-1].inputs, recorder.intake.example or 0
    )
    if alone is None:
        return
    kinds = {kind for group in found.groups.values() for kind in group.tensors}
    keeping = Keeping.of("weights" if "weights" in kinds else "scores")
    other = running.recorder(net, recorder.intake.selection, keeping, None, recorder.intake.max_bytes)
    try:
        _, [other] = running.run(net, [other], Call(kwargs=alone), evaluate=evaluate)
        padding.judge(found, Tape(other, Patches(), None, None).capture())
    except Exception as error:  # whatever the model does with the shorter input
        padding.unchecked(found, error)


__all__ = ["compare_alone"]
