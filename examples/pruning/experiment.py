"""Loss against the share of heads removed, for every ranking, on three models: numbers, figures and tables.

    python examples/pruning/experiment.py --out docs/pruning

writes ``curves.json`` as it goes (what is there is not computed again), then figures and ``tables.md``. Rankings see
calibration inputs only; loss is measured on held-out ones, with the heads zero-ablated. Intervals are 95 % bootstrap
intervals over held-out units and, for what depends on them, calibration splits (seeds for the random order).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from report import write
from tasks import TASKS, Task

import pyattnorg as pa

MEASURES = (
    "random", "norm", "confidence", "attention_entropy", "gradient", "involvement", "sparsity", "fine", "distance",
    "alone", "sink", "folders", "output", "gradient_again", "twins",
)  # fmt: skip
OF_TREES = ("involvement", "sparsity", "fine", "distance", "alone", "folders")  # what the kind of tree changes
FLEXIBLE = ", flexible"  # after their names, where trees are the paper's
SPLITS = {"digits": 4, "minilm": 3, "smollm2": 2}
ONCE = {"norm"}  # no input, no seed


def curve(task: Task, ranking: Any, by: str, whole: np.ndarray[Any, Any]) -> list[list[float]]:
    """Held-out numbers (shares and nothing removed, units)."""
    rows = [whole.tolist()]
    for share in task.shares:
        with pa.ablate_heads(task.model, ranking.rows_of(ranking.lowest(share, by))):
            rows.append(task.judge().round(6).tolist())
    return rows


def run(name: str, found: dict[str, Any], keep: Callable[[], None]) -> None:
    """All curves of a task, into `found`, which holds those that are there; `keep` is called as they come."""
    task = TASKS[name](SPLITS[name])
    whole = task.judge()
    found.update(
        title=task.title,
        metric=task.metric,
        shares=[0.0, *task.shares],
        budget=task.budget(float(whole.mean())),
        curves=found.get("curves", {}),
        lowest=found.get("lowest", {}),
    )
    kinds: tuple[tuple[str, tuple[str, ...], dict[str, str]], ...] = (
        ("", MEASURES, {}),
        (FLEXIBLE, OF_TREES, {"tree": "flexible"}),
    )
    for split, inputs in enumerate(task.calibration):
        for kind, measures, options in kinds:
            done = {by for by in measures if len(found["curves"].get(by + kind, [])) > split or (by in ONCE and split)}
            todo = [by for by in measures if by not in done]
            if not todo:
                continue
            begun = time.process_time()
            ranking = pa.rank_heads(task.model, inputs, by=todo, loss=task.loss, seed=split, n_iter=1, **options)
            print(f"{name}{kind} split {split}: ranked in {time.process_time() - begun:.0f} s", flush=True)
            for by in todo:
                found["curves"].setdefault(by + kind, []).append(curve(task, ranking, by, whole))
                found["lowest"].setdefault(by + kind, ranking.order(by)[:8])
                keep()
            print(f"{name}{kind} split {split}: {time.process_time() - begun:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for numbers, figures and tables")
    parser.add_argument("--tasks", default=",".join(TASKS), help="which, with commas between them")
    parser.add_argument("--again", action="store_true", help="forget the numbers that are there")
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # these products are small, and on a busy machine two threads wait for each other
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "curves.json"
    found = json.loads(file.read_text()) if file.exists() and not given.again else {}

    def keep() -> None:
        file.write_text(json.dumps(found) + "\n")

    for name in given.tasks.split(","):
        run(name, found.setdefault(name, {}), keep)
    write(found, given.out)


if __name__ == "__main__":
    main()
