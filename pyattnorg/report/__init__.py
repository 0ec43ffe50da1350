"""One self-contained HTML page about an organisation."""

from pyattnorg.report.page import report

__all__ = ["report"]
