"""One self-contained HTML page about an organisation."""

from pyattnorg.doors import open_door
from pyattnorg.report.page import report

__all__ = ["report"]

open_door(__name__, report)
