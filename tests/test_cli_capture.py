"""``pyattnorg capture`` from end to end on tiny models of text, images and sound, and what it refuses."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("zarr")
import torch
import transformers
from capture_models import tiny
from typer.testing import CliRunner

import pyattnorg as pa
from pyattnorg.capture import load_model
from pyattnorg.capture.sound import read_wave
from pyattnorg.cli.app import app

runner = CliRunner()
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "mat", "."]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("os.fsync", lambda file: None)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of an encoder of text, of images, and of a model that listens and writes."""
    from tokenizers import Tokenizer, pre_tokenizers, processors
    from tokenizers.models import WordLevel

    root = tmp_path_factory.mktemp("models")
    words = Tokenizer(WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=16, **names)
    transformers.utils.logging.disable_progress_bar()
    tiny("BertModel", vocab_size=10).save_pretrained(root / "text")
    tokenizer.save_pretrained(root / "text")
    tiny("ViTModel").save_pretrained(root / "image")
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(root / "image")
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        vocab_size=10, d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, num_mel_bins=8, max_source_positions=50,
        max_target_positions=16, pad_token_id=0, bos_token_id=2, eos_token_id=3, decoder_start_token_id=2,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    listening = transformers.WhisperForConditionalGeneration(config)
    listening.save_pretrained(root / "sound")
    tokenizer.save_pretrained(root / "sound")
    transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=1).save_pretrained(root / "sound")
    return root


@pytest.fixture(scope="module")
def tone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second of a tone, in stereo at another rate than the model's."""
    path = tmp_path_factory.mktemp("sound") / "tone.wav"
    samples = (8000 * np.sin(np.arange(22050) * 2 * np.pi * 440 / 22050)).astype("<i2")
    write_wave(path, np.repeat(samples, 2).tobytes(), width=2, channels=2, rate=22050)
    return path


def write_wave(path: Path, content: bytes, *, width: int, channels: int, rate: int) -> None:
    with wave.open(str(path), "wb") as file:
        file.setsampwidth(width)
        file.setnchannels(channels)
        file.setframerate(rate)
        file.writeframes(content)


def run(*arguments: object) -> Any:
    return runner.invoke(app, ["capture", *map(str, arguments)])


def told(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert len(result.stderr.splitlines()) == 1, result.stderr
    return str(result.stderr)


def test_text(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.zarr"
    found = told(models / "text", "--text", "the cat sat on the mat .", "--out", out)
    plain = pa.capture(str(models / "text"), "the cat sat on the mat .")
    stored = pa.load_capture(out)
    assert found["groups"] == [{"name": "", "layers": 2, "queries": 9, "keys": 9, "heads": 8}]
    assert found["bytes_on_disk"] > 0
    assert np.array_equal(stored.scores.values, plain.scores.values)
    assert stored.weights.queries == plain.weights.queries
    assert stored.store is not None
    assert stored.store["model"]["name"] == str(models / "text")
    assert stored.store["tokenizer"] is not None
    again = run(models / "text", "--text", "the cat sat on the mat .", "--out", out)
    assert again.exit_code == 0
    assert "2 layer(s) of them were there" in again.stdout
    other = refused(models / "text", "--text", "the mat .", "--out", out)
    assert "another input" in other
    assert "--overwrite" in other
    assert told(models / "text", "--text", "the mat .", "--out", out, "--overwrite")["groups"][0]["queries"] == 5


def test_every_option_arrives(models: Path, tmp_path: Path) -> None:
    options = ["--layers", "1", "--heads", "L1H0,L1H2", "--queries", "0:3", "--keys", "-2:", "--keep", "weights"]
    more = ["--keep-dtype", "float16", "--max-length", "6", "--threads", "1", "--verify", "--dtype", "float64"]
    told(models / "text", "--text", "the cat sat on the mat .", "--out", tmp_path / "s", *options, *more)
    pa.set_num_threads(None)
    stored = pa.load_capture(tmp_path / "s")
    assert stored.weights.shape == (3, 2, 2)
    assert stored.weights.labels == ("L1H0", "L1H2")
    assert stored.weights.keys == ("on", "[SEP]")
    with pytest.raises(pa.capture.CaptureError, match="'scores' was not kept"):
        _ = stored.scores
    model = load_model(models / "text", dtype="float64")
    plain = pa.capture(model, "the cat sat on the mat .", max_length=6).weights
    np.testing.assert_allclose(stored.weights["L1H2"], plain["L1H2"][:3, -2:], rtol=1e-3, atol=1e-6)
    told(models / "text", "--text", "the cat", "--out", tmp_path / "qk", "--keep", "qk")
    plain = pa.capture(str(models / "text"), "the cat").scores
    np.testing.assert_allclose(pa.load_capture(tmp_path / "qk").scores.values, plain.values, rtol=1e-5, atol=1e-5)


def test_an_image(models: Path, tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(tmp_path / "x.png")
    found = told(models / "image", "--image", tmp_path / "x.png", "--out", tmp_path / "s")
    assert found["groups"][0]["queries"] == 17
    assert found["input"] == "the image x.png"
    queries = pa.load_capture(tmp_path / "s").weights.queries
    assert queries is not None
    assert queries[:2] == ("cls", "r0c0")


def test_sound(models: Path, tone: Path, tmp_path: Path) -> None:
    found = told(models / "sound", "--audio", tone, "--text", "the cat sat", "--out", tmp_path / "s")
    shapes = {g["name"]: (g["queries"], g["keys"], g["heads"]) for g in found["groups"]}
    assert shapes == {"encoder": (50, 50, 4), "decoder": (5, 5, 2), "cross": (5, 50, 2)}
    cross = pa.load_capture(tmp_path / "s")["cross"].weights
    assert cross.queries == ("[CLS]", "the", "cat", "sat", "[SEP]")
    loaded = load_model(models / "sound")
    samples = read_wave(tone, 16000)
    assert samples.shape == (16000,)
    again = pa.capture(loaded, {"audio": samples, "text": "the cat sat"})["cross"].weights
    assert np.array_equal(cross.values, again.values)
    with pytest.raises(ValueError, match=r"got shape|samples of shape \(2, 3\)"):
        pa.capture(loaded, np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match="the text has 22 tokens, the decoder sees at most 16"):
        pa.capture(loaded, {"audio": samples, "text": "the cat " * 10})


def test_what_is_heard_is_read(models: Path, tone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_model(models / "sound")
    monkeypatch.setattr(loaded.model, "generate", lambda features: torch.tensor([[2, 5, 6, 3]]))
    assert pa.capture(loaded, tone)["decoder"].weights.queries == ("[CLS]", "cat", "sat", "[SEP]")
    monkeypatch.setattr(loaded.model, "generate", lambda features: torch.tensor([[2, 3]]))
    with pytest.raises(ValueError, match="hears no words"):
        pa.capture(loaded, tone)


@pytest.mark.parametrize(("width", "kind", "top"), [(1, "<u1", 255), (2, "<i2", 32767), (4, "<i4", 2**31 - 1)])
def test_samples_of_any_width(width: int, kind: str, top: int, tmp_path: Path) -> None:
    wanted = np.array([0.0, 1.0, -1.0, 0.5])
    offset, scale = (128, 127) if width == 1 else (0, top)
    write_wave(
        tmp_path / "w.wav", (wanted * scale + offset).astype(kind).tobytes(), width=width, channels=1, rate=16000
    )
    np.testing.assert_allclose(read_wave(tmp_path / "w.wav", 16000), wanted, atol=0.01)


def test_dry_run_tells_and_writes_nothing(models: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    found = told(models / "text", "--text", "the cat sat", "--dry-run")
    assert found["bytes"] == 2 * 4 * 25 * 4 * 2
    assert found["heads"] == 8
    assert found["method"] == "shapes"
    result = run(models / "text", "--text", "the cat sat", "--dry-run", "--keep", "weights", "--layers", "0")
    assert "4 heads of 1 layer(s) would be captured" in result.stdout
    assert "400 bytes before compression" in result.stdout
    assert sorted(tmp_path.iterdir()) == before


def test_a_store_is_organised(models: Path, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    text = "the cat sat on the mat ."
    told(models / "text", "--text", text, "--out", tmp_path / "s")
    for source, out in ((["--text", text], "a"), ([], "b")):
        model = tmp_path / "s" if out == "b" else models / "text"
        result = runner.invoke(app, ["analyze", str(model), *source, "--out", str(tmp_path / out), "--quiet"])
        assert result.exit_code == 0, result.output
    a, b = (pa.load(tmp_path / out / "organization.npz") for out in "ab")
    assert a.trees_ == b.trees_
    assert np.array_equal(a.network.values, b.network.values)
    some = ["analyze", str(tmp_path / "s"), "--out", str(tmp_path / "c"), "--heads", "L1H*", "--quiet"]
    assert runner.invoke(app, some).exit_code == 0
    assert pa.load(tmp_path / "c/organization.npz").labels == ("L1H0", "L1H1", "L1H2", "L1H3")
    for wrong, said in ((["--layers", "0"], "is a store"), (["--heads", "L9H*"], "leaves no head")):
        result = runner.invoke(app, ["analyze", str(tmp_path / "s"), "--out", str(tmp_path / "d"), *wrong])
        assert (result.exit_code, said in result.stderr) == (1, True)


def test_what_is_refused(models: Path, tone: Path, tmp_path: Path) -> None:
    text, out = ["--text", "the cat"], ["--out", tmp_path / "s"]
    (tmp_path / "file").write_text("x")
    (tmp_path / "broken.wav").write_bytes(b"RIFFxx")
    for arguments, said in (
        ([models / "text", *text], "--out: is missing"),
        ([models / "text", *text, "--out", tmp_path / "file"], "is a file"),
        ([models / "text", *text, "--out", tmp_path / "a/b"], "does not exist; make it first"),
        ([models / "text", *text, *out, "--keep", "maps"], "keep: got ['maps']"),
        ([models / "text", *text, *out, "--keep-dtype", "int8"], "dtype: got 'int8'"),
        ([models / "text", *text, *out, "--layers", "7"], "the model has layers 0 to 1"),
        ([models / "text", *text, *out, "--queries", "x"], "queries: got 'x'"),
        ([models / "text", "--audio", tone, *out], "does not listen"),
        ([models / "sound", *text, *out], "listens to recordings"),
        ([models / "sound", "--audio", tmp_path / "none.wav", *out], "none.wav does not exist"),
        ([models / "sound", "--audio", tmp_path / "broken.wav", *out], "could not be read as a WAV file"),
        ([models / "image", *text, *out], "it does not read text"),
    ):
        assert said in refused(*arguments)
        assert not (tmp_path / "s").exists()
    for arguments in ([models / "text", *out], [models / "text", *text, "--image", tone, *out], [*text, *out]):
        assert run(*arguments).exit_code == 2
