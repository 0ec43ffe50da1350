"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the results of an earlier run.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors (and what --json asks for).")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, and nothing else, on standard output.")]
Debug = Annotated[bool, typer.Option("--debug", envvar="PYATTNORG_DEBUG", help="Show where an error came from.")]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other option of the questionnaire, such as alpha=0.5 or alpha=[0,0,1]; also several.",
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads to use; results do not depend on it.")]


def named_model(model: str | None, model_name_or_path: str | None) -> str:
    """The one model that was given, in whichever spelling."""
    named = model or model_name_or_path
    if named is None or (model and model_name_or_path):
        raise typer.BadParameter("give one model: an id, a folder, or timm/NAME", param_hint="MODEL")
    return named


__all__ = ["Debug", "Json", "Overwrite", "Quiet", "Setting", "Threads", "named_model"]
