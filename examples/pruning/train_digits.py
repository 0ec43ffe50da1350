"""Train the small vision transformer that the pruning experiment prunes: scikit-learn's digits, about a minute.

    python examples/pruning/train_digits.py examples/pruning/digits_vit.safetensors

Weights are committed (0.55 MB), so the experiment does not train. 1,437 of the 1,797 images are for training; the rest
is for calibration (every ranking) and for judging, see `tasks.py`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

TRAINING = 1437
SEED = 0


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """All images (n, 1, 8, 8) and their digits, in a fixed random order; the first `TRAINING` are for training."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(SEED).permutation(len(x))
    images = torch.tensor(x[order] / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return images, torch.tensor(y[order])


def network() -> Any:
    """The model, untrained: 4 layers of 8 heads on 16 patches and a class token, 136 thousand parameters."""
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=8, patch_size=2, in_chans=1, num_classes=10, embed_dim=64, depth=4, num_heads=8, mlp_ratio=2.0
    )


def train(epochs: int = 40, batch: int = 64) -> Any:
    """The trained model."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    images, labels = digits()
    images, labels = images[:TRAINING], labels[:TRAINING]
    model = network()
    for module in model.modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.Conv2d)):
            torch.nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
    model.pos_embed.data.normal_(0, 0.3)
    model.cls_token.data.normal_(0, 0.3)
    steps = len(images) // batch
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=epochs * steps)
    for _ in range(epochs):
        model.train()
        order = torch.randperm(len(images))
        for i in range(steps):
            at = order[i * batch : (i + 1) * batch]
            x = F.pad(images[at], (1, 1, 1, 1))
            x = torch.roll(x, tuple(int(d) for d in rng.integers(-1, 2, 2)), (2, 3))[:, :, 1:-1, 1:-1]
            loss = F.cross_entropy(model(x), labels[at], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return model.eval()


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("digits_vit.safetensors")
    begun = time.process_time()
    model = train()
    save_file({name: p.contiguous() for name, p in model.state_dict().items()}, str(out))
    images, labels = digits()
    with torch.no_grad():
        right = (model(images[TRAINING:]).argmax(-1) == labels[TRAINING:]).float().mean()
    print(f"{out}: {float(right):.1%} of {len(labels) - TRAINING} held-out images, {time.process_time() - begun:.0f} s")


if __name__ == "__main__":
    main()
