"""Models by name, text and images as inputs, and life without the libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
import torch
import transformers
from capture_models import numbers, tiny

from pyattnorg.capture import CaptureError, capture, capturing, load_model

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "mat", "."]
CAT = ("[CLS]", "the", "cat", "sat", "[SEP]")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders as transformers saves them: an encoder, a decoder, a vision model."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    words.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=12, **names)
    root = tmp_path_factory.mktemp("models")
    transformers.utils.logging.disable_progress_bar()
    for name in ("BertModel", "LlamaForCausalLM", "ViTModel"):
        tiny(name, **({} if name == "ViTModel" else {"vocab_size": 10, "max_position_embeddings": 12})).save_pretrained(
            root / name
        )
        if name != "ViTModel":
            tokenizer.save_pretrained(root / name)
    return root


@pytest.mark.parametrize("name", ["BertModel", "LlamaForCausalLM"])
def test_a_folder_and_a_text(folders: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    loaded = load_model(folders / name)
    assert type(loaded.model).__name__ == name
    assert not loaded.model.training
    got = capture(str(folders / name), "the cat sat", verify=True)
    assert got.scores.queries == got.scores.keys == CAT
    again = capture(loaded, "the cat sat")
    np.testing.assert_array_equal(got.scores.values, again.scores.values)
    assert capture(loaded.model, "the cat sat", tokenizer=loaded.tokenizer).scores.queries == CAT
    assert capture(loaded.model, "the cat sat").scores.queries == CAT  # by the model's own name_or_path
    out, err = capfd.readouterr()
    assert out == err == ""


def test_of_several_texts_one_runs_alone(folders: Path) -> None:
    loaded = load_model(folders / "BertModel")
    texts = ["the mat", "the cat sat", "the cat sat on the mat ."]
    alone = capture(loaded, "the cat sat")
    got = capture(loaded, texts, example=1)
    np.testing.assert_array_equal(got.scores.values, alone.scores.values)
    with pytest.raises(ValueError, match=r"inputs: got 3 texts.*example=0 to 2"):
        capture(loaded, texts)
    batch = loaded.tokenizer(texts, return_tensors="pt", padding=True)
    for inputs in (batch, dict(batch)):
        got = capture(loaded, inputs, example=1, tokenizer=loaded.tokenizer)
        assert got.scores.queries == CAT
        np.testing.assert_allclose(got.scores.values, alone.scores.values, atol=1e-5)
    assert capture(loaded.model, batch, example=1).scores.queries == CAT  # the encoding knows its own tokens


def test_watching_a_loaded_model_names_tokens(folders: Path) -> None:
    loaded = load_model(folders / "LlamaForCausalLM")
    with capturing(loaded) as tape:
        loaded.model(**loaded.tokenizer("the cat sat", return_tensors="pt", return_token_type_ids=False))
    assert tape.capture().scores.keys == CAT


def test_longer_than_the_model_sees(folders: Path) -> None:
    # jerryji1993/DNABERT#37: longer inputs than the window
    long = "the cat " * 10
    with pytest.raises(ValueError, match=r"the text has 22 tokens, the model sees at most 12.*max_length=12"):
        capture(folders / "BertModel", long)
    assert capture(folders / "BertModel", long, max_length=6).scores.shape == (6, 6, 8)
    with pytest.raises(ValueError, match=r"max_length: got 0"):
        capture(folders / "BertModel", long, max_length=0)


def test_images_by_path_and_object(folders: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    picture = image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8))
    picture.save(tmp_path / "x.png")
    where = folders / "ViTModel"
    with pytest.raises(ValueError, match=r"the processor of .* could not be loaded"):
        capture(where, picture)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(where)
    got = [capture(where, x) for x in (picture, tmp_path / "x.png", str(tmp_path / "x.png"))]
    assert all(np.array_equal(g.scores.values, got[0].scores.values) for g in got)
    assert got[0].scores.shape == (17, 17, 8)


def test_dtype_and_device(folders: Path) -> None:
    assert load_model(folders / "BertModel", dtype="bfloat16").model.dtype is torch.bfloat16
    assert load_model(folders / "BertModel", device="cpu", dtype=torch.float64).model.dtype is torch.float64
    with pytest.raises(ValueError, match=r"dtype: got 'float99'"):
        load_model(folders / "BertModel", dtype="float99")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "model: got an empty name"),
        ("no/such-model", "configuration of 'no/such-model' could not be loaded.*set to be offline"),
        ("./nowhere", "model: './nowhere' has no config.json"),
        ("timm/", "model: got 'timm/'"),
        ("timm/no_such_net", "model: timm knows no 'no_such_net'"),
        ("timm/vit_tiny_patch16_224", "model of 'timm/vit_tiny_patch16_224' could not be loaded.*set to be offline"),
    ],
)
def test_names_that_cannot_be_loaded(name: str, said: str) -> None:
    if name.startswith("timm"):
        pytest.importorskip("timm")
    with pytest.raises(ValueError, match=said) as error:
        load_model(name)
    assert "\n" not in str(error.value)


def test_a_checkpoint_that_lacks_attention_is_refused(folders: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = tiny("BertModel", vocab_size=10)
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = {k: v for k, v in load_file(file).items() if "attention.self.query" not in k}
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(CaptureError, match=r"lacks weights of BertModel's attention.*query.*would be random"):
        load_model(tmp_path)
    file.write_bytes(b"nothing of use")
    with pytest.raises(ValueError, match=r"model of .* could not be loaded"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("inputs", "error", "said"),
    [
        (None, TypeError, "inputs: got NoneType"),
        (3, TypeError, "inputs: got int"),
        ((), ValueError, "inputs: got an empty tuple"),
        (Path("text.txt"), TypeError, "inputs: got the path 'text.txt' for a model of text"),
    ],
)
def test_inputs_are_checked(folders: Path, inputs: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        capture(folders / "BertModel", inputs)


def test_arguments_of_any_kind() -> None:
    from capture_models import Fused

    x = numbers(1, 5, 32)
    want = capture(Fused(), x).scores.values
    for inputs in ((x,), [x], {"x": x}, x.numpy()):
        np.testing.assert_array_equal(capture(Fused(), inputs).scores.values, want)


WITHOUT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ModuleNotFoundError("No module named " + repr(name))
sys.meta_path.insert(0, Refuse())
import numpy as np
from pyattnorg.capture import capture, capturing, from_arrays, load_model
assert not any(name in sys.modules for name in ("torch", "transformers", "timm"))
assert from_arrays(np.full((2, 2, 3, 3), 1 / 3)).shape == (3, 3, 4)
for call in (lambda: {call}, ):
    try:
        call()
    except ImportError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("blocked", "call", "said"),
    [
        (("torch",), "capture(object(), 1)", "torch is needed.*pip install 'pyattnorg[torch]'"),
        (("torch",), "capturing(object()).__enter__()", "torch is needed.*pip install 'pyattnorg[torch]'"),
        (("torch",), "load_model('name')", "torch is needed.*pip install 'pyattnorg[torch]'"),
        (("transformers",), "load_model('name')", "transformers is needed.*pip install 'pyattnorg[hf]'"),
        (("timm",), "load_model('timm/vit_tiny_patch16_224')", "timm is needed.*pip install 'pyattnorg[timm]'"),
    ],
)
def test_without_the_libraries(blocked: tuple[str, ...], call: str, said: str) -> None:
    import re

    code = WITHOUT.format(blocked=blocked, call=call)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(said.replace("[", r"\[").replace("]", r"\]"), done.stdout), done.stdout


def test_devices_that_are_not_there(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert load_model(folders / "BertModel", device="auto").model.device == torch.device("cpu")
    assert load_model(folders / "BertModel", device=torch.device("cpu")).model.device == torch.device("cpu")

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("loaded before the device was looked at")

    with monkeypatch.context() as m:
        m.setattr("pyattnorg.capture.models._transformers", never)
        for device, said in (("cuda", "no CUDA GPU"), ("cuda:7", "no CUDA GPU"), ("bogus", "expected a torch device")):
            with pytest.raises(ValueError, match=f"^device: got '{device}', .*{said}"):
                capture(str(folders / "BertModel"), "the cat", device=device)
    with pytest.raises(ValueError, match=r"^device: the model could not be put to device='xla"):
        load_model(folders / "BertModel", device="xla")
