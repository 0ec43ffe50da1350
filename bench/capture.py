"""What a capture costs beside a forward: random BERTs of the sizes of BERT-base and MiniLM, one thread; CPU time.

Ways take turns, so that what else the machine does meets them all alike; medians and, in brackets, the least.

python bench/capture.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import BertConfig, BertModel

from pyattnorg.capture import capture

SIZES: tuple[tuple[str, int, dict[str, int]], ...] = (
    ("BERT-base", 128, {}),
    ("6 layers of BERT-base", 256, {"num_hidden_layers": 6}),
    ("MiniLM", 128, {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536}),
    ("MiniLM", 256, {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    for name, tokens, sizes in SIZES:
        print(f"{name}, {tokens} tokens")
        measure(tokens, BertConfig(**sizes), rounds)


def measure(tokens: int, config: BertConfig, rounds: int) -> None:
    torch.manual_seed(0)
    ids = torch.randint(5, 30_000, (1, tokens))
    eager, sdpa = (BertModel._from_config(config, attn_implementation=how).eval() for how in ("eager", "sdpa"))

    def forward(model: Any, **options: Any) -> None:
        with torch.no_grad():
            model(ids, **options)

    ways: dict[str, Callable[[], Any]] = {
        "eager forward with attentions": lambda: forward(eager, output_attentions=True),
        "sdpa forward": lambda: forward(sdpa),
        "capture, eager": lambda: capture(eager, ids),
        "capture, sdpa": lambda: capture(sdpa, ids),
        "capture, sdpa, weights only": lambda: capture(sdpa, ids, keep="weights"),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    first = next(iter(times.values()))
    for name, taken in times.items():
        median, least = statistics.median(taken), min(taken)
        ratio, ratio_of_least = median / statistics.median(first), least / min(first)
        print(f"  {name:32s} {1e3 * median:6.0f} ms ({1e3 * least:.0f})   {ratio:.2f} ({ratio_of_least:.2f})")


if __name__ == "__main__":
    main()
