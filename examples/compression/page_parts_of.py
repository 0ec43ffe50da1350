"""Tables and pictures, as the page of the paper has them, with the pictures in this page's folder."""

from __future__ import annotations

from typing import Any

import study  # it makes the folder of the paper's page known
from page_parts import figure, show, table
from page_parts import picture as picture_in

__all__ = ["figure", "picture", "show", "table"]


def picture(made: Any, name: str, caption: str) -> str:
    """Write a figure and give the Markdown that shows it."""
    return picture_in(made, name, caption, study.PICTURES)
