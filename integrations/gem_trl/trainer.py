"""GRPOTrainer, unmodified, that plays episodes and trains on per-turn advantages."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback

from gem_core.episodes.data import Episode
from gem_core.episodes.rollout import require_healthy
from gem_core.errors import GemError, RecipeError, did_you_mean
from gem_core.training.recipe import Recipe
from gem_core.training.tasks import MachineFactory, Task, eval_task, require_step, train_task
from gem_trl._compat import GRPOConfig, GRPOTrainer
from gem_trl.advantages import AdvantageGuard, StepBatch, install, pool
from gem_trl.config import generations, translate, updates_per_step
from gem_trl.critic import States, TurnCritic
from gem_trl.metrics import CriticKeeper
from gem_trl.rollout import EnginePolicy, sampling_at, to_native


class GemTrainer(GRPOTrainer):
    """TRL's trainer on a recipe; ``_generate_and_score_completions`` is all that is overridden.

    ``model`` is a path or name for ``from_pretrained``, ``tokenizer`` its Hugging Face tokenizer,
    ``folder`` is for checkpoints; each callback gets this trainer as its attribute ``trainer``.
    """

    def __init__(
        self, recipe: Recipe, model: str, tokenizer: Any, folder: str | Path,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:  # fmt: skip
        self.recipe, self.machines = recipe, MachineFactory(recipe, tokenizer)
        self.sampler = EnginePolicy(self, self.machines.stop_ids)
        self.step_batch: StepBatch | None = None
        self.rollout_seconds = 0.0
        self.bootstrap_states: list[list[int]] = []
        callbacks = [AdvantageGuard(), CriticKeeper(), *callbacks]
        for callback in callbacks:
            callback.trainer = self
        super().__init__(
            model=model, reward_funcs=episode_return, rollout_func=rollout,
            args=native_config(recipe, self.machines.stop_ids, folder), callbacks=callbacks,
            train_dataset=task_rows(recipe), processing_class=tokenizer,
        )  # fmt: skip
        self.remove_callback(PrinterCallback)
        with_critic = recipe.algorithm.estimator == "gae"
        self.critic = TurnCritic(recipe, model, self.accelerator) if with_critic else None

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.step_batch = None
        self.check_rows([row["first_task"] for row in inputs])
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if self.step_batch is None:
            raise GemError("TRL did not call rollout_func; this TRL is not supported.")
        install(self.step_batch, output)
        return output

    def first_task(self, count: int) -> int:
        """Task of this rank's first slot, where each rank has ``count``."""
        step = int(self.state.global_step) // updates_per_step(self.recipe)
        return step * self.recipe.batch.episodes + self.accelerator.process_index * count

    def check_rows(self, found: list[int]) -> None:
        """Raise GemError unless TRL's sampler gave this rank its slots of this step, in order."""
        first, repeat = self.first_task(len(found)), generations(self.recipe)
        expected = [(first + slot) // repeat * repeat for slot in range(len(found))]
        if found != expected:
            raise GemError(f"TRL's sampler gave the data rows {found}, not {expected}.")

    def play_step(self, count: int) -> list[Episode]:
        """Play this rank's ``count`` episodes of the current step; pool them with the others'.

        Raises GemError when most failed, or the ranks did not play exactly the step's tasks.
        """
        began, first = time.perf_counter(), self.first_task(count)
        mine = self.play([train_task(self.recipe, first + slot) for slot in range(count)])
        everyone = pool(mine, self.accelerator.num_processes)
        require_healthy(everyone)
        require_step(self.recipe, first // self.recipe.batch.episodes + 1, everyone)
        self.rollout_seconds = time.perf_counter() - began
        rank = self.accelerator.process_index
        part = slice(rank * count, (rank + 1) * count)
        if self.critic is None:
            self.step_batch = StepBatch(self.recipe, everyone, part)
            return mine
        states = [States.of(*pair) for pair in zip(mine, self.bootstrap_states, strict=True)]
        values = pool(self.critic.read(states), self.accelerator.num_processes)
        self.step_batch = batch = StepBatch(self.recipe, everyone, part, values)
        batch.metrics["loss/value"] = self.critic.learn(states, batch.targets)
        return mine

    def play_held_out(self, count: int) -> list[Episode]:
        """Play ``count`` held-out episodes, shared out over the ranks."""
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        with sampling_at(self, self.recipe.eval.temperature):
            tasks = [eval_task(self.recipe, index) for index in range(rank, count, world)]
            return pool(self.play(tasks), world)

    def play(self, tasks: Sequence[Task]) -> list[Episode]:
        """Play ``tasks`` on this rank with the model as it is."""
        machines = [self.machines(task) for task in tasks]
        episodes = self.sampler.play(machines)
        self.bootstrap_states = [machine.bootstrap_state() for machine in machines]
        return episodes


def rollout(prompts: list[str], trainer: GemTrainer) -> dict[str, Any]:
    """TRL's ``rollout_func``; the prompts are placeholders, the recipe has the tasks."""
    return to_native(trainer.play_step(len(prompts)), trainer.processing_class.pad_token_id)


def episode_return(episode_return: list[float], **_: Any) -> list[float]:
    """TRL's ``reward_funcs``: only for TRL's own log."""
    return episode_return


def task_rows(recipe: Recipe) -> Dataset:
    """The rows that TRL repeats: index of the first task of each group of slots."""
    count, repeat = max(recipe.train.steps, 1) * recipe.batch.episodes, generations(recipe)
    rows = list(range(0, count, repeat))
    return Dataset.from_dict({"prompt": [""] * len(rows), "first_task": rows})


def native_config(recipe: Recipe, stop_ids: Sequence[int], folder: str | Path) -> GRPOConfig:
    """The recipe as TRL's configuration; raises RecipeError for a native key TRL does not have."""
    known = {field.name for field in dataclasses.fields(GRPOConfig)}
    for key in recipe.trainer.get("trl", {}).keys() - known:
        raise RecipeError(f"trainer.trl.{key}: not in GRPOConfig.{did_you_mean(key, known)}")
    config = translate(recipe)
    stop = "stop_token_ids" if config.get("use_vllm") else "eos_token_id"
    config["generation_kwargs"] = {stop: list(stop_ids), **config["generation_kwargs"]}
    return GRPOConfig(output_dir=str(folder), **config)
