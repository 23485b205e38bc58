"""Start ``python -m verl.trainer.main_ppo`` on a recipe and bring its model home."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from gem_core.errors import GemError
from gem_core.recipe import Recipe
from gem_core.runs import RunDir
from gem_core.tiny import model_path
from gem_core.trainers import require
from gem_verl import TRAINER
from gem_verl.config import override, payload, translate
from gem_verl.testing import harness


def run(recipe: Recipe, run: RunDir, *, resume: bool = False) -> None:
    """Train ``recipe`` into ``run``; verl's own output goes to ``verl.log`` there.

    With ``resume`` verl continues at its latest checkpoint, or at step 1 where there is none.

    Raises:
        MissingDependencyError: verl is missing, or outside the tested range.
        RecipeError: verl cannot honour a key.
        GemError: verl ended with an error.
    """
    require(TRAINER)
    settings, environment = translate(recipe), dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as temp:
        native = {
            "actor_rollout_ref.model.path": model_path(recipe),
            "critic.model.path": model_path(recipe),
            "+data.gem_recipe": payload(recipe),
            "+data.gem_run": str(run.path.resolve()),
            "trainer.default_local_dir": str(run.checkpoints.resolve()),
            "trainer.resume_mode": "auto" if resume else "disable",
        }
        if recipe.hardware.device == "cpu":
            native["+ray_kwargs.ray_init._temp_dir"] = temp
            environment = harness.environment(environment)
        settings += [override(key, value) for key, value in native.items()]
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *settings]
        _main(command, environment, run.path / "verl.log")
    _export(recipe, run)


def _main(command: list[str], environment: dict[str, str], log: Path) -> None:
    """Run verl to its end; it ends with this process, however that ends."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, preexec_fn=_end_with_parent
        )
        try:
            code = process.wait()
        finally:
            process.terminate()
            process.wait()
    if code:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:])
        raise GemError(f"verl ended with exit code {code}; the end of {log}:\n{tail}")


def _end_with_parent() -> None:
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def _export(recipe: Recipe, run: RunDir) -> None:
    """Copy the last checkpoint's model, in Hugging Face format with its tokenizer."""
    source = run.checkpoints / f"global_step_{recipe.train.steps}" / "actor" / "huggingface"
    if not (source / "config.json").exists():
        raise GemError(f"verl left no model of its last step in {source}.")
    shutil.copytree(source, run.model, dirs_exist_ok=True)
    # verl writes float32 weights and declares them bfloat16, to which loading would round them.
    path = run.model / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"dtype": recipe.model.dtype}
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
