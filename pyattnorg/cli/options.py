"""Options that several commands share."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Kind(str, Enum):
    """Attention after softmax, or before it."""

    weights = "weights"
    scores = "scores"


Model = Annotated[
    str | None, typer.Argument(metavar="MODEL", show_default=False, help="A transformers id or folder, or timm/NAME.")
]
ModelOption = Annotated[
    str | None, typer.Option("--model_name_or_path", "--model", hidden=True, help="MODEL, as other tools spell it.")
]
Texts = Annotated[list[str] | None, typer.Option("--text", help="Text to read; may be given several times.")]
TextFiles = Annotated[list[Path] | None, typer.Option("--text-file", help="File with a text (UTF-8); also several.")]
Images = Annotated[list[Path] | None, typer.Option("--image", help="Image to look at; also several.")]
Text = Annotated[str | None, typer.Option(help="Text to read.")]
TextFile = Annotated[Path | None, typer.Option(help="File with the text (UTF-8).")]
Image = Annotated[Path | None, typer.Option(help="Image to look at.")]
Layers = Annotated[str | None, typer.Option(help="Layers to look at, from 0: '0-3,7'. All without it.")]
HeadsSeen = Annotated[
    str | None, typer.Option("--heads", help="Heads to look at: 'L3H*', 'L0H1,L5H2'. All without it.")
]
Group = Annotated[str | None, typer.Option(help="Part of a model that has several, such as 'encoder'.")]
MaxLength = Annotated[int | None, typer.Option(min=1, help="Cut the text to this many tokens.")]
Device = Annotated[str | None, typer.Option(help="Device to run the model on, such as 'cuda'.")]
Dtype = Annotated[str | None, typer.Option(help="Number format of the model, such as 'bfloat16'.")]
Revision = Annotated[str | None, typer.Option(help="Revision of a model on a hub.")]
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


__all__ = [
    "Debug",
    "Device",
    "Dtype",
    "Group",
    "HeadsSeen",
    "Image",
    "Images",
    "Json",
    "Kind",
    "Layers",
    "MaxLength",
    "Model",
    "ModelOption",
    "Overwrite",
    "Quiet",
    "Revision",
    "Setting",
    "Text",
    "TextFile",
    "TextFiles",
    "Texts",
    "Threads",
    "named_model",
]
