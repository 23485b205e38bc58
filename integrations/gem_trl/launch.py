"""Train a recipe with TRL: in this process, or one process per GPU under ``torchrun``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer

from gem_core.errors import RecipeError, RunError
from gem_core.tiny import model_path
from gem_core.training.allocator import keep_freed_memory
from gem_core.training.recipe import Recipe
from gem_core.training.runs import RunDir
from gem_trl.config import processes, translate
from gem_trl.critic import FILE
from gem_trl.metrics import RunLog
from gem_trl.trainer import GemTrainer


def run(recipe: Recipe, run: RunDir, *, resume: bool = False) -> None:
    """Train ``recipe`` into ``run``, from its last checkpoint with ``resume``.

    Raises RecipeError for a key that TRL cannot honour or hardware that is not here, and RunError
    when a process of a multi-GPU run failed.
    """
    translate(recipe)  # refuse before anything is loaded
    here = "gpu" if torch.cuda.is_available() else "cpu"
    if recipe.hardware.device != here:
        hint = "use the profile tiny on a CPU, paper on a GPU; CUDA_VISIBLE_DEVICES='' hides a GPU"
        raise RecipeError(f"hardware.device = {recipe.hardware.device!r} here: {hint}.")
    if processes(recipe) > 1 and "WORLD_SIZE" not in os.environ:
        _spawn(recipe, run, resume)
        return
    if here == "cpu":
        keep_freed_memory()
        torch.set_num_threads(2)  # a fixed number: sums come out the same on every machine
    source = model_path(recipe)
    tokenizer = AutoTokenizer.from_pretrained(source, revision=recipe.model.revision)
    trainer = GemTrainer(recipe, source, tokenizer, run.checkpoints, [RunLog(run)])
    if trainer.accelerator.num_processes != processes(recipe):
        raise RecipeError(f"hardware: {trainer.accelerator.num_processes} processes were started.")
    checkpoint = last_checkpoint(run.checkpoints, trainer.critic is not None) if resume else None
    if checkpoint and trainer.critic is not None:
        trainer.critic.load(Path(checkpoint))
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(str(run.model))


def last_checkpoint(folder: Path, with_critic: bool = False) -> str | None:
    """The newest complete checkpoint; what a kill left unfinished is deleted."""
    found = {int(path.name.rpartition("-")[2]): path for path in folder.glob("checkpoint-*")}
    for _, path in sorted(found.items(), reverse=True):
        try:
            json.loads((path / "trainer_state.json").read_text())  # the Trainer writes it last
            if with_critic:
                (path / FILE).stat()  # and the critic comes after it
            return str(path)
        except (FileNotFoundError, json.JSONDecodeError):
            shutil.rmtree(path)
    return None


def _spawn(recipe: Recipe, run: RunDir, resume: bool) -> None:
    """Run this module under torchrun; for several nodes, say how."""
    nodes, count = recipe.hardware.nodes, recipe.hardware.gpus_per_node
    start = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={count}"]
    module = ["-m", "gem_trl.launch", str(run.path), *(["--resume"] if resume else [])]
    if nodes > 1:
        more = [f"--nnodes={nodes}", "--rdzv-backend=c10d", "--rdzv-endpoint=HOST:PORT"]
        command = " ".join([*start, *more, *module])
        raise RecipeError(f"hardware.nodes = {nodes}: run this on every node: {command}")
    code = subprocess.run([*start, "--standalone", *module]).returncode
    if code:
        raise RunError(f"A training process failed (exit code {code}); its output is above.")


if __name__ == "__main__":
    directory = RunDir(sys.argv[1])
    run(directory.recipe, directory, resume="--resume" in sys.argv)
