"""What the pruning experiment prunes, and what it judges by: three models, each with calibration and held-out inputs.

Texts are the topics of Python's own help (`pydoc_data`, PSF licence), images scikit-learn's digits (CC BY 4.0). A
`split` is a draw of calibration inputs; held-out inputs are the same in all splits and never among them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

HERE = Path(__file__).parent
SMOLLM2 = HERE.parents[1] / "models" / "smollm2-135m"  # written by examples/models/smollm2.py
TOKENS = 128


@dataclass(frozen=True)
class Task:
    """A model, its calibration inputs by split, and `judge`: one number for every held-out unit, the lower the better.

    `relative` says how a mean over units becomes the loss that is plotted, given that of the whole model.
    """

    name: str
    title: str
    metric: str
    model: Any
    calibration: list[list[Any]]
    judge: Callable[[], np.ndarray[Any, Any]]
    shares: tuple[float, ...]
    loss: Callable[[Any, Any], Tensor] | None
    budget: Callable[[float], float]  # what is 1 % of loss, from the whole model's


def _topics() -> list[str]:
    from pydoc_data.topics import topics

    return [topics[name] for name in sorted(topics)]


def smollm2(splits: int) -> Task:
    """SmolLM2-135M-Instruct: perplexity of the next token."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not (SMOLLM2 / "config.json").is_file():
        raise FileNotFoundError(f"{SMOLLM2} is not there; run: python examples/models/smollm2.py")
    model = AutoModelForCausalLM.from_pretrained(SMOLLM2).eval()
    ids = AutoTokenizer.from_pretrained(SMOLLM2)("\n".join(_topics()), return_tensors="pt").input_ids[0]
    pieces = ids[: len(ids) // TOKENS * TOKENS].reshape(-1, TOKENS)
    order = np.random.default_rng(0).permutation(len(pieces))
    held = pieces[order[:4]]
    calibration = [[{"input_ids": pieces[i][None]} for i in order[4 + 3 * s : 7 + 3 * s]] for s in range(splits)]

    def judge() -> np.ndarray[Any, Any]:
        with torch.no_grad():
            logits = model(input_ids=held).logits
        each = F.cross_entropy(logits[:, :-1].transpose(1, 2).float(), held[:, 1:], reduction="none")
        return each.mean(1).double().numpy()

    shares = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
    metric = "nats a token"
    title = "SmolLM2-135M, 270 heads"
    return Task("smollm2", title, metric, model, calibration, judge, shares, None, lambda x: x * 0.01)


def minilm(splits: int) -> Task:
    """all-MiniLM-L6-v2: how far a sentence's embedding turns away from the whole model's."""
    from transformers import AutoModel, AutoTokenizer

    from pyattnorg.cli.sources import demo_model

    model = AutoModel.from_pretrained(demo_model()).eval()
    tokenizer = AutoTokenizer.from_pretrained(demo_model())
    texts = [" ".join(p.split()) for topic in _topics() for p in topic.split("\n\n") if 200 < len(p) < 400]
    order = np.random.default_rng(0).permutation(len(texts))
    encoded = [dict(tokenizer(texts[i], return_tensors="pt")) for i in order[: 24 + 6 * splits]]
    held = encoded[:24]
    calibration = [encoded[24 + 6 * s : 30 + 6 * s] for s in range(splits)]

    def embed(given: dict[str, Tensor]) -> Tensor:
        with torch.no_grad():
            return F.normalize(model(**given).last_hidden_state[0].mean(0), dim=0).double()

    whole = [embed(given) for given in held]

    def judge() -> np.ndarray[Any, Any]:
        return np.array([1.0 - float(embed(given) @ one) for given, one in zip(held, whole, strict=True)])

    shares = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
    metric = "1 - cosine with the whole model's embedding"
    return Task("minilm", "MiniLM, 72 heads", metric, model, calibration, judge, shares, None, lambda x: 0.01)


def digits(splits: int) -> Task:
    """A small vision transformer trained on scikit-learn's digits: errors on images it never saw."""
    from safetensors.torch import load_file
    from train_digits import TRAINING, network
    from train_digits import digits as images_and_labels

    model = network()
    model.load_state_dict(load_file(HERE / "digits_vit.safetensors"))
    model.eval()
    images, labels = (x[TRAINING:] for x in images_and_labels())
    rng = np.random.default_rng(0)
    order = rng.permutation(len(images))
    mine, held = order[:120], order[120:]
    drawn = [rng.permutation(mine)[:80].reshape(4, 20) for _ in range(splits)]
    calibration = [[(images[at],) for at in parts] for parts in drawn]
    answers = {images[at].numpy().tobytes(): labels[at] for parts in drawn for at in parts}

    def loss(output: Tensor, call: Any) -> Tensor:
        return F.cross_entropy(output, answers[call.args[0].numpy().tobytes()])

    def judge() -> np.ndarray[Any, Any]:
        with torch.no_grad():
            wrong = model(images[held]).argmax(-1) != labels[held]
        return wrong.double().numpy()

    shares = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    metric = "share of digits taken for another"
    return Task("digits", "ViT on digits, 32 heads", metric, model, calibration, judge, shares, loss, lambda x: 0.01)


TASKS = {"digits": digits, "minilm": minilm, "smollm2": smollm2}
