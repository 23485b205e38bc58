"""Play episodes by TRL's own generation, and convert them to TRL's samples.

``GRPOTrainer._generate_single_turn`` serves every backend: Hugging Face generate, continuous
batching, and vLLM, colocated or as a server. On a CPU `gem_trl.cpu.engine` samples instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset

from gem_core.episodes.data import Episode
from gem_core.runs.recipe.recipe import Recipe
from gem_trl.batching import generations
from gem_trl.policy import EnginePolicy
from gem_trl.rows import Row, one_row_each

if TYPE_CHECKING:
    from gem_trl._compat import GRPOTrainer


def engine_policy(trainer: GRPOTrainer, stop_ids: Sequence[int]) -> EnginePolicy:
    """Return the policy of a trainer: on a CPU that of gem_core's engine, else TRL's generation."""
    if trainer.recipe.hardware.device == "cpu":
        from gem_trl.cpu.engine import CpuEnginePolicy

        return CpuEnginePolicy(trainer, stop_ids)
    return EnginePolicy(trainer, stop_ids)


@contextmanager
def sampling_at(trainer: Any, temperature: float, top_p: float) -> Iterator[None]:
    """Sample at another temperature (0 = greedy) and from another share of the probability.

    Training's random state stays as it was."""
    fields: dict[str, Any] = {"top_p": top_p}
    if trainer.use_vllm:
        engine = trainer.vllm_generation
        fields |= {"temperature": temperature}
    else:
        engine = trainer.generation_config
        fields |= {"do_sample": temperature > 0, "temperature": temperature or 1.0}
    before = {name: getattr(engine, name) for name in fields}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        try:
            vars(engine).update(fields)
            yield
        finally:
            vars(engine).update(before)


def task_rows(recipe: Recipe) -> Dataset:
    """Return the data rows that TRL repeats, each with the first task of a group of slots.

    The prompts are placeholders: episode machines make the real ones.
    """
    count = max(recipe.train.steps, 1) * recipe.batch.episodes
    first_tasks = list(range(0, count, generations(recipe)))
    return Dataset.from_dict({"prompt": [""] * len(first_tasks), "first_task": first_tasks})


def rollout(prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
    """Play the current training step; TRL's ``rollout_func``.

    Args:
        prompts: one placeholder per sample of this rank.
        trainer: keeps the step's episodes and advantages as ``step_batch``.

    Returns:
        The samples of this rank, see `to_native`.

    Raises:
        GemError: most episodes failed, or they are not the step's tasks.
    """
    batch = trainer.sampled(len(prompts))
    pad_id = trainer.processing_class.pad_token_id
    return to_native(batch.mine, pad_id, batch.rows, len(prompts))


def episode_return(returns: list[float], **_: Any) -> list[float]:
    """Return the rewards of TRL's own log, which the loss does not read; its ``reward_funcs``."""
    return returns


def to_native(
    episodes: Sequence[Episode],
    pad_id: int,
    rows: Sequence[Row] | None = None,
    count: int | None = None,
) -> dict[str, Any]:
    """Return rows as samples of ``rollout_func``, in order.

    Args:
        episodes: finished episodes.
        pad_id: token that is the completion of a sample without an action.
        rows: of the episodes; ``None`` = one each, of append-only histories.
        count: number of samples; those after ``rows`` have no action.

    Returns:
        ``prompt_ids``, ``completion_ids`` and ``env_mask`` (1 on action tokens), a list of integers
        per sample; ``logprobs``, a list of floats per sample, or ``None`` where the engine reports
        none; ``returns``, the undiscounted return of each sample's episode, for `episode_return`.
    """
    if rows is None:
        rows = one_row_each(episodes)
    samples = [_sample(episodes[row.episode], row, pad_id) for row in rows]
    returns = [episodes[row.episode].total_reward for row in rows]
    empty = max(0, (count or 0) - len(samples))
    samples += [_without_action([pad_id], pad_id)] * empty
    prompts, completions, masks, logprobs = (list(column) for column in zip(*samples, strict=True))
    return {
        "prompt_ids": prompts,
        "completion_ids": completions,
        "env_mask": masks,
        "logprobs": None if None in logprobs else logprobs,
        "returns": returns + [0.0] * empty,
    }


_Sample = tuple[list[int], list[int], list[int], list[float] | None]
"""Prompt, completion, mask of the completion, its log-probabilities."""


def _sample(episode: Episode, row: Row, pad_id: int) -> _Sample:
    """Convert a row; one of an episode without an action becomes a pad token."""
    segment = row.segment
    if segment is None:
        prompt = episode.segments[0].token_ids if episode.segments else [pad_id]
        return _without_action(prompt, pad_id)
    start = segment.prompt_length
    return (
        segment.token_ids[:start],
        segment.token_ids[start:],
        segment.loss_mask[start:],
        segment.logprobs and segment.logprobs[start:],
    )


def _without_action(prompt: list[int], pad_id: int) -> _Sample:
    """Return a sample that is not trained on."""
    return prompt, [pad_id], [0], [0.0]
