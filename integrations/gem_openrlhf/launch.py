"""Starts OpenRLHF's own command line on a recipe."""

from __future__ import annotations

import json
import runpy
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ray
from transformers import AutoConfig

import gem_openrlhf._compat as compat
from gem_core.errors import RunError
from gem_core.tiny import model_path
from gem_core.training.recipe import Recipe, merge
from gem_core.training.runs import RUN_VARIABLE, RunDir
from gem_openrlhf.config import flags, render
from gem_openrlhf.rollout import dataset_rows

CLI = "openrlhf.cli.train_ppo_ray"


def run(recipe: Recipe, run: RunDir, *, resume: bool = False) -> None:
    """Train ``recipe`` with ``openrlhf.cli.train_ppo_ray`` into ``run``.

    On several nodes start Ray first and set RAY_ADDRESS; all of them must see the run directory.

    Args:
        recipe: the experiment.
        run: its run directory.
        resume: continue from the newest checkpoint in ``run.checkpoints``.

    Raises:
        RecipeError: OpenRLHF cannot honour a key.
        MissingDependencyError: flash-attn, vLLM or DeepSpeed is missing on a GPU machine.
        RunError: OpenRLHF refused its arguments.
    """
    native = flags(recipe)
    if recipe.hardware.device == "cpu":
        from gem_openrlhf.cpu import harness

        session = harness.session(recipe)
    else:
        compat.require_gpu_packages()
        session = nullcontext({})
    with session as options:
        # Not at the top: these import flash_attn and vllm, which a CPU has only from here on.
        from gem_openrlhf.actors import installed

        arguments = render({**native, **run_flags(recipe, run, resume)})
        variables = {"TOKENIZERS_PARALLELISM": "false", RUN_VARIABLE: str(run.path.resolve())}
        with ray.init(**merge(options, {"runtime_env": {"env_vars": variables}})), installed():
            _run_cli(arguments)


def _run_cli(arguments: list[str]) -> None:
    """Run the command line as ``python -m`` does; its parser is under ``__main__``."""
    with patch.object(sys, "argv", [CLI, *arguments]):
        try:
            runpy.run_module(CLI, run_name="__main__", alter_sys=True)
        except SystemExit as stop:
            raise RunError(
                "OpenRLHF refused its arguments; its message is above. Check [trainer.openrlhf] "
                "in the recipe."
            ) from stop


def run_flags(recipe: Recipe, run: RunDir, resume: bool = False) -> dict[str, Any]:
    """The flags that name files, and those files: prompt rows, model, checkpoints."""
    model = model_path(recipe)
    found = {
        "actor.model_name_or_path": model,
        "data.prompt_dataset": _write_rows(recipe, run, "train"),
        "train.agent_func_path": str(Path(__file__).with_name("rollout.py")),
        "ckpt.path": str(run.checkpoints.resolve()),
        "ckpt.output_dir": str(run.model.resolve()),
        "ckpt.load_enable": resume,
    }
    if recipe.limits.max_context_tokens is None:
        found["data.max_len"] = AutoConfig.from_pretrained(model).max_position_embeddings
    if recipe.eval.every:
        found["eval.dataset"] = _write_rows(recipe, run, "eval")
    return found


def _write_rows(recipe: Recipe, run: RunDir, split: str) -> str:
    path = (run.path / f"openrlhf-{split}.jsonl").resolve()
    rows = dataset_rows(recipe, split)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)
