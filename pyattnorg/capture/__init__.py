"""Attention out of models: `capture` and `capturing` for PyTorch, `from_arrays` for what other tools returned.

Nothing here imports torch before a model is captured. Ways in: `sdpa` (fused attention), `mha` (torch.nn), `softmax`
(written out), `arrays`. The `recorder` sees calls, `trails` tells attention from any other softmax, `layout` reads
shapes, `places` and `groups` number layers and sort them into tensors. `writing` streams to disk, `stored` reads it;
`survey` and `estimate` tell sizes before anything runs.
"""

from pyattnorg.capture.api import Tape, capture, capturing
from pyattnorg.capture.arrays import from_arrays
from pyattnorg.capture.each import capture_each
from pyattnorg.capture.errors import CaptureError, CaptureTooLargeError, NoAttentionError, UnsupportedAttentionError
from pyattnorg.capture.estimate import Estimate, estimate
from pyattnorg.capture.models import LoadedModel, load_model
from pyattnorg.capture.record import Report
from pyattnorg.capture.result import AttentionGroup, Capture
from pyattnorg.capture.series import load_each
from pyattnorg.capture.stored import load_capture
from pyattnorg.doors import open_door

__all__ = [
    "AttentionGroup",
    "Capture",
    "CaptureError",
    "CaptureTooLargeError",
    "Estimate",
    "LoadedModel",
    "NoAttentionError",
    "Report",
    "Tape",
    "UnsupportedAttentionError",
    "capture",
    "capture_each",
    "capturing",
    "estimate",
    "from_arrays",
    "load_capture",
    "load_each",
    "load_model",
]

open_door(__name__, capture)
