"""The evaluator: it plays the evaluation episodes of a recipe with a saved model."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import transformers

from gem_core.episodes.data import Episode
from gem_core.episodes.rollout import play_batch, require_healthy
from gem_core.evaluation.stats import summarise
from gem_core.policies.engine.memory import sequences_that_fit
from gem_core.policies.engine.policy import HFPolicy
from gem_core.policies.gpu import release_memory
from gem_core.policies.models.source import reading_model
from gem_core.policies.models.weights import load_model, require_no_code
from gem_core.runs.directory.run_dir import RUN_VARIABLE
from gem_core.runs.environments.pools import close_run_pools
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.splits import RunEnvs
from gem_core.runs.tasks import MachineFactory

CPU_BATCH = 512
"""Sequences per forward pass on a CPU."""
GPU_BATCH = 128
"""The same on a GPU, where they fit into its memory."""


def evaluate(
    recipe: Recipe, model_dir: str | Path, episodes: int | None = None
) -> dict[str, float]:
    """Play evaluation episodes with a saved model and summarise them.

    Args:
        recipe: environments, context, limits, ``sampling`` and ``eval``; ``seed`` decides
            the draws, as in a run. The tasks are the same for every run.
        model_dir: Hugging Face directory or id, including a tokenizer.
        episodes: number of episodes; ``None`` = ``eval.episodes``.

    Returns:
        `gem_core.episodes.metrics.episode_metrics` and ``success/low``, ``success/high`` (95 %
        Wilson interval), ``seconds``.
    """
    began = time.perf_counter()
    played = evaluation_episodes(recipe, model_dir, episodes)
    release_memory()  # a trainer that runs next in this process needs it
    return {**summarise(played), "seconds": time.perf_counter() - began}


def evaluation_episodes(
    recipe: Recipe,
    model_dir: str | Path,
    episodes: int | None = None,
    envs: RunEnvs | None = None,
) -> list[Episode]:
    """Play evaluation episodes with a saved model; arguments as of `evaluate`.

    Raises:
        GemError: more than half of the episodes failed.
    """
    count = recipe.eval.episodes if episodes is None else episodes
    try:
        with load_policy(recipe, model_dir, envs) as (factory, policy, _):
            played = play_batch([factory.evaluation(k) for k in range(count)], policy)
    finally:  # their memory, and a Ray cluster of this process, are in the way of a trainer
        close_run_pools(os.environ.get(RUN_VARIABLE))
    require_healthy(played)
    return played


@contextmanager
def load_policy(
    recipe: Recipe, model_dir: str | Path, envs: RunEnvs | None = None
) -> Iterator[tuple[MachineFactory, HFPolicy, int]]:
    """Load a saved model; yield what makes machines, the policy, and its sequences per pass.

    The model is a Hugging Face directory or id, including a tokenizer.

    Raises:
        RecipeError: there is no such model, or its files cannot be read.
        TrustError: it brings code, and the user gave no ``--trust``.
    """
    source = str(model_dir)
    # A trained model has a directory of its own; the revision belongs to the recipe's model.
    revision = recipe.model.revision if source == recipe.model.path else None
    with reading_model(source):
        require_no_code(model_dir, revision)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, revision=revision or "main")
        model = load_model(source, recipe.model.dtype, revision)
    factory = MachineFactory(recipe, tokenizer, envs=envs)
    gpu = recipe.hardware.device == "gpu" and torch.cuda.is_available()
    model = model.to("cuda" if gpu else "cpu")
    max_batch = _gpu_batch(recipe, model) if gpu else CPU_BATCH
    policy = HFPolicy(
        model,
        factory.stop_ids,
        temperature=recipe.eval.temperature,
        top_p=recipe.eval_top_p,
        top_k=recipe.sampling.top_k,
        max_batch=max_batch,
    )
    # For the tiny model more than one thread is slower, and its sums differ.
    with one_torch_thread() if recipe.model.path == "tiny" else nullcontext():
        yield factory, policy, max_batch


def _gpu_batch(recipe: Recipe, model: Any) -> int:
    """Return how many sequences are played at once beside the model, within the free memory."""
    release_memory()  # what a trainer left in this process does not count as free
    free, _ = torch.cuda.mem_get_info()
    tokens = recipe.limits.max_context_tokens
    element = getattr(torch, recipe.model.dtype).itemsize
    return sequences_that_fit(model.config, tokens, element, free, at_most=GPU_BATCH)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Use one torch thread inside the block: sums are then the same on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
