"""Oat's PPO learner on gem_core's episodes, advantages and loss weights."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import oat.learners.rl
import oat.utils.distributed
import torch
import torch.distributed as dist
from oat.utils.data import TransitionDataset

from gem_core.episodes.metrics import episode_metrics
from gem_core.errors import GemError
from gem_core.training.recipe import Recipe
from gem_core.training.runs import RunDir
from gem_oat import _compat
from gem_oat.advantages import GemAdvantages
from gem_oat.config import FUSED
from gem_oat.loss import TurnLoss
from gem_oat.metrics import step_metrics
from gem_oat.rollout import TurnData, pad_rows

_compat.fix_process_group(oat.utils.distributed)
_compat.fix_critic_schedule(oat.learners.rl)


class GemRun(NamedTuple):
    """What actors and learners know of the run; travels as ``args.gem``.

    ``start`` is the number of training steps behind the checkpoint to resume from.
    """

    recipe: Recipe
    files: RunDir
    start: int = 0


class Rows(TransitionDataset):
    """Oat's data set; each item also has its `Row`, whatever order Oat's loader shuffles into."""

    def __init__(self, buffer: Any, *args: Any) -> None:
        super().__init__(buffer, *args)
        for item, data in zip(self.transitions, buffer, strict=True):
            item["row"] = data.row

    def collate_fn(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """Oat's batch and its rows."""
        return {**super().collate_fn(items), "rows": [item["row"] for item in items]}


class GemLearner(GemAdvantages):
    """Oat's learner: its loop, loss, engine and weight sync; gem_core's batches and advantages."""

    def _init(self, args: Any, actors: Any) -> None:
        self.recipe, self.files, self.start = args.gem
        super()._init(args, actors)
        self.dataset_builder = Rows
        kinds = ["policy"] + ["kl"] * (args.beta > 0) + ["value"] * (self.critic is not None)
        self.loss = self.masked_aggregator = TurnLoss(
            self.recipe.algorithm, kinds, self.strategy.world_size, self.reduce
        )
        self.clock = time.perf_counter()
        if self.start:
            for engine, folder in self.engines.items():
                self.strategy.load_ckpt(engine, folder, f"step_{self.start:06d}")
            self.sync_params_to_actors()  # Oat's own resume leaves the actors at the first weights

    @property
    def engines(self) -> dict[Any, str]:
        """The trained DeepSpeed engines and their folders; last the one that counts, the policy."""
        trained = [("critic", self.critic), ("policy", self.model.model)]
        return {e: str(self.files.checkpoints / name) for name, e in trained if e is not None}

    def prepare_data(self, strategy: Any, tokenizer: Any) -> None:
        """A data set as long as the run: one item per step and learner, naming its tasks."""
        steps, shards = self.recipe.train.steps, strategy.world_size
        names = [f"{n // shards}/{n % shards}/{shards}" for n in range(steps * shards)]
        self.prompts_dataset = [(name,) * 3 for name in names]
        mine = range(self.start * shards + strategy.get_rank(), steps * shards, shards)
        self.prompts_dataloader = strategy.setup_dataloader(self.prompts_dataset, 1, sampler=mine)

    def process_feedback_data(self, data_list: list[TurnData]) -> None:
        """Make this step's rows the whole buffer, filled up so that every minibatch is equal."""
        self.episodes = [episode for data in data_list for episode in data.episodes]
        minibatches = self.recipe.algorithm.minibatches
        whole = -(-int(self.strategy.all_reduce(len(data_list), op="max")) // minibatches)
        micro = min(self.recipe.batch.micro_batch or whole, whole)
        accumulate = -(-whole // micro)
        self.pi_buffer = pad_rows(data_list, micro * accumulate * minibatches)
        if self.args.use_fused_lm_head and micro > 1:
            raise GemError(f"batch.micro_batch = {micro}: {FUSED}.")
        # The number of turns varies, so Oat's and DeepSpeed's sizes are this step's.
        self.args.train_batch_size_per_device, self.strategy.grad_acc_step = micro, accumulate
        for engine in self.engines:
            engine.set_train_batch_size(self.args.train_batch_size * accumulate)
            engine.optimizer.gradient_accumulation_steps = accumulate
            engine.micro_steps = 0  # accumulation ends at multiples: count from here

    def learning_step(self, trajectory: dict[str, Any]) -> dict[str, Any]:
        """Oat's PPO epochs over the batch. Raises GemError if gem_core's hooks were not reached."""
        self.rows, self.found = trajectory["rows"], None
        ids = trajectory["input_ids"].to(torch.cuda.current_device())
        self.loss.plan(self.rows, ids, self.args.train_batch_size_per_device)
        infos: dict[str, Any] = super().learning_step(trajectory)
        self.losses = self.loss.finish()
        trained = sum(not row.excluded for row in self.rows)
        infos["pg_clipfrac"] *= len(self.rows) / max(1, trained)  # masked rows clip nothing
        return infos

    def get_batch_logps(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any]:
        """Oat's log-probabilities; only a policy update asks for the entropy with them."""
        logps, entropy = super().get_batch_logps(*args, **kwargs)
        if kwargs.get("compute_entropy"):
            if self.found is None:
                raise GemError("Oat did not ask gem_core for advantages: nothing was trained.")
            self.loss.enter(kwargs["input_ids"], entropy)
        return logps, entropy

    def eval_and_log(self, train_info: Any, eval: bool = False, save: bool = False) -> None:
        """After every step: metrics, evaluation, checkpoint. Oat's last call finds all done."""
        if save:
            return
        step, recipe = self.start + self.steps, self.recipe
        last = step == recipe.train.steps
        self._log(step, train_info)
        if recipe.eval.every and step % recipe.eval.every == 0:
            self.evaluate(None, step)
        if last:
            self._export()
        if last or (recipe.train.save_every and step % recipe.train.save_every == 0):
            keep = self.args.max_save_num
            for engine, folder in self.engines.items():
                self.strategy.save_ckpt(engine, folder, tag=f"step_{step:06d}", max_num=keep)

    def _log(self, step: int, train_info: dict[str, Any]) -> None:
        gathered = [None] * self.strategy.world_size if self.strategy.is_rank_0() else None
        dist.gather_object(self.episodes, gathered)
        began, self.clock = self.clock, time.perf_counter()
        if gathered is None:
            return
        episodes = [episode for part in gathered for episode in part]
        own = {**self.losses, **self.found.metrics, "time/sync": self.weight_sync_elapse}
        own |= {"rows/all": len(self.rows) * len(gathered), "time/step": self.clock - began}
        own["lr"] = self.scheduler.get_last_lr()[0]
        metrics = step_metrics(episodes, {**train_info, **self.actor_info}, own)
        self.files.log(step, metrics)
        self.files.log_episodes(step, episodes[: self.recipe.train.log_episodes])
        if self._wandb is not None:
            self._wandb.log(metrics, step=step)

    def evaluate(self, dataloader: Any, steps: int) -> None:
        """Held-out episodes on the first node's actors; the signature is Oat's."""
        if not self.strategy.is_rank_0():
            return  # and wait at the next collective call
        indices, count = range(self.recipe.eval.inside_episodes), len(self.actors)
        parts = [list(indices[n::count]) for n in range(count)]
        waiting = [a.futures.run_eval(steps, p) for a, p in zip(self.actors, parts, strict=True)]
        client = self.collector.ipc_client
        episodes = [e for handle in waiting for e in client.deserialize_ipc(handle.result())]
        self.files.log_eval(steps, "during", episode_metrics(episodes))

    def _export(self) -> None:
        """The policy and its tokenizer in Hugging Face format, whole or not at all."""
        self.model.model.module.config.use_cache = True  # Oat turned it off for training
        staging = self.files.path / "export"
        self.strategy.save_model(self.model, self.tokenizer, str(staging), tag="model")
        if self.strategy.is_rank_0():
            self.files.publish(staging / "model")
            staging.rmdir()
