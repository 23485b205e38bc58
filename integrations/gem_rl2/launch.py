"""Start RL2 on a recipe: one process per GPU under torchrun, and bring its model home."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

from gem_core.errors import GemError
from gem_core.recipe import Recipe
from gem_core.runs import RunDir
from gem_rl2._compat import NEWER
from gem_rl2.config import translate


def run(recipe: Recipe, run: RunDir, *, resume: bool = False) -> None:
    """Train ``recipe`` into ``run``; RL2's own output goes to ``rl2.log`` there.

    With ``resume`` RL2 continues at its latest checkpoint, or at step 1 where there is none.

    Raises:
        RecipeError: RL2 cannot honour a key.
        GemError: RL2 ended with an error.
    """
    translate(recipe)  # refuse before anything is started
    on_cpu = recipe.hardware.device == "cpu"
    worker = "gem_rl2.testing" if on_cpu else f"gem_rl2.{'newer' if NEWER else 'worker'}"
    arguments = [str(run.path.resolve()), *(["--resume"] if resume else [])]
    ranks = str(recipe.hardware.gpus_per_node)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", ranks, "-m", worker, *arguments]
    environment = {**os.environ, "GEM_RL2_SEED": str(recipe.seed)}
    if on_cpu:
        environment |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    _main(command, environment, run.path / "rl2.log")
    if not (run.model / "config.json").exists():
        raise GemError(f"RL2{' (newer API)' if NEWER else ''} left no model in {run.model}.")


def _main(command: list[str], environment: dict[str, str], log: Path) -> None:
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, preexec_fn=_with_us
        )
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-60:]
        raise GemError(f"RL2 ended with exit code {code}; the end of {log}:\n" + "\n".join(tail))


def _with_us() -> None:
    """In the child: end when this process ends, so that a killed run does not train on."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
