"""Start RL2 on a recipe: one process per GPU under torchrun, and keep the model that it trains.

``python -m gem_rl2.launch RUN_DIR [--resume]`` is one of these processes.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module

from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.environments.data import belonging_to
from gem_core.runs.program import run_program
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.resolved import ResolvedRun
from gem_core.training.stopping import RunStopped
from gem_rl2._compat import MODEL, NEWER, end_children, prune_checkpoints


def run(resolved: ResolvedRun, run: RunDir, *, resume: bool = False) -> None:
    """Train what is resolved into ``run``; RL2's own output goes to ``rl2.log`` there.

    With ``resume`` RL2 continues at its latest checkpoint, or at step 1 where there is none.

    Raises:
        GemError: RL2 ended with an error.
    """
    recipe = resolved.recipe
    prune_checkpoints(run.checkpoints, recipe.train.keep_checkpoints)
    _, environment = program(recipe)
    run_program("RL2", command(recipe, run, resume), environment, run.path / "rl2.log")
    publish_model(run)


def command(recipe: Recipe, run: RunDir, resume: bool) -> list[str]:
    """Return the program that `run` starts."""
    module, _ = program(recipe)
    words = [*torchrun(recipe), "-m", module, str(run.path.resolve())]
    return [*words, "--resume"] if resume else words


def program(recipe: Recipe) -> tuple[str, dict[str, str]]:
    """The module that each process runs, and their variables: with stand-ins on a CPU."""
    if recipe.hardware.device == "cpu":
        from gem_rl2 import cpu

        return "gem_rl2.cpu", cpu.environment(recipe)
    return "gem_rl2.launch", dict(os.environ)


def torchrun(recipe: Recipe) -> list[str]:
    """The command that starts one process per GPU, without the program that they run."""
    processes = str(recipe.hardware.gpus_per_node)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*launcher, "--nproc-per-node", processes]


def publish_model(run: RunDir) -> None:
    """Make what RL2 saved at its end the model of ``run``.

    Raises:
        GemError: it saved none.
    """
    saved = run.checkpoints / MODEL
    if not (saved / "config.json").exists():
        raise GemError(f"RL2 left no model in {saved}; see its log, rl2.log.")
    run.publish(saved)


def run_rank(train: Callable[[RunDir, bool], None], run: RunDir, resume: bool) -> None:
    """Call ``train`` in this process, one of torchrun's, then leave no process behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the clean-up below runs
    try:
        with belonging_to(run):
            train(run, resume)
    except RunStopped as stopped:
        print(stopped)  # the launcher says it again
    finally:
        end_children()


def main(arguments: list[str]) -> None:
    """Train the run in the directory ``arguments[0]``, ``--resume`` continues it."""
    api = import_module("gem_rl2.newer.trainer" if NEWER else "gem_rl2.worker")
    run_rank(api.train, RunDir(arguments[0]), "--resume" in arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
