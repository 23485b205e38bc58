"""Extend TRL's ``GRPOTrainer`` to play episodes and train on per-turn advantages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from accelerate import DistributedDataParallelKwargs
from transformers import AutoConfig, PrinterCallback, TrainerCallback

from gem_adapters.estimate import needs_critic
from gem_adapters.rollout_correction import truncated_weights
from gem_adapters.support import require_support
from gem_adapters.versions import name_missing
from gem_core.episodes.data import Episode
from gem_core.episodes.rollout import require_healthy
from gem_core.errors import GemError, RecipeError
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.resolved import ResolvedRun
from gem_core.runs.tasks import MachineFactory, Task, eval_task, require_step, train_task
from gem_trl.advantages import (
    AdvantageCheck,
    StepBatch,
    absolute_sum,
    pool,
    replace_advantages,
)
from gem_trl.batching import generations, processes, updates_per_step
from gem_trl.config import native_config
from gem_trl.critic import CriticCheckpoint, States, TurnCritic
from gem_trl.ranks import hold_rank
from gem_trl.rollout import engine_policy, episode_return, rollout, sampling_at, task_rows
from gem_trl.scoring import ROW, Scoring
from gem_trl.updates import Updates
from gem_trl.vllm import engine_length, engine_options, require_server
from gem_trl.weights import lora_config, save_merged

if TYPE_CHECKING:
    from typing import Self


class GemTrainer(Scoring):
    """TRL's trainer on a recipe: it plays the batch, and reads what its loss computes.

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
        played: the batch that was played before TRL asked for it, where an episode may have several
            rows.
        updates: what the optimizer steps of the current training step saw.
        step_updates: optimizer steps (TRL's ``global_step``) per training step.
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
        self.several_rows = machines.several_segments
        self.slots = 0
        self.engine_policy = engine_policy(self, machines.stop_ids)
        self.step_batch: StepBatch | None = None
        self.rollout_seconds = 0.0
        self.bootstrap_states: list[list[int]] = []
        self.updates = Updates(recipe.algorithm)
        self.step_updates = updates_per_step(recipe)
        callbacks = [AdvantageCheck(), CriticCheckpoint(), *callbacks]
        for callback in callbacks:
            callback.trainer = self
        model_options = recipe.model.dtype, recipe.hardware.device
        with engine_options(*model_options, reports_support=self.over_drawn):
            super().__init__(
                model=model,
                callbacks=callbacks,
                peft_config=lora_config(recipe.model.lora),
                **arguments,
            )
        self.remove_callback(PrinterCallback)
        self.rank = self.accelerator.process_index
        self.world = self.accelerator.num_processes
        if self.world != processes(recipe):
            raise RecipeError(
                f"hardware: the recipe is for {processes(recipe)} processes, {self.world} were "
                "started. Start them with `gem-core train`, or change hardware.gpus_per_node."
            )
        if self.use_vllm and self.vllm_mode == "server" and self.rank == 0:
            client = self.vllm_generation.vllm_client
            require_server(recipe, client.get_server_info(), self.args.vllm_max_model_length)
        if self.world > 1:  # a single process holds the lock of the run
            hold_rank(Path(self.args.output_dir), self.rank)
        self.critic: TurnCritic | None = None
        if needs_critic(recipe):
            self.critic = TurnCritic(recipe, model, self.accelerator)
        self.require_rows_can_differ()

    @classmethod
    def from_recipe(
        cls,
        recipe: Recipe,
        model: str,
        tokenizer: Any,
        folder: str | Path,
        callbacks: Sequence[TrainerCallback] = (),
        resolved: ResolvedRun | None = None,
    ) -> Self:
        """Return the trainer of a run.

        Args:
            recipe: the experiment.
            model: a path or name for ``from_pretrained``.
            tokenizer: its Hugging Face tokenizer.
            folder: directory of the checkpoints.
            callbacks: as in the constructor.
            resolved: the run, where it is resolved: its environments and TRL's configuration.
        """
        envs, native = (resolved.envs, resolved.native) if resolved else (None, None)
        machines = MachineFactory(recipe, tokenizer, envs=envs)
        arguments = native_config(recipe, machines.stop_ids, folder, native)
        if arguments.use_vllm:
            config = AutoConfig.from_pretrained(model, revision=recipe.model.revision or "main")
            longest = engine_length(recipe, arguments.vllm_max_model_length, config)
            arguments.vllm_max_model_length = longest
        return cls(
            recipe,
            machines,
            model=model,
            callbacks=callbacks,
            args=arguments,
            train_dataset=task_rows(recipe),
            rollout_func=rollout,
            reward_funcs=episode_return,
            processing_class=tokenizer,
        )

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.step_batch = None
        self.require_rows([row["first_task"] for row in inputs])
        if self.several_rows:  # TRL must know how many rows there will be
            self.played = self.next_batch(len(inputs))
            inputs = self.filled(inputs, len(self.played.rows))
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if self.step_batch is None:
            raise GemError(
                "TRL did not call rollout_func: install a TRL that was tested "
                "(`gem-core doctor --trainer trl`)."
            )
        replace_advantages(self.step_batch, output)
        if self.over_drawn:
            output[ROW] = torch.arange(len(output["prompt_ids"]))
        # TRL's mean over sequences counts rows without a trained token in the KL term, too.
        self.beta = self.args.beta * self.step_batch.row_scale
        if self.recipe.algorithm.rollout_correction == "tis" and not self.use_vllm:
            self._correct(output)
        return output

    def _build_accelerator_args(self, **kwargs: Any) -> dict[str, Any]:
        """Have DDP keep each gradient once: as a view of its bucket, not beside it."""
        arguments: dict[str, Any] = super()._build_accelerator_args(**kwargs)
        for handler in arguments["kwargs_handlers"]:
            if isinstance(handler, DistributedDataParallelKwargs):
                handler.gradient_as_bucket_view = True
        return arguments

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the model; one with LoRA adapters is written merged, except in checkpoints."""
        if _internal_call or not self.recipe.model.lora.rank:
            super().save_model(output_dir, _internal_call)
            return
        if self.args.should_save:
            model = self.accelerator.unwrap_model(self.model)
            save_merged(model, self.processing_class, output_dir or self.args.output_dir)
        self.accelerator.wait_for_everyone()

    def _correct(self, output: dict[str, Any]) -> None:
        """Weight the advantages for the engine's probabilities; TRL does so with vLLM only.

        The weight is a constant factor of a token's loss, and so of its advantage.
        """
        assert self.step_batch is not None
        if "old_per_token_logps" not in output:  # TRL has none where a batch makes one update
            output["old_per_token_logps"] = self._logprobs(output)
        weights = truncated_weights(
            self.recipe.algorithm,
            output["old_per_token_logps"],
            output["sampling_per_token_logps"],
            output["completion_mask"] * output["tool_mask"],
        )
        output["advantages"] = output["advantages"] * weights
        self.step_batch.installed = absolute_sum(output["advantages"])

    def _logprobs(self, output: dict[str, Any]) -> torch.Tensor:
        """Return TRL's log-probabilities of the completions, [rows, tokens]."""
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        size = self.args.per_device_train_batch_size
        with torch.no_grad():
            result = self._get_per_token_logps_and_entropies(
                self.model, ids, mask, output["completion_ids"].shape[1], batch_size=size
            )
        logprobs: torch.Tensor = result[0]
        return logprobs

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        self.updates.add(self, inputs, self._scores, loss)
        self._scores = None
        return loss

    def sum_over_ranks(self, array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the sum of an array over the ranks; a collective call."""
        local = torch.as_tensor(array, device=self.accelerator.device)
        result: npt.NDArray[np.float64] = self.accelerator.reduce(local, "sum").cpu().numpy()
        return result

    @property
    def weights_version(self) -> int:
        """Training steps behind the model's weights, between two training steps."""
        return int(self.state.global_step) // self.step_updates

    def first_task(self, count: int) -> int:
        """Return the task of this rank's first slot, where each rank has ``count``."""
        return self.weights_version * self.recipe.batch.episodes + self.rank * count

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

    def sampled(self, count: int) -> StepBatch:
        """Return the batch that TRL's ``rollout_func`` is asked for, and keep it.

        Args:
            count: samples that TRL asks this rank for.
        """
        self.step_batch = self.played if self.several_rows else self.next_batch(count)
        return self.step_batch

    def next_batch(self, count: int) -> StepBatch:
        """Play this rank's ``count`` episodes of the current step, and estimate."""
        return self.estimate_step(self.play_step(count))

    def play_step(self, count: int) -> list[Episode]:
        """Play this rank's ``count`` episodes of the current training step.

        Returns:
            The episodes of all ranks, in task order.

        Raises:
            GemError: most episodes failed, they are not exactly the step's tasks, or an engine did
                not report which tokens could be drawn and the recipe needs that.
        """
        began = time.perf_counter()
        first = self.first_task(count)
        mine = self.play([train_task(self.recipe, first + slot) for slot in range(count)])
        episodes = pool(mine, self.world)
        require_healthy(episodes)
        require_step(self.recipe, first // self.recipe.batch.episodes + 1, episodes)
        if self.over_drawn:
            require_support(episodes)
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
            return StepBatch(self.recipe, episodes, part, several_rows=self.several_rows)
        pairs = zip(episodes[part], self.bootstrap_states, strict=True)
        states = [States.of(episode, state) for episode, state in pairs]
        values = self.critic.read(states)
        pooled = pool(values, self.world)
        batch = StepBatch(self.recipe, episodes, part, pooled, several_rows=self.several_rows)
        batch.metrics |= self.critic.learn(states, values, batch.targets)
        return batch

    def play_evaluation(self, count: int) -> list[Episode]:
        """Play ``count`` evaluation episodes, divided among the ranks; return all of them."""
        recipe = self.recipe
        with sampling_at(self, recipe.eval.temperature, recipe.eval_top_p):
            indices = range(self.rank, count, self.world)
            episodes = self.play([eval_task(recipe, index) for index in indices])
            return pool(episodes, self.world)

    def play(self, tasks: Sequence[Task]) -> list[Episode]:
        """Play ``tasks`` on this rank with the model as it is."""
        machines = [self.machines(task) for task in tasks]
        episodes = self.engine_policy.play(machines)
        # vLLM has the weights that TRL sent it last.
        loaded = self._last_loaded_step if self.use_vllm else self.state.global_step
        name_missing(episodes, int(loaded) // self.step_updates)
        self.bootstrap_states = [machine.bootstrap_state() for machine in machines]
        return episodes
