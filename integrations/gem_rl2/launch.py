"""Start RL2 on a recipe: one process per GPU under torchrun, and bring its model home.

``python -m gem_rl2.launch RUN_DIR [--resume]`` is one of these processes.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module

from gem_core.adapters.program import run_program
from gem_core.errors import GemError
from gem_core.training.recipe import Recipe
from gem_core.training.runs import RunDir
from gem_rl2._compat import MODEL, NEWER, end_children, prune_checkpoints
from gem_rl2.config import translate


def run(recipe: Recipe, run: RunDir, *, resume: bool = False) -> None:
    """Train ``recipe`` into ``run``; RL2's own output goes to ``rl2.log`` there.

    With ``resume`` RL2 continues at its latest checkpoint, or at step 1 where there is none.

    Raises:
        RecipeError: RL2 cannot honour a key.
        GemError: RL2 ended with an error.
    """
    translate(recipe)  # refuse before anything is started
    prune_checkpoints(run.checkpoints, recipe.train.keep_checkpoints)
    worker, environment = "gem_rl2.launch", dict(os.environ)
    if recipe.hardware.device == "cpu":
        from gem_rl2 import cpu

        worker, environment = "gem_rl2.cpu", cpu.environment(recipe)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(recipe.hardware.gpus_per_node), "-m", worker]
    command += [str(run.path.resolve()), *(["--resume"] if resume else [])]
    run_program("RL2", command, environment, run.path / "rl2.log")
    if not (run.checkpoints / MODEL / "config.json").exists():
        raise GemError(f"RL2 left no model in {run.checkpoints / MODEL}; see its log, rl2.log.")
    run.publish(run.checkpoints / MODEL)


def main(arguments: list[str]) -> None:
    """Train the run in the directory ``arguments[0]``, then leave no process behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the clean-up below runs
    api = import_module("gem_rl2.newer.trainer" if NEWER else "gem_rl2.worker")
    try:
        api.train(RunDir(arguments[0]), resume="--resume" in arguments[1:])
    finally:
        end_children()


if __name__ == "__main__":
    main(sys.argv[1:])
