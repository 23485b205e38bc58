"""Oat's PPO learner on gem_core's episodes, advantages and loss weights."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import oat.learners.rl
import oat.utils.deepspeed
import oat.utils.distributed
import torch
import torch.distributed as dist
from oat.utils.data import TransitionDataset

from gem_adapters.loss_checks import require_finite
from gem_adapters.run_log import log_evaluation
from gem_adapters.support import require_support
from gem_adapters.updates import updates_were_finite
from gem_core.episodes.data import Episode
from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.stopping import Decision, SaveClock, mark_stopped
from gem_oat import _compat
from gem_oat.advantages import asked_per_token, require_installed
from gem_oat.config import FUSED
from gem_oat.loss import TurnLoss
from gem_oat.metrics import RunLog
from gem_oat.nodes import stop_on_failure
from gem_oat.rollout import RowData, pad_rows
from gem_oat.support import over_drawn
from gem_oat.updates import Updates
from gem_oat.weights import GemWeights

_compat.check_private_signatures()
_compat.fix_process_group(oat.utils.distributed)
_compat.fix_critic_schedule(oat.learners.rl)
_compat.start_critics_at_zero(oat.learners.rl)
_compat.drop_empty_groups(oat.utils.deepspeed)


class GemRun(NamedTuple):
    """What actors and learners know of the run; is passed as ``args.gem``.

    Attributes:
        recipe: the experiment.
        run_dir: where metrics, episodes, checkpoints and the model go.
        start: training steps behind the checkpoint to resume from.
    """

    recipe: Recipe
    run_dir: RunDir
    start: int = 0


class Rows(TransitionDataset):
    """Oat's data set; each item also has its row, whatever order Oat's loader shuffles into."""

    def __init__(self, buffer: Any, *args: Any) -> None:
        super().__init__(buffer, *args)
        for item, data in zip(self.transitions, buffer, strict=True):
            item["row"] = data.row

    def collate_fn(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """Oat's batch and its rows."""
        return {**super().collate_fn(items), "rows": [item["row"] for item in items]}


class GemLearner(GemWeights):
    """Oat's learner: its loop, loss, engine and weight sync; gem_core's batches and advantages."""

    def run(self) -> None:
        """Oat's whole training; an error ends the other processes, too."""
        stop_on_failure(super().run)

    def _init(self, args: Any, actors: Any) -> None:
        self.recipe, self.run_dir, self.start = args.gem
        super()._init(args, actors)
        self.dataset_builder = Rows
        self.loss = TurnLoss(
            self.recipe.algorithm, self._loss_kinds(), self.strategy.world_size, self.reduce
        )
        self.masked_aggregator = self.loss
        self.updates = Updates(self.recipe.algorithm)
        self._norm_of = self.strategy.get_gradient_norm
        self.strategy.get_gradient_norm = self._note_update
        self.run_log = RunLog(self.run_dir, self._wandb)
        self.save_clock = SaveClock(self.run_dir)
        self.steps = 0  # as Oat's loop begins with, after this
        if self.start:
            self.load_checkpoint()

    def _loss_kinds(self) -> list[str]:
        """What Oat aggregates in each micro-batch, in its order."""
        kinds = ["policy"]
        if self.args.beta > 0:
            kinds.append("kl")
        return [*kinds, "value"]  # also of `NoCritic`

    # -- the batch --------------------------------------------------------------------------

    def prepare_data(self, strategy: Any, tokenizer: Any) -> None:
        """A data set as long as the run: one item per step and learner, naming its tasks."""
        steps = self.recipe.train.steps
        shards = strategy.world_size
        names = [f"{n // shards}/{n % shards}/{shards}" for n in range(steps * shards)]
        self.prompts_dataset = [(name, name, name) for name in names]
        mine = range(self.start * shards + strategy.get_rank(), steps * shards, shards)
        self.prompts_dataloader = strategy.setup_dataloader(self.prompts_dataset, 1, sampler=mine)

    def process_feedback_data(self, data_list: list[RowData]) -> None:
        """Make this step's rows the whole buffer, filled up so that every minibatch is equal."""
        self.episodes = [episode for data in data_list for episode in data.episodes]
        if self._over_drawn:
            require_support(self.episodes)
        minibatches = self.recipe.algorithm.minibatches
        most_rows = int(self.strategy.all_reduce(len(data_list), op="max"))
        whole = _divide_up(most_rows, minibatches)
        micro = min(self.recipe.batch.micro_batch or whole, whole, self._most_rows(data_list))
        accumulate = _divide_up(whole, micro)
        self.pi_buffer = pad_rows(data_list, micro * accumulate * minibatches)
        if self.args.use_fused_lm_head and micro > 1:
            raise GemError(f"batch.micro_batch = {micro}: {FUSED}.")
        # The number of rows varies, so Oat's and DeepSpeed's sizes are this step's.
        self.args.train_batch_size_per_device = micro
        self.strategy.grad_acc_step = accumulate
        for engine in self.engines:
            engine.set_train_batch_size(self.args.train_batch_size * accumulate)
            engine.optimizer.gradient_accumulation_steps = accumulate
            engine.micro_steps = 0  # accumulation ends at multiples: count from here

    def _most_rows(self, data_list: list[RowData]) -> int:
        """Rows that fit into a forward pass, on every rank as many; a pass has at least one."""
        most_tokens = self.recipe.batch.max_tokens_per_device
        longest = max(len(data.row.token_ids) for data in data_list)
        longest = int(self.strategy.all_reduce(longest, op="max"))
        return max(1, most_tokens // longest) if most_tokens else sys.maxsize

    # -- the update -------------------------------------------------------------------------

    def learning_step(self, trajectory: dict[str, Any]) -> dict[str, Any]:
        """Oat's PPO epochs over the batch.

        Raises:
            GemError: Oat did not ask for gem_core's advantages or loss weights.
        """
        self.segments = trajectory["rows"]
        self.rows = [turn for row in self.segments for turn in row.turns]
        self.summary = {}
        ids = trajectory["input_ids"].to(torch.cuda.current_device())
        self.loss.plan(self.segments, ids, self.args.train_batch_size_per_device)
        self.updates.begin(self.segments)
        skipped = {engine: engine.skipped_steps for engine in self.engines}
        with asked_per_token(self):
            infos: dict[str, Any] = super().learning_step(trajectory)
        losses = self.loss.finish()
        losses.pop("loss/kl", None)  # aggregated as the loss; the common ``kl`` is a mean of tokens
        value = losses.pop("loss/value")
        if self.critic is not None:
            losses["loss/value"] = value / 2  # Oat halves it after the mean
        self.losses = {**losses, **self.updates.finish(self.reduce)}
        for engine, before in skipped.items():
            if not updates_were_finite(engine, before):
                name = "grad_norm" if engine is self.model.model else "grad_norm/critic"
                self.losses[name] = math.nan
        return infos

    def get_batch_logps(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any]:
        """Oat's log-probabilities; only a policy update asks for the entropy with them."""
        score, model, ids = super().get_batch_logps, kwargs["model"], kwargs["input_ids"]
        if kwargs.get("compute_entropy"):
            require_installed(self)
            places = self.loss.enter(ids)
            with self._restricted(model, places.tolist(), ids):
                logps, entropy = score(*args, **kwargs)
            self.updates.add(places, logps, entropy, self.turn_advantages)
        else:  # before the updates, row by row in the order of the batch
            done = self.updates.old if model is self.model else self.updates.initial
            with self._restricted(model, range(len(done), len(done) + len(ids)), ids):
                logps, entropy = score(*args, **kwargs)
            done.extend(logps.detach())
        return logps, entropy

    @property
    def _over_drawn(self) -> bool:
        """Whether log-probabilities are among the tokens that could be drawn."""
        return self.recipe.sampling.support == "drawn"

    def _restricted(
        self, model: Any, places: Iterable[int], ids: torch.Tensor
    ) -> AbstractContextManager[None]:
        """Restrict a pass of the rows at these places of the batch, where the recipe says so."""
        if not self._over_drawn:
            return nullcontext()
        return over_drawn(model, [self.segments[place] for place in places], ids)

    def _note_update(self, model: Any, **kwargs: Any) -> Any:
        """Oat's norm of the gradient, which it asks for before every step of the policy."""
        norm = self._norm_of(model, **kwargs)
        self.updates.end_update(norm, self.scheduler.get_last_lr()[0])
        return norm

    # -- after the update -------------------------------------------------------------------

    def eval_and_log(self, train_info: Any, eval: bool = False, save: bool = False) -> None:
        """After every step: metrics, evaluation, model, checkpoint.

        Oat calls this once more at the end, with ``save``; by then everything is done.
        """
        if save:
            return
        step = self.start + self.steps
        is_last = step == self.recipe.train.steps
        self._log(step, train_info)
        if self.recipe.eval.every and step % self.recipe.eval.every == 0:
            self.evaluate(None, step)
        if is_last:
            self.export()
        decision = self._decide(step)
        if is_last or decision.save:
            self.save_checkpoint(step)
        if decision.stop:
            self._stop(step)

    def _decide(self, step: int) -> Decision:
        """Whether to save and to end: the first rank's decision, as both are collective."""
        decisions = [self.save_clock.after(step)]
        dist.broadcast_object_list(decisions)
        return decisions[0]

    def _stop(self, step: int) -> None:
        """Let Oat's loop end after this step, without a model."""
        dist.barrier()  # the checkpoints of all ranks are written
        if self.strategy.is_rank_0():
            mark_stopped(self.run_dir, step)
        self.args.max_queries = -1

    def _log(self, step: int, train_info: dict[str, Any]) -> None:
        logs = {**train_info, **self.actor_info}
        require_finite(step, {**RunLog.common(logs), **self.losses})  # on every rank
        is_first = self.strategy.is_rank_0()
        gathered: list[Any] = [None] * self.strategy.world_size
        dist.gather_object(self.episodes, gathered if is_first else None)
        if not is_first:
            return
        episodes: list[Episode] = [episode for part in gathered for episode in part]
        metrics = {
            **self.losses,
            **self.summary,
            "time/sync": self.weight_sync_elapse,
            "rows/all": len(self.segments) * len(gathered),
        }
        self.run_log.log(step, episodes, logs, metrics)

    def evaluate(self, dataloader: Any, steps: int) -> None:
        """Play evaluation episodes on the first node's actors; the signature is Oat's."""
        if not self.strategy.is_rank_0():
            return  # and wait at the next collective call
        indices = range(self.recipe.eval.inside_episodes)
        count = len(self.actors)
        waiting = [
            actor.futures.run_eval(steps, list(indices[n::count]))
            for n, actor in enumerate(self.actors)
        ]
        client = self.collector.ipc_client
        episodes = [
            episode for handle in waiting for episode in client.deserialize_ipc(handle.result())
        ]
        log_evaluation(self.run_dir, steps, episodes)


def _divide_up(number: int, by: int) -> int:
    """``number`` / ``by``, rounded up."""
    return -(-number // by)
