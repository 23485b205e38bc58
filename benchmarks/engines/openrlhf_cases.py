"""OpenRLHF with real vLLM: synchronous, asynchronous, and beside the stand-in; see `run.py`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from common import (
    BASELINE,
    KEYS,
    engine_figures,
    is_gemma,
    require_ends,
    require_learning,
    train_gemma,
    write_result,
)

from gem_core.runs.recipe.load import load_recipe
from gem_core.training.experiment import run_experiment

SAME_WEIGHTS = 5e-3
"""Largest mean difference of log-probabilities, engine against trainer, over a step's tokens, both
in bfloat16 and of the same weights. OpenRLHF's engine has no other precision."""
OLDER_WEIGHTS = 0.2
"""The same bound where the engine's weights are one update old."""
ASYNC = "trainer.openrlhf.train.async_enable=true"
CASES = {
    "openrlhf-vllm": ("hardware.engine=vllm",),
    "openrlhf-async": ("hardware.engine=vllm", ASYNC),
    "openrlhf-temperature": ("hardware.engine=vllm", "sampling.temperature=0.7"),
    "openrlhf-lora": ("hardware.engine=vllm", "model.lora.rank=8", "algorithm.lr=0.004"),
    "openrlhf-standin": (),
}
"""Case -> overrides of the tiny profile."""


def trained(name: str, folder: Path, steps: int) -> None:
    """Train in the way of a case, evaluated before and after, and write the figures.

    Raises:
        AssertionError: the engine's log-probabilities are not the trainer's, the policy did not
            learn in 20 steps or more, or a turn ended otherwise than by its end or its cap.
    """
    keys = (*KEYS, *CASES[name], f"train.steps={steps}", "model.dtype=bfloat16")
    recipe = load_recipe(BASELINE, "tiny", (*keys, "batch.episodes=96", "train.log_episodes=96"))
    began = time.perf_counter()
    run = run_experiment(recipe, "openrlhf", folder)
    data = engine_figures(name, run, time.perf_counter() - began)
    print(write_result(name, recipe.seed, data))
    difference = data["logprob_difference"]
    newest = difference[:1] if ASYNC in CASES[name] else difference
    assert max(newest) < SAME_WEIGHTS, difference
    assert max(difference) < OLDER_WEIGHTS, difference
    require_ends(data)
    require_learning(data)


if __name__ == "__main__":
    case, folder_name, count = sys.argv[1:]
    if is_gemma(case):
        train_gemma("openrlhf", case, Path(folder_name), int(count), ())
    else:
        trained(case, Path(folder_name), int(count))
