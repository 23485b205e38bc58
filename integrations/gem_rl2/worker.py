"""One rank of RL2's own PPO trainer: ``python -m gem_rl2.worker RUN_DIR [--resume]``, by torchrun.

RL2's classes are extended where the recipe asks for what they lack. The subclasses keep RL2's class
names, by which its checkpoints tell them apart.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
from pathlib import Path
from typing import Any

import RL2.trainer.ppo as ppo
import torch
import torch.distributed as dist
import wandb
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from RL2.utils.comm import initialize_global_process_group
from RL2.utils.logging import time_logger
from RL2.utils.sglang import make_request

from gem_core.metrics import episode_metrics
from gem_core.recipe import Recipe
from gem_core.runs import RunDir
from gem_core.tasks import MachineFactory, eval_task, step_tasks
from gem_core.tiny import model_path
from gem_rl2 import _compat, rollout
from gem_rl2.advantages import Advantages, check_turns, recover_turns, require_installed
from gem_rl2.config import translate
from gem_rl2.metrics import StepLog


class _Updates:
    """What the recipe asks of actor and critic: Adam's betas, several passes over a batch."""

    def prepare_model_optimizer(self) -> None:
        super().prepare_model_optimizer()  # type: ignore[misc]
        if self.train:
            for group in self.optimizer.param_groups:
                group["betas"] = tuple(self.config.betas)

    def optimizer_step(self) -> float:
        # RL2 clips each rank's shards by their own norm; after this, that changes nothing.
        norm = self.model.clip_grad_norm_(self.config.max_grad_norm)
        super().optimizer_step()  # type: ignore[misc]
        return float(norm)

    def update(self, tensors: Any, step: int) -> None:
        for _ in range(self.config.epochs):
            super().update(None if tensors is None else dict(tensors), step)  # type: ignore[misc]


class Actor(_Updates, ppo.Actor):
    """RL2's actor."""

    def update(self, tensors: Any, step: int) -> None:
        """Several passes need the log-probs before the first, which RL2 has with minibatches."""
        config = self.config
        if config.epochs > 1 and config.update_per_rollout == 1 and config.kl.coef == 0:
            tensors = self.compute_logps(tensors, step)
        super().update(tensors, step)


class Critic(_Updates, ppo.Critic):
    """RL2's critic, read and trained at the last prompt token of each turn."""

    def compute_values(self, tensors: Any, step: int) -> Any:
        """Also value the states in which episodes were cut off."""
        if tensors is None:
            return super().compute_values(None, step)
        mask = tensors["action_mask"]
        read = {**tensors, "action_mask": mask | tensors["final_mask"]}
        return {**super().compute_values(read, step), "action_mask": mask}

    def update(self, tensors: Any, step: int) -> None:
        """Restrict the loss to where the critic is read."""
        if tensors is not None:
            tensors = {**tensors, "action_mask": tensors["value_mask"]}
        super().update(tensors, step)


class Rollout(ppo.Rollout):
    """RL2's engines and weight updates; the episodes come from gem-core's machines.

    RL2's own coroutine tokenises the text of each turn again and knows no limit but a number of
    turns; here token ids go in and come out.
    """

    log: StepLog | None = None

    def __init__(self, config: Any, recipe: Recipe, run: RunDir, advantages: Advantages) -> None:
        self.recipe, self.run, self.advantages = recipe, run, advantages
        super().__init__(config)
        if dist.get_rank() == 0:
            self.factory = MachineFactory(recipe, self.tokenizer)

    def prepare_environment(self) -> None:
        """Nothing to load: RL2's environment files are not used."""

    @time_logger("rollout")
    def __call__(self, data_list: Any, train: bool, step: int) -> Any:
        """Play the tasks of ``step`` (1-based), or the held-out ones; return RL2's batch."""
        batch = None, None
        if dist.get_rank() == 0:
            batch = self._train(step) if train else self._evaluate(step)
        dist.barrier()
        if train and self.device_mesh["tp"].get_local_rank() == 0:
            make_request(self.worker_url, "release_memory_occupation")
        return batch

    def _train(self, step: int) -> Any:
        if self.log is not None:
            self.log.begin()
        machines = [self.factory(task) for task in step_tasks(self.recipe, step - 1)]
        episodes = self._play(machines, self.train_sampling_params)
        critic = self.recipe.algorithm.estimator == "gae"
        finals = [rollout.final_state(machine) for machine in machines] if critic else None
        tensors, cu_seqs = rollout.pack(episodes, finals)
        check_turns(episodes, recover_turns(tensors["action_mask"], cu_seqs))
        self.advantages.episodes = episodes
        return tensors, cu_seqs

    def _evaluate(self, step: int) -> Any:
        count = self.recipe.eval.inside_episodes
        machines = [self.factory(eval_task(self.recipe, k)) for k in range(count)]
        episodes = self._play(machines, self.test_sampling_params)
        self.run.log_eval(step, "during", episode_metrics(episodes))
        return None, None

    def _play(self, machines: Any, sampling: dict[str, Any]) -> Any:
        return asyncio.run(rollout.play(machines, self.router_url, sampling, self.factory.stop_ids))

    def update(self, actor: Any, step: int) -> None:
        """Send the weights to the engines, which ends a training step."""
        super().update(actor, step)
        if self.log is not None and self.advantages.episodes:
            self.log.finish(step, self.advantages.episodes, self.advantages.summary)
            self.advantages.episodes = None


class Tasks:
    """RL2's dataloader where tasks follow from the step's number: one empty row per epoch."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Any:
        return iter([[{}]])

    def state_dict(self) -> dict[str, int]:
        """What a checkpoint holds of it."""
        return {"rows": 1}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """There is nothing to restore."""


class PPOTrainer(ppo.PPOTrainer):
    """RL2's trainer; its loop is untouched."""

    def get_dataloader(self, train: bool) -> Tasks:
        """See :class:`Tasks`."""
        return Tasks()

    def prepare_scheduler(self, worker: Any) -> Any:
        """Let the schedule end with the last of all passes."""
        config, epochs = self.config.trainer, worker.config.epochs
        config.n_epochs *= epochs
        try:
            return super().prepare_scheduler(worker)
        finally:
            config.n_epochs //= epochs


def native_config(recipe: Recipe, settings: dict[str, Any]) -> Any:
    """RL2's own configuration, composed from the recipe's overrides and a run's ``settings``."""
    folder = Path(ppo.__file__).with_name("config")
    with initialize_config_dir(str(folder), version_base=None):
        config = compose("ppo", translate(recipe, newer=False, settings=settings))
    OmegaConf.set_struct(config, False)
    for worker in (config.critic, config.ref_actor):
        worker.betas, worker.epochs = config.actor.betas, config.actor.epochs
    return config


def build(recipe: Recipe, run: RunDir, resume: bool) -> PPOTrainer:
    """RL2's trainer for ``recipe``, its parts replaced; needs the process group.

    Raises:
        GemError: the recipe's estimator is not installed in RL2's loop.
    """
    advantages, keep = Advantages(recipe), recipe.train.keep_checkpoints
    ppo.Actor, ppo.Critic, ppo.compute_advantages = Actor, Critic, advantages
    ppo.Rollout = functools.partial(Rollout, recipe=recipe, run=run, advantages=advantages)
    ppo.save_ckpt = functools.partial(_compat.save_checkpoint, keep=keep)
    dtype = recipe.model.dtype
    ppo.save_model = functools.partial(_compat.save_model, folder=run.model, dtype=dtype)
    _compat.mend(dtype)
    torch.manual_seed(recipe.seed)  # the critic's head
    settings = {
        "actor.model_name": model_path(recipe),
        "trainer.save_dir": str(run.checkpoints.resolve()),
        "trainer.load_ckpt_from": "latest" if resume else None,
    }
    trainer = PPOTrainer(native_config(recipe, settings))
    if dist.get_rank() == 0:
        forward = wandb.log if trainer.config.trainer.use_wandb else None
        trainer.rollout.log = wandb.log = StepLog(run, recipe, forward)
    require_installed(ppo.PPOTrainer.train, advantages)
    return trainer


def main(arguments: list[str]) -> None:
    """Train the run in the directory ``arguments[0]``, then leave no process behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the clean-up below runs
    run = RunDir(arguments[0])
    try:
        initialize_global_process_group()
        build(run.recipe, run, "--resume" in arguments[1:]).train()
        dist.destroy_process_group()
    finally:
        _compat.end_children()


if __name__ == "__main__":
    main(sys.argv[1:])
