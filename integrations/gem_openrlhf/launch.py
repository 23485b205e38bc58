"""Starts OpenRLHF's own command line on a recipe."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from transformers import AutoConfig, AutoTokenizer

import gem_openrlhf.rollout as rollout
from gem_adapters.ray_cluster import require_cluster
from gem_core.env.registration.references import passed_on
from gem_core.runs.directory.run_dir import RUN_VARIABLE, RunDir
from gem_core.runs.recipe.files import merge
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.resolved import ResolvedRun
from gem_core.runs.tasks import MachineFactory
from gem_core.training.stopping import retake_sigterm
from gem_core.training.tiny import model_source
from gem_openrlhf._compat import require_gpu_packages
from gem_openrlhf.checks import refuse_counted_tokens
from gem_openrlhf.command_line import check_arguments, run_command_line
from gem_openrlhf.config import render


def run(resolved: ResolvedRun, run: RunDir, *, resume: bool = False) -> None:
    """Train what is resolved with ``openrlhf.cli.train_ppo_ray`` into ``run``.

    On several nodes start Ray first and set RAY_ADDRESS; all of them must see the run directory.

    Args:
        resolved: the recipe and OpenRLHF's arguments.
        run: its run directory.
        resume: continue from the newest checkpoint in ``run.checkpoints``.

    Raises:
        RecipeError: OpenRLHF refuses a native flag or its value, or nothing says where the Ray
            cluster of several nodes is.
        MissingDependencyError: flash-attn, vLLM or DeepSpeed is missing on a GPU machine.
    """
    require_cluster(resolved.recipe)  # a script comes here without `run_experiment`
    recipe, model = resolved.recipe, model_source(resolved.recipe, resolved.model)
    check_arguments(resolved.native)
    several = has_several_rows(recipe, model)
    with ray_options(recipe, run) as options:
        # Not at the top: it imports flash_attn and vllm, which a CPU has only from here on.
        from gem_openrlhf.actors import installed
        from gem_openrlhf.rows import count_rows
        from gem_openrlhf.support import restrict

        drawn = recipe.sampling.support == "drawn"
        marks = [*([count_rows] if several else []), *([restrict] if drawn else [])]
        arguments = [*resolved.native, *render(run_flags(recipe, run, resume, model))]
        with ray.init(**options), installed(marks):
            retake_sigterm()
            run_command_line(arguments)


def has_several_rows(recipe: Recipe, model: str | None = None) -> bool:
    """Return whether an episode may have several rows; check before Ray starts that it can.

    Raises:
        RecipeError: the tokenizer's chat template ends no turn, or rows are counted by tokens.
    """
    several = recipe.context.history != "append"
    if recipe.context.template == "chat":
        tokenizer = AutoTokenizer.from_pretrained(model_source(recipe, model))
        several = MachineFactory(recipe, tokenizer).several_segments
    if several:
        refuse_counted_tokens(recipe)
    return several


@contextmanager
def ray_options(recipe: Recipe, run: RunDir) -> Iterator[dict[str, Any]]:
    """Prepare this process for OpenRLHF's modules, and yield the options of ``ray.init``.

    Raises:
        MissingDependencyError: flash-attn, vLLM or DeepSpeed is missing on a GPU machine.
    """
    variables = {**_variables(), **passed_on(), RUN_VARIABLE: str(run.path.resolve())}
    options: dict[str, Any] = {"runtime_env": {"env_vars": variables}}
    if recipe.hardware.device == "cpu":
        from gem_openrlhf.cpu import harness

        with harness.session(recipe) as cpu_options:
            yield merge(cpu_options, options)
    else:
        require_gpu_packages()
        yield options


def _variables() -> dict[str, str]:
    """Return what OpenRLHF sets in Ray's workers where it starts Ray, unless a user sets it."""
    return {
        "TOKENIZERS_PARALLELISM": "false",
        "NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "WARN"),
        "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": os.environ.get(
            "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS", "1"
        ),
    }


def run_flags(
    recipe: Recipe, run: RunDir, resume: bool = False, model: str | None = None
) -> dict[str, Any]:
    """Return the flags that name files, and write those files: prompt rows, model, checkpoints.

    Args:
        recipe: the experiment.
        run: its run directory.
        resume: continue from the newest checkpoint.
        model: what training starts from, where it is known.
    """
    source = model_source(recipe, model)
    paths: dict[str, Any] = {
        "actor.model_name_or_path": source,
        "data.prompt_dataset": write_rows(recipe, run, "train"),
        "data.max_len": longest_context(recipe, source),
        "train.agent_func_path": rollout.__file__,
        "ckpt.path": str(run.checkpoints.resolve()),
        "ckpt.output_dir": str(run.model.resolve()),
        "ckpt.load_enable": resume,
    }
    if recipe.eval.every:
        paths["eval.dataset"] = write_rows(recipe, run, "eval")
    return paths


def longest_context(recipe: Recipe, source: str) -> int:
    """Return the most tokens of an episode: the recipe's limit, or the model's."""
    limit = recipe.limits.max_context_tokens
    if limit is None:
        model: int = AutoConfig.from_pretrained(source).max_position_embeddings
        return model
    return limit


def write_rows(recipe: Recipe, run: RunDir, split: str) -> str:
    """Write OpenRLHF's prompt dataset into ``run``; return its path."""
    path = (run.path / f"openrlhf-{split}.jsonl").resolve()
    rows = rollout.dataset_rows(recipe, split)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)
