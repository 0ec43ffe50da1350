"""What a capture costs beside a forward: random BERT-base, 128 tokens, one thread; CPU time, medians.

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ids = torch.randint(5, 30_000, (1, 128))
    eager, sdpa = (BertModel._from_config(BertConfig(), attn_implementation=how).eval() for how in ("eager", "sdpa"))

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
    first = statistics.median(next(iter(times.values())))
    for name, taken in times.items():
        median = statistics.median(taken)
        print(f"{name:32s} {1e3 * median:6.0f} ms   {median / first:.2f}")


if __name__ == "__main__":
    main()
