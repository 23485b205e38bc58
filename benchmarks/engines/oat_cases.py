"""Oat with real vLLM, in its own program of processes, and beside the stand-in; see `run.py`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from common import (
    BASELINE,
    KEYS,
    SAME_WEIGHTS,
    is_gemma,
    train_case,
    train_gemma,
    write_result,
)

from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_oat.nodes import run_watched
from gem_oat.values import REAL_VARIABLE

PROGRAM = "program"
"""First argument of the process that starts Oat's program for `checks`."""
VLLM = ("hardware.engine=vllm", "trainer.oat.shm_size_mb=200")
CASES: dict[str, tuple[str, ...]] = {
    "oat-vllm": VLLM,
    "oat-launchpad": VLLM,
    "oat-temperature": (*VLLM, "sampling.temperature=0.7"),
    "oat-standin": (),
}
"""Case -> overrides of the tiny profile."""
REAL = {"oat-launchpad": "vllm,launchpad"}
"""Case -> the real parts of Oat's GPU stack, where vLLM is not the only one."""


def trained(name: str, folder: Path, steps: int) -> None:
    """Train in the way of a case, evaluated before and after, and write the figures.

    Raises:
        AssertionError: the engine's log-probabilities are not the learner's, the policy did not
            learn in 20 steps or more, or a turn ended otherwise than by its end or its cap.
    """
    keys = (*KEYS, *CASES[name], f"train.steps={steps}", "batch.episodes=96")
    recipe = load_recipe(BASELINE, "tiny", (*keys, "train.log_episodes=96"))
    if recipe.hardware.engine == "vllm":
        os.environ[REAL_VARIABLE] = REAL.get(name, "vllm")
    train_case("oat", name, recipe, folder)


def require_stops(
    tokens: Sequence[int], free: Sequence[list[int]], stopped: Sequence[list[int]]
) -> None:
    """Check that completions ended at the first of several stop tokens, at more than one of them.

    Args:
        tokens: the stop tokens.
        free: completions without them.
        stopped: completions with them, drawn by the same seeds.

    Raises:
        AssertionError: one did not.
    """
    for whole, part in zip(free, stopped, strict=True):
        ends = [place for place, token in enumerate(whole) if token in tokens]
        assert part == whole[: ends[0] + 1 if ends else None], (whole, part, tokens)
    ended_by = {part[-1] for part in stopped} & set(tokens)
    assert len(ended_by) > 1, (ended_by, stopped)


def checks(name: str, folder: Path) -> None:
    """Check the push of weights, the prefix cache, caps, stop tokens and samplers.

    Raises:
        AssertionError: the engine has other weights than it was sent, a prefix cache that was kept
            did not show, or a completion ended otherwise than it was asked to.
    """
    os.environ[REAL_VARIABLE] = "vllm"
    import oat_checks  # puts vLLM or its stand-in in place

    warm = f"sampling.temperature={oat_checks.TEMPERATURE}"
    keys = (*KEYS, *VLLM, warm, "trainer.oat.enable_prefix_caching=true")
    recipe = load_recipe(BASELINE, "tiny", keys)
    RunDir.create(folder, recipe, "oat")
    code = run_watched([sys.executable, __file__, PROGRAM, str(folder)])
    assert code == 0, f"Oat's program ended with code {code}; its output above says why"
    figures = json.loads((folder / oat_checks.FILE).read_text())
    figures["v1_sampler"] = oat_checks.v1_differences()
    print(write_result(name, recipe.seed, {"case": name, **figures}))
    assert figures["initial"] < SAME_WEIGHTS < figures["at_temperature_1"] / 100, figures
    for sync in figures["syncs"]:
        assert sync["fresh_cache"] < SAME_WEIGHTS < sync["stale_cache"] / 100, sync
        assert sync["not_pushed"] > 100 * SAME_WEIGHTS, sync
    assert all(length <= cap for cap, length in figures["caps"]), figures["caps"]
    assert len({cap for cap, length in figures["caps"] if length == cap}) > 1, figures["caps"]
    require_stops(**figures["stops"])
    waits = figures["waiting"]
    assert waits["stepping"]["engine_idle_s"] < waits["barrier"]["engine_idle_s"], waits
    assert waits["same"] >= 0.9 * waits["episodes"], waits
    # Why the adapter has vLLM's V0 engine at another temperature (`report_what_is_sampled`).
    assert figures["v1_sampler"]["raw"] < SAME_WEIGHTS < figures["v1_sampler"]["processed"]


if __name__ == "__main__":
    if sys.argv[1] == PROGRAM:
        import oat_checks

        oat_checks.start(RunDir(sys.argv[2]))
    elif sys.argv[1] == "oat-checks":
        checks(sys.argv[1], Path(sys.argv[2]))
    elif is_gemma(sys.argv[1]):
        os.environ[REAL_VARIABLE] = "vllm"
        train_gemma("oat", sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), VLLM[1:])
    else:
        trained(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
