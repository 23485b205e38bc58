"""Extend TRL's ``GRPOTrainer`` to play episodes and train on per-turn advantages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, TrainerCallback

from gem_core.adapters.estimate import needs_critic
from gem_core.episodes.data import Episode
from gem_core.episodes.rollout import require_healthy
from gem_core.errors import GemError, RecipeError
from gem_core.training.recipe import Recipe
from gem_core.training.tasks import MachineFactory, Task, eval_task, require_step, train_task
from gem_trl._compat import GRPOTrainer
from gem_trl.advantages import AdvantageCheck, StepBatch, pool, replace_advantages
from gem_trl.batching import generations, processes, updates_per_step
from gem_trl.config import native_config
from gem_trl.critic import CriticCheckpoint, States, TurnCritic
from gem_trl.rollout import engine_policy, episode_return, rollout, sampling_at, task_rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self


class GemTrainer(GRPOTrainer):
    """TRL's trainer on a recipe; overrides ``_generate_and_score_completions`` alone.

    Args:
        recipe: the experiment.
        machines: makes the machine of each episode.
        model: a path or name for ``from_pretrained``.
        callbacks: each gets this trainer as its attribute ``trainer``.
        arguments: the other ones of ``GRPOTrainer``, see `from_recipe`.

    Attributes:
        step_batch: episodes and advantages of the current training step; ``None`` while it is
            played.
        rollout_seconds: seconds that playing it took.
        bootstrap_states: per episode that this rank played last, see
            `gem_core.episodes.machine.EpisodeMachine.bootstrap_state`.
        critic: ``None`` where the estimator needs none.
        rank: number of this process.
        world: number of processes.

    Raises:
        RecipeError: TRL cannot honour the recipe, or another number of processes was started.
    """

    def __init__(
        self,
        recipe: Recipe,
        machines: MachineFactory,
        *,
        model: str,
        callbacks: Sequence[TrainerCallback] = (),
        **arguments: Any,
    ) -> None:
        self.recipe = recipe
        self.machines = machines
        self.engine_policy = engine_policy(self, machines.stop_ids)
        self.step_batch: StepBatch | None = None
        self.rollout_seconds = 0.0
        self.bootstrap_states: list[list[int]] = []
        callbacks = [AdvantageCheck(), CriticCheckpoint(), *callbacks]
        for callback in callbacks:
            callback.trainer = self
        super().__init__(model=model, callbacks=callbacks, **arguments)
        self.remove_callback(PrinterCallback)
        self.rank = self.accelerator.process_index
        self.world = self.accelerator.num_processes
        if self.world != processes(recipe):
            raise RecipeError(
                f"hardware: the recipe is for {processes(recipe)} processes, {self.world} were "
                "started. Start them with `gem-core train`, or change hardware.gpus_per_node."
            )
        self.critic: TurnCritic | None = None
        if needs_critic(recipe):
            self.critic = TurnCritic(recipe, model, self.accelerator)

    @classmethod
    def from_recipe(
        cls,
        recipe: Recipe,
        model: str,
        tokenizer: Any,
        folder: str | Path,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> Self:
        """Return the trainer of a run.

        Args:
            recipe: the experiment.
            model: a path or name for ``from_pretrained``.
            tokenizer: its Hugging Face tokenizer.
            folder: directory of the checkpoints.
            callbacks: as in the constructor.
        """
        machines = MachineFactory(recipe, tokenizer, one_segment=True)
        return cls(
            recipe,
            machines,
            model=model,
            callbacks=callbacks,
            args=native_config(recipe, machines.stop_ids, folder),
            train_dataset=task_rows(recipe),
            rollout_func=rollout,
            reward_funcs=episode_return,
            processing_class=tokenizer,
        )

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.step_batch = None
        self.require_rows([row["first_task"] for row in inputs])
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if self.step_batch is None:
            raise GemError(
                "TRL did not call rollout_func: install a TRL that was tested "
                "(`gem-core doctor --trainer trl`)."
            )
        replace_advantages(self.step_batch, output)
        return output

    def first_task(self, count: int) -> int:
        """Return the task of this rank's first slot, where each rank has ``count``."""
        step = int(self.state.global_step) // updates_per_step(self.recipe)
        return step * self.recipe.batch.episodes + self.rank * count

    def require_rows(self, rows: list[int]) -> None:
        """Check that TRL's sampler gave this rank its slots of this step, in order.

        Args:
            rows: the column ``first_task`` of this rank's rows.

        Raises:
            GemError: it gave others.
        """
        first = self.first_task(len(rows))
        repeat = generations(self.recipe)
        expected = [(first + slot) // repeat * repeat for slot in range(len(rows))]
        if rows != expected:
            raise GemError(
                f"TRL's sampler gave the data rows {rows}, not {expected}: leave out what changes "
                "their order in [trainer.trl], or start the run again with --overwrite."
            )

    def play_step(self, count: int) -> list[Episode]:
        """Play this rank's ``count`` episodes of the current training step.

        Returns:
            The episodes of all ranks, in task order.

        Raises:
            GemError: most episodes failed, or they are not exactly the step's tasks.
        """
        began = time.perf_counter()
        first = self.first_task(count)
        mine = self.play([train_task(self.recipe, first + slot) for slot in range(count)])
        episodes = pool(mine, self.world)
        require_healthy(episodes)
        require_step(self.recipe, first // self.recipe.batch.episodes + 1, episodes)
        self.rollout_seconds = time.perf_counter() - began
        return episodes

    def estimate_step(self, episodes: list[Episode]) -> StepBatch:
        """Compute the advantages of a step; a critic reads it first, then learns from it.

        Args:
            episodes: those that `play_step` returned.
        """
        count = len(episodes) // self.world
        part = slice(self.rank * count, (self.rank + 1) * count)
        if self.critic is None:
            return StepBatch(self.recipe, episodes, part)
        pairs = zip(episodes[part], self.bootstrap_states, strict=True)
        states = [States.of(episode, state) for episode, state in pairs]
        values = pool(self.critic.read(states), self.world)
        batch = StepBatch(self.recipe, episodes, part, values)
        batch.metrics |= self.critic.learn(states, batch.targets)
        return batch

    def play_evaluation(self, count: int) -> list[Episode]:
        """Play ``count`` evaluation episodes, divided among the ranks; return all of them."""
        with sampling_at(self, self.recipe.eval.temperature):
            indices = range(self.rank, count, self.world)
            episodes = self.play([eval_task(self.recipe, index) for index in indices])
            return pool(episodes, self.world)

    def play(self, tasks: Sequence[Task]) -> list[Episode]:
        """Play ``tasks`` on this rank with the model as it is."""
        machines = [self.machines(task) for task in tasks]
        episodes = self.engine_policy.play(machines)
        self.bootstrap_states = [machine.bootstrap_state() for machine in machines]
        return episodes
