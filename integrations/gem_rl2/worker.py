"""RL2's PPO trainer, release 0.0.2, for a run.

RL2's classes are extended where the recipe asks for what they lack. The subclasses keep RL2's class
names, by which its checkpoints tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import RL2.trainer.ppo as ppo
import RL2.workers.rollout as native_rollout
import torch.distributed as dist
from omegaconf import OmegaConf
from RL2.utils import checkpointing
from RL2.utils.comm import initialize_global_process_group
from RL2.workers import Worker

from gem_adapters.estimate import needs_critic
from gem_adapters.support import require_support
from gem_adapters.value_heads import start_at_zero
from gem_adapters.versions import VERSION
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import Task, eval_task, require_step, step_tasks
from gem_core.training.stopping import SaveClock, mark_stopped
from gem_rl2 import _compat, tensor_parallel
from gem_rl2.advantages import Advantages, require_installed
from gem_rl2.config import native_config, settings_of
from gem_rl2.metrics import RunLog
from gem_rl2.rollout import EpisodePlayer
from gem_rl2.support import Sets, score_drawn, to_tensors
from gem_rl2.updates import Updates


class _Updates(Worker):
    """Actor and critic as the recipe asks: Adam's betas, passes over a batch, no dropout."""

    def prepare_model_optimizer(self) -> None:
        # Transformers gives a critic's head a dropout of 0.1 by itself; a policy has none.
        if hasattr(self.model, "dropout"):
            self.model.dropout.p = 0.0
        super().prepare_model_optimizer()
        if self.train:
            for group in self.optimizer.param_groups:
                group["betas"] = tuple(self.config.betas)

    used_lr: float = 0.0
    """Learning rate of the last optimizer step."""

    def optimizer_step(self) -> float:
        # RL2 clips each rank's shards by their own norm; after this, that changes nothing.
        if self.config.tp_size > 1:
            norm = tensor_parallel.clip_grad_norm_(self, self.config.max_grad_norm)
        else:
            norm = self.model.clip_grad_norm_(self.config.max_grad_norm)
        self.used_lr = self.scheduler.get_last_lr()[0]
        super().optimizer_step()
        return float(norm)

    def update(self, tensors: Any, step: int) -> None:
        wanted = self.config.update_per_rollout
        self.config.update_per_rollout = _minibatches(tensors, wanted)
        try:
            for _ in range(self.config.epochs):
                own = None if tensors is None else dict(tensors)  # RL2 pads its dictionary in place
                super().update(own, step)
        finally:
            self.config.update_per_rollout = wanted


def _minibatches(tensors: Any, wanted: int) -> int:
    """Return into how many minibatches ``torch.chunk`` divides a batch; all ranks call it.

    RL2 counts on ``wanted``, and ends with an error where episodes failed and the others make fewer
    chunks of equal size.

    Args:
        tensors: the batch, on the first rank; None on the others.
        wanted: the recipe's minibatches.
    """
    number = [0]
    if tensors is not None:
        rows = len(next(iter(tensors.values())))
        number = [math.ceil(rows / math.ceil(rows / wanted))]
    dist.broadcast_object_list(number, src=0)
    return number[0]


class Actor(_Updates, ppo.Actor):
    """RL2's actor.

    Attributes:
        updates: what its optimizer steps saw.
        sets: of the batch; None where log-probabilities are over all tokens.
    """

    sets: Sets | None = None

    def __init__(self, config: Any, train: bool) -> None:
        super().__init__(config, train)
        if train:
            self.updates = Updates(config.clip)

    def update(self, tensors: Any, step: int) -> None:
        """Update the policy with the log-probabilities of the policy before the update.

        RL2 has them with minibatches or a KL term; several passes and the correction for the
        engine need them, too.
        """
        config = self.config
        has_old = config.update_per_rollout > 1 or config.kl.coef > 0
        corrects = self.updates.corrects
        if not has_old and (config.epochs > 1 or corrects):
            tensors = self.compute_logps(tensors, step)
        if corrects and tensors is not None:
            tensors = self.updates.correct(tensors)
        super().update(tensors, step)

    def forward(self, minibatch: Any, return_entropy: bool = False) -> Any:
        """RL2's log-probabilities and entropies; those of an update are noted."""
        if self.sets is None:
            result = super().forward(minibatch, return_entropy)
        else:
            result = score_drawn(self, minibatch, return_entropy)
        if return_entropy:  # RL2 asks for it in updates alone
            self.updates.add(minibatch, *result)
        return result

    def optimizer_step(self) -> float:
        """RL2's step; returns the norm of the gradient before clipping."""
        norm = super().optimizer_step()
        self.updates.means.end_update()
        return norm


class Critic(_Updates, ppo.Critic):
    """RL2's critic, read and trained at the last prompt token of each turn."""

    def prepare_model_optimizer(self) -> None:
        """Begin with V = 0, before RL2 divides the model among ranks."""
        start_at_zero(self.model)
        super().prepare_model_optimizer()

    def compute_values(self, tensors: Any, step: int) -> Any:
        """Also read the last token of each row: of the states in which episodes were cut off."""
        if tensors is None:
            return super().compute_values(None, step)
        mask = tensors["action_mask"]
        tensors = super().compute_values(
            {**tensors, "action_mask": mask | tensors["eos_mask"]}, step
        )
        return {**tensors, "action_mask": mask}

    def update(self, tensors: Any, step: int) -> None:
        """Restrict the loss to where the critic is read; RL2 sums all numbers in these tensors."""
        if tensors is not None:
            mask = tensors["value_mask"]
            summed = ("action_mask", "values", "returns")
            tensors = {**tensors, **{name: tensors[name] * mask for name in summed}}
        super().update(tensors, step)

    def backward(self, loss: Any) -> None:
        """Take half the squared error, as every trainer here; RL2 takes all of it."""
        super().backward(loss / 2)


class Rollout(ppo.Rollout):
    """RL2's engines, loop over episodes and weight updates; gem-core plays the episodes.

    Attributes:
        sets: as those of `Actor`.
        measured: metrics of the updates of the step under way, once they are made.
    """

    sets: Sets | None = None
    measured: Mapping[str, float] = {}

    def __init__(self, config: Any, recipe: Recipe, run: RunDir, advantages: Advantages) -> None:
        super().__init__(config)
        self.recipe = recipe
        self.run_dir = run
        self.stopped_at: int | None = None
        self.advantages = advantages
        self.eval_tasks = [eval_task(recipe, k) for k in range(recipe.eval.inside_episodes)]
        self.leads = dist.get_rank() == 0
        if self.leads:
            self.player = EpisodePlayer(run, self.tokenizer)
            self.log = RunLog(run)
            native_rollout.pack_tensor_dicts = self.player.pack

    def prepare_environment(self) -> None:
        """Nothing to load: RL2's environment files are not used."""

    async def rollout(self, task: Task, train: bool) -> tuple[list[Any], dict[str, list[float]]]:
        """Play ``task``; return its sequences as RL2's tensors, and what RL2 logs."""
        sampling = self.train_sampling_params if train else self.test_sampling_params
        machine = await self.player.play(task, self.router_url, sampling)
        critic = needs_critic(self.recipe)
        final = machine.bootstrap_state() if critic else []
        tensors = to_tensors(machine.episode, final, self.sets if train else None)
        return tensors, {"rewards": [machine.episode.total_reward]}

    def __call__(self, data_list: Any, train: bool, step: int) -> Any:
        """Play the tasks of ``step`` (1-based), or those of the evaluation; return RL2's batch."""
        if self.stopped_at is not None and train:
            raise mark_stopped(self.run_dir, self.stopped_at)
        if self.leads and train:
            self.log.begin()
        tasks = step_tasks(self.recipe, step - 1) if train else self.eval_tasks
        if self.sets is not None and train:
            self.sets.clear()
        batch = super().__call__(tasks, train, step)
        if self.leads and train:
            self.advantages.episodes = self.player.take()
            require_step(self.recipe, step, self.advantages.episodes)
            if self.sets is not None:
                require_support(self.advantages.episodes)
        elif self.leads:
            self.player.log_eval(step)
        if self.sets is not None and train:
            self.sets.share()
        return batch

    def update(self, actor: Any, step: int) -> None:
        """Send the weights to the engines, which ends a training step."""
        super().update(actor, step)
        if self.recipe.sampling.staleness and self.device_mesh["tp"].get_local_rank() == 0:
            native_rollout.make_request(self.worker_url, VERSION, {"version": step})
        if self.leads:
            self.player.version = step
        if self.advantages.episodes:  # on rank 0, but not where a resumed run sends its weights
            self.log.finish(step, self.advantages.episodes, self.measured)
            self.advantages.episodes = None

    def end_updates(self, actor: Any, step: int, saves: bool) -> None:
        """Take the metrics of a step's updates from all ranks; keep them if RL2 saves it next."""
        updates = actor.updates.finish()
        self.measured = {**self.advantages.metrics, **updates, "lr": actor.used_lr}
        if saves and self.advantages.episodes:
            self.log.draft(step, self.advantages.episodes, self.measured)


def save_when_due(trainer: PPOTrainer, workers: Any, step: int) -> None:
    """Call RL2's ``save_ckpt``, which saves at an interval of steps, also where time is due.

    If the run is asked to stop, the next training step raises RunStopped in place of its rollout.
    """
    decisions = [trainer.save_clock.after(step)]
    dist.broadcast_object_list(decisions)  # the first rank decides: saving is collective
    settings = trainer.config.trainer
    interval = settings.save_freq
    trainer.rollout.end_updates(trainer.actor, step, decisions[0].save)
    settings.save_freq = 1 if decisions[0].save else interval
    checkpointing.save_ckpt(trainer, workers, step)
    settings.save_freq = interval
    if decisions[0].stop:
        trainer.rollout.stopped_at = step


class StepLoader(list[list[Any]]):
    """RL2's dataloader where tasks follow from the step's number: one empty row per epoch.

    Its own, after a resume, takes the epoch in which the checkpoint was made for one still to end.
    """

    def state_dict(self) -> dict[str, int]:
        """What a checkpoint holds of it."""
        return {"rows": len(self)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """There is nothing to restore."""


class PPOTrainer(ppo.PPOTrainer):
    """RL2's trainer; its loop is untouched, but saves by time, and saves and ends when asked.

    Args:
        config: RL2's.
        run: the run directory.
    """

    def __init__(self, config: Any, run: RunDir) -> None:
        super().__init__(config)
        self.actor.updates.algorithm = run.recipe.algorithm
        if run.recipe.sampling.support == "drawn":
            sets = Sets()
            for part in (self.actor, self.rollout, getattr(self, "ref_actor", None)):
                if part is not None:
                    part.sets = sets
        self.save_clock = SaveClock(run)
        ppo.save_ckpt = save_when_due

    def get_dataloader(self, train: bool) -> StepLoader:
        """The rows of one epoch, see `StepLoader`."""
        return StepLoader([[]])

    def prepare_scheduler(self, worker: Any) -> Any:
        """Let the schedule end with the last of all passes."""
        updates = worker.config.update_per_rollout * worker.config.epochs
        config = OmegaConf.merge(worker.config, {"update_per_rollout": updates})
        return super().prepare_scheduler(SimpleNamespace(config=config, optimizer=worker.optimizer))


def train(run: RunDir, resume: bool) -> None:
    """Train ``run`` in this process, one of torchrun's, with RL2's trainer, its parts replaced.

    Raises:
        GemError: the recipe's estimator is not installed in RL2's loop.
    """
    initialize_global_process_group()
    recipe = run.recipe
    advantages = Advantages(recipe)
    ppo.Actor = Actor
    ppo.Critic = Critic
    ppo.Rollout = partial(Rollout, recipe=recipe, run=run, advantages=advantages)
    ppo.compute_advantages = advantages
    _compat.patch_rl2(recipe.model.dtype)
    trainer = PPOTrainer(native_config(recipe, settings_of(run, resume)), run)
    require_installed(ppo.PPOTrainer.train, advantages)
    trainer.train()
    dist.destroy_process_group()
