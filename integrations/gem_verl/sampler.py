"""Where gem-core meets verl's training loop: the sampler in the trainer's process.

verl asks its sampler for each batch of rows. Ours checks that nothing was lost, logs the episodes,
labels the rows for the estimators and fixes their order. It is made before the first step, so it
also asserts the estimator there.
"""

from __future__ import annotations

import json
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.utils import tensordict_utils

from gem_core.adapters.token_rows import read_labels
from gem_core.episodes.data import Episode
from gem_core.episodes.metrics import episode_metrics
from gem_core.episodes.rollout import require_healthy
from gem_core.errors import GemError
from gem_core.training.recipe import Recipe
from gem_core.training.runs import RunDir
from gem_core.training.tasks import require_step
from gem_verl.advantages import require_installed
from gem_verl.metrics import RunLog
from gem_verl.rollout import read_recipe


class GemSampler(ReplayBuffer):
    """verl's synchronous sampler, with the episodes of a batch accounted for one by one."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.poll_interval = self.sampler_kwargs.get("poll_interval", 0.1)  # verl's is 2 s
        self.trainer = self.refill_fn.__self__  # a sampler's only way to verl's trainer
        data = self.trainer.config.data
        self.recipe: Recipe = read_recipe(data.gem_recipe)
        self.run = RunDir(data.gem_run)
        require_installed(self.recipe.algorithm.estimator, self.trainer.config.algorithm)

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> Any:
        """Return ``(rows, metrics)`` of a step, or of a validation (``partition_id = "val"``)."""
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        fields = ["extra_fields", "response_mask"]
        rows = tq.kv_batch_get(keys=batch.keys, partition_id=partition_id, select_fields=fields)
        extras = list(rows["extra_fields"])
        episodes = _episodes(extras, batch_size)
        if partition_id == "val":
            self.run.log_eval(global_steps, "during", episode_metrics(episodes))
            return batch, metrics
        require_step(self.recipe, global_steps, episodes)
        require_healthy(episodes)
        self.run.log_episodes(global_steps, episodes[: self.recipe.train.log_episodes])
        self.trainer.logger.logger.setdefault("gem-core", RunLog(self.run))
        trained = [bool(mask.any()) for mask in rows["response_mask"].unbind()]
        found = episode_metrics(episodes)
        found["turns/masked"] = sum(turn.aborted for e in episodes for turn in e.turns)
        found["rows/masked"] = trained.count(False)
        batch = _keep(batch, extras, trained)
        self._set_mini_batch(len(batch))
        return batch, metrics | {f"gem/{name}": float(value) for name, value in found.items()}

    def _set_mini_batch(self, rows: int) -> None:
        """Split this batch into the recipe's number of minibatches, whatever its number of rows.

        verl takes a size, not a number, and pads the batch to a multiple of it with masked rows.
        """
        config, batch = self.trainer.config, self.recipe.batch
        unit = config.trainer.nnodes * config.trainer.n_gpus_per_node * (batch.micro_batch or 1)
        size = unit * -(-rows // (unit * self.recipe.algorithm.minibatches))
        config.actor_rollout_ref.actor.ppo_mini_batch_size = size
        config.critic.ppo_mini_batch_size = size


def _episodes(extras: list[dict[str, Any]], expected: int) -> list[Episode]:
    """The episodes of a batch in task order; raises the engine's first fault, or a loss."""
    faults = [extra["fault"] for extra in extras if extra["fault"]]
    if faults:
        raise GemError(f"{len(faults)} episodes met a fault of the engine; the first:\n{faults[0]}")
    records = [json.loads(extra["episode"]) for extra in extras if extra["episode"]]
    if len(records) != expected:
        raise GemError(
            f"verl brought {len(records)} of {expected} episodes: see its AgentLoopWorker's log."
        )
    return sorted(map(Episode.from_dict, records), key=lambda episode: episode.index)


def _keep(batch: Any, extras: list[dict[str, Any]], trained: list[bool]) -> Any:
    """Drop rows with nothing to train on, order the rest and label them for the estimators.

    The episodes' records are taken out of the rows: the workers need not read them.
    """
    labels = dict(zip(batch.keys, read_labels([e["label"] for e in extras]), strict=True))
    idle = [key for key, used in zip(batch.keys, trained, strict=True) if not used]
    if len(idle) == len(labels):
        raise GemError("No episode of the batch has an action to train on: raise the limits.")
    if idle:
        tq.kv_clear(keys=idle, partition_id=batch.partition_id)
    kept = sorted(labels.keys() - idle, key=labels.__getitem__)
    columns = {"uid": [labels[key].encode() for key in kept], "extra_fields": [{} for _ in kept]}
    fields = tensordict_utils.get_tensordict(columns)
    tq.kv_batch_put(keys=kept, partition_id=batch.partition_id, fields=fields)
    return batch.select_keys(kept)
