"""Between calls and records: how a map's axes are read, where its tokens lie, what is left out of a capture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyattnorg.capture.batched import by_examples, heads_last, unsure
from pyattnorg.capture.errors import ChannelsError, PositionsWanted, UnsupportedAttentionError, UnsureError
from pyattnorg.capture.layout import Layout, Scene, read_layout
from pyattnorg.capture.positions import Positions
from pyattnorg.capture.products import Factors
from pyattnorg.capture.trails import Lie

if TYPE_CHECKING:
    from pyattnorg.capture.recorder import Recorder


def read_map(recorder: Recorder, scene: Scene, shape: Sequence[int], lie: Lie = (None, None)) -> tuple[Layout, Lie]:
    """How a map's axes are to be read, and where its queries and keys lie if they were followed."""
    own = recorder.reads(shape, scene)
    queries, keys = (None if rows is None else rows.fit(tuple(shape[:-2])) for rows in lie)
    if own is not None:
        rows = keys if queries is None else queries
        return heads_last(shape, own, rows, scene, recorder.forwards.batches), (None, None)
    wanted = recorder.positions is None and recorder.may_restart
    try:
        layout = read_layout(shape, scene, recorder.batches, keys if queries is None else queries)
    except UnsupportedAttentionError:
        if wanted and len(shape) > 2:
            raise PositionsWanted(f"{scene.name}: attention within windows") from None
        raise
    if layout.windowed is not None and wanted:
        raise PositionsWanted(f"{scene.name}: attention within windows")
    if wanted and unsure(layout, recorder.batches):
        raise PositionsWanted(f"{scene.name}: heads and examples that sizes do not tell apart")
    return by_examples(layout, keys if queries is None else queries, scene, recorder.batches), (queries, keys)


def lie_of(positions: Positions | None, found: Factors) -> Lie:
    """Where queries and keys of a product lie, if they are followed."""
    if positions is None:
        return None, None
    keys = found.key_side
    queries = found.left if keys is found.right else found.right
    return positions.rows(queries, found.summed(queries)), positions.rows(keys, found.summed(keys))


def watched(recorder: Recorder, see: Callable[..., Any], scene: Scene, *given: Any) -> Any:
    """Look at a call of attention; what is attention over channels is left out, and said."""
    try:
        return see(recorder, scene, *given)
    except ChannelsError as error:
        recorder.passes[-1].left_out.append(str(error))
    except UnsureError as error:
        if recorder.positions is None and recorder.may_restart:
            raise PositionsWanted(str(error)) from None
        raise
    return True


__all__ = ["lie_of", "read_map", "watched"]
