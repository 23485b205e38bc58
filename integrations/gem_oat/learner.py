"""Oat's PPO learner on gem_core's episodes, advantages and loss weights."""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import oat.learners.rl
import oat.utils.distributed
import torch
import torch.distributed as dist
from oat.algorithms.ppo import PPOLearner
from oat.collectors import FeedbackCollector
from oat.types import TransitionData
from oat.utils.data import TransitionDataset

from gem_core.errors import GemError
from gem_core.metrics import episode_metrics
from gem_core.recipe import Recipe
from gem_core.runs import RunDir
from gem_oat import _compat
from gem_oat.advantages import row_advantages
from gem_oat.loss import TurnLoss
from gem_oat.metrics import step_metrics
from gem_oat.rollout import Row, pad_rows

_compat.fix_process_group(oat.utils.distributed)
_compat.fix_critic_schedule(oat.learners.rl)


@dataclass(frozen=True)
class GemRun:
    """What actors and learners know of the run; travels as ``args.gem``."""

    recipe: Recipe
    path: Path
    start: int = 0
    """Training steps that the checkpoint to resume from has behind it."""


class Rows(TransitionDataset):
    """Oat's data set; each item also has its `Row`, whatever order Oat's loader shuffles into."""

    def __init__(self, buffer: Any, tokenizer: Any, strategy: Any, **_: Any) -> None:
        super().__init__(buffer, tokenizer, strategy)
        for item, data in zip(self.transitions, buffer, strict=True):
            item["row"] = data.info["row"]

    def collate_fn(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """Oat's batch and its rows."""
        return {**super().collate_fn(items), "rows": [item["row"] for item in items]}


class Collector(FeedbackCollector):
    """Oat's collector, which would average what travels in ``info``."""

    def get_metrics(self, actor_time: float, feedback_data: list[TransitionData]) -> dict[str, Any]:
        """Only the time; the rest is computed from the episodes."""
        return {"time/rollout": actor_time}


class GemLearner(PPOLearner):
    """Oat's learner: its loop, loss, engine and weight sync; gem_core's batches and advantages."""

    def _init(self, args: Any, actors: Any) -> None:
        self.gem: GemRun = args.gem
        self.recipe, self.files = self.gem.recipe, RunDir(self.gem.path)
        super()._init(args, actors)
        self.dataset_builder = Rows
        if actors:
            self.collector = Collector(args, actors, self.collector.ipc_client)
        kinds = ["policy"] + ["kl"] * (args.beta > 0) + ["value"] * (self.critic is not None)
        self.loss = TurnLoss(self.recipe.algorithm, kinds, self.strategy.world_size, self.reduce)
        self.masked_aggregator = self.loss
        self.clock = time.perf_counter()
        if self.gem.start:
            for name, engine in self.engines.items():
                folder = str(self.files.checkpoints / name)
                self.strategy.load_ckpt(engine, folder, f"step_{self.gem.start:06d}")
            self.sync_params_to_actors()  # Oat's own resume leaves the actors at the first weights

    @property
    def engines(self) -> dict[str, Any]:
        """The DeepSpeed engines that are trained; the policy, which names the checkpoint, last."""
        critic = {} if self.critic is None else {"critic": self.critic}
        return {**critic, "policy": self.model.model}

    def reduce(self, array: np.ndarray) -> np.ndarray:
        """Sum over learners, for gem_core's statistics."""
        summed: np.ndarray = self.strategy.all_reduce(torch.tensor(array), op="sum").numpy()
        return summed

    def prepare_data(self, strategy: Any, tokenizer: Any) -> None:
        """A data set as long as the run: one item per step and learner, naming its tasks."""
        steps, shards = self.recipe.train.steps, strategy.world_size
        self.prompts_dataset = [
            (f"{step}/{shard}/{shards}",) * 3 for step in range(steps) for shard in range(shards)
        ]
        mine = range(self.gem.start * shards + strategy.get_rank(), steps * shards, shards)
        self.prompts_dataloader = strategy.setup_dataloader(self.prompts_dataset, 1, sampler=mine)
        self.eval_prompts_dataset, self.eval_prompts_dataloader = [], None

    def process_feedback_data(self, data_list: list[TransitionData]) -> None:
        """Make this step's rows the whole buffer, filled up so that every minibatch is equal."""
        self.query_step += len(data_list)
        self.episodes = [e for data in data_list for e in data.info.pop("episodes", [])]
        minibatches = self.recipe.algorithm.minibatches
        whole = -(-int(self.strategy.all_reduce(len(data_list), op="max")) // minibatches)
        micro = min(self.recipe.batch.micro_batch or whole, whole)
        accumulate = -(-whole // micro)
        padded = pad_rows(data_list, micro * accumulate * minibatches)
        self.pi_buffer = deque(padded, maxlen=len(padded))
        if self.args.use_fused_lm_head and micro > 1:
            raise GemError(
                "Oat's fused LM head gives the transformer body no gradient with 2 or more rows "
                "per forward pass: set batch.micro_batch = 1 or leave use_fused_lm_head off."
            )
        # The number of turns varies, so Oat's and DeepSpeed's sizes are this step's.
        self.args.train_batch_size_per_device, self.strategy.grad_acc_step = micro, accumulate
        for engine in self.engines.values():
            engine.set_train_micro_batch_size(micro)
            engine.set_train_batch_size(micro * accumulate * self.strategy.world_size)
            engine.optimizer.gradient_accumulation_steps = accumulate
            engine.micro_steps = 0  # accumulation ends at multiples: count from here

    def learn(self, learning_round: int) -> dict[str, float]:
        """Oat's update, timed; of its means over rows, masked ones included, one is repaired."""
        began = time.perf_counter()
        info: dict[str, float] = super().learn(learning_round)
        trained = sum(not row.excluded for row in self.rows)
        info["train/pg_clipfrac"] *= len(self.rows) / max(1, trained)  # masked rows clip nothing
        return {**info, "time/update": time.perf_counter() - began}

    def learning_step(self, trajectory: dict[str, Any]) -> dict[str, Any]:
        """Oat's PPO epochs over the batch. Raises GemError if gem_core's hooks were not reached."""
        self.rows: list[Row] = trajectory["rows"]
        self.described: dict[str, float] | None = None
        sizes = trajectory["attention_mask"].sum(1).numpy() - trajectory["prompt_ids_lens"]
        ids = trajectory["input_ids"].to(torch.cuda.current_device())
        self.loss.plan(self.rows, sizes, ids, self.args.train_batch_size_per_device)
        infos: dict[str, Any] = super().learning_step(trajectory)
        self.losses = self.loss.finish()
        return infos

    def get_batch_logps(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any]:
        """Oat's log-probabilities; only a policy update asks for the entropy with them."""
        logps, entropy = super().get_batch_logps(*args, **kwargs)
        if kwargs.get("compute_entropy"):
            if self.described is None:
                raise GemError("Oat did not ask gem_core for advantages: nothing was trained.")
            self.loss.enter(kwargs["input_ids"], entropy)
        return logps, entropy

    def compute_monte_carlo_advantages(
        self, rewards: torch.Tensor, response_masks: torch.Tensor
    ) -> torch.Tensor:
        """Advantage of each row [rows]; ``rewards`` [rows, tokens] holds Oat's KL penalty."""
        found, _, self.described = row_advantages(
            self.recipe, self.rows, self.reduce, rewards=self._rewards(rewards)
        )
        return torch.from_numpy(found).to(rewards)

    def compute_ppo_advantages(
        self,
        rewards: torch.Tensor,
        input_ids: torch.Tensor,
        att_mask: torch.Tensor,
        response_masks: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Advantages, critic targets and old values [rows, tokens], one number per turn."""
        size = self.args.train_batch_size_per_device
        parts = zip(input_ids.split(size), att_mask.split(size), strict=True)
        with torch.no_grad():
            read = [self.critic(input_ids=i, attention_mask=m)[:, :-1] for i, m in parts]
        values = torch.cat(read)
        first = response_masks.int().argmax(1, keepdim=True)  # predicted at the last prompt token
        states = values.gather(1, first)[:, 0].double().cpu().numpy()
        found, targets, self.described = row_advantages(
            self.recipe, self.rows, self.reduce, rewards=self._rewards(rewards), values=states
        )
        per_turn = torch.from_numpy(np.stack([found, targets])).to(rewards)[:, :, None]
        return per_turn[0] * response_masks, per_turn[1].expand_as(values), values

    def _rewards(self, rewards: torch.Tensor) -> np.ndarray:
        """The turns' rewards in full precision, and the KL penalty that Oat added to them."""
        exact = np.array([row.reward for row in self.rows])
        if not self.args.kl_penalty_coef:
            return exact
        penalised = rewards.double().sum(1).cpu().numpy()
        return exact + (penalised - exact.astype(np.float32))

    def eval_and_log(self, train_info: Any, eval: bool = False, save: bool = False) -> None:
        """After every step: metrics, evaluation, checkpoint. Oat's last call finds all done."""
        if save:
            return
        step, recipe = self.gem.start + self.steps, self.recipe
        last = step == recipe.train.steps
        self._log(step, train_info)
        if recipe.eval.every and step % recipe.eval.every == 0:
            self.evaluate(None, step)
        if last:
            self._export()
        if last or (recipe.train.save_every and step % recipe.train.save_every == 0):
            for name, engine in self.engines.items():
                folder, keep = str(self.files.checkpoints / name), self.args.max_save_num
                self.strategy.save_ckpt(engine, folder, tag=f"step_{step:06d}", max_num=keep)

    def _log(self, step: int, train_info: dict[str, Any]) -> None:
        ranks = self.strategy.world_size
        gathered = [None] * ranks if self.strategy.is_rank_0() else None
        dist.gather_object(self.episodes, gathered)
        now = time.perf_counter()
        if gathered is not None:
            episodes = [episode for part in gathered for episode in part]
            logs = {**train_info, **self.actor_info, **self.losses, **(self.described or {})}
            logs |= {"rows/all": len(self.pi_buffer) * ranks, "lr": self.scheduler.get_last_lr()[0]}
            logs |= {"time/sync": self.weight_sync_elapse, "time/step": now - self.clock}
            metrics = step_metrics(episodes, logs)
            self.files.log(step, metrics)
            self.files.log_episodes(step, episodes[: self.recipe.train.log_episodes])
            if self._wandb is not None:
                self._wandb.log(metrics, step=step)
        self.clock = now

    def evaluate(self, dataloader: Any, steps: int) -> None:
        """Held-out episodes on the first node's actors; the signature is Oat's."""
        self._pre_evaluate()
        if self.strategy.is_rank_0():
            count, client = self.recipe.eval.inside_episodes, self.collector.ipc_client
            waiting = [
                actor.futures.run_eval(steps, list(range(n, count, len(self.actors))))
                for n, actor in enumerate(self.actors)
            ]
            episodes = [e for handle in waiting for e in client.deserialize_ipc(handle.result())]
            self.files.log_eval(steps, "during", episode_metrics(episodes))
        dist.barrier(group=self._same_actor_group)
        self._post_evaluate()

    def _export(self) -> None:
        """The policy and its tokenizer in Hugging Face format, whole or not at all."""
        self.model.model.module.config.use_cache = True  # Oat turned it off for training
        staging = self.files.path / "export"
        self.strategy.save_model(self.model, self.tokenizer, str(staging), tag="model")
        if self.strategy.is_rank_0():
            shutil.rmtree(self.files.model, ignore_errors=True)
            os.replace(staging / "model", self.files.model)
            staging.rmdir()
