"""Where gem-core enters verl's training loop: the sampler in the trainer's process.

verl asks its sampler for each batch of rows. This one checks that nothing was lost, hands the
episodes to the log, labels the rows for the estimators and fixes their order. It is made before the
first step, so it also asserts the estimator there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.utils import tensordict_utils

from gem_adapters.run_log import log_evaluation
from gem_adapters.support import require_support
from gem_adapters.token_rows import read_labels
from gem_core.episodes.data import Episode
from gem_core.episodes.metrics import episode_metrics
from gem_core.episodes.rollout import require_healthy
from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import require_step
from gem_verl.advantages import require_installed
from gem_verl.metrics import PREFIX, RunLog
from gem_verl.rollout import read_recipe
from gem_verl.saving import SavingStep
from gem_verl.values import minibatch_rows

POLL_SECONDS = 0.1
"""Time between two looks for finished rows; verl's own is 2 s."""


class GemSampler(ReplayBuffer):
    """verl's synchronous sampler, with the episodes of a batch accounted for one by one.

    Raises:
        GemError: verl would run another estimator than the recipe's.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.poll_interval = self.sampler_kwargs.get("poll_interval", POLL_SECONDS)
        self.trainer = self.refill_fn.__self__  # a sampler's only way to verl's trainer
        data = self.trainer.config.data
        self.recipe: Recipe = read_recipe(data.gem_recipe)
        self.run = RunDir(data.gem_run)
        self.run_log = RunLog(self.run)
        require_installed(self.recipe.algorithm.estimator, self.trainer.config.algorithm)
        self.trainer.step = SavingStep(self.trainer, self.run_log)
        self.run_log.after_step = self.trainer.step.after

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, Any]:
        """Return the rows of a step and metrics, checked against the recipe.

        Args:
            global_steps: number of the step, from 1.
            partition_id: ``"train"``, or ``"val"`` for a validation.
            batch_size: number of episodes.

        Raises:
            GemError: an episode is missing or of another step, the engine failed, or more than half
                of the episodes broke.
        """
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        rows = tq.kv_batch_get(
            keys=batch.keys,
            partition_id=partition_id,
            select_fields=["extra_fields", "response_mask"],
        )
        extras = list(rows["extra_fields"])
        episodes = _episodes(extras, batch_size)
        if partition_id == "val":
            log_evaluation(self.run, global_steps, episodes)
            return batch, metrics
        require_step(self.recipe, global_steps, episodes)
        require_healthy(episodes)
        if self.recipe.sampling.support == "drawn":
            require_support(episodes)
        self.run_log.begin(episodes)
        self.trainer.logger.logger["gem-core"] = self.run_log
        trained = [bool(mask.any()) for mask in rows["response_mask"].unbind()]
        batch = _keep_trained(batch, extras, trained)
        self._set_mini_batch(len(batch))
        return batch, metrics | _batch_metrics(episodes)

    def _set_mini_batch(self, rows: int) -> None:
        """Split this batch into at most the recipe's number of minibatches."""
        config = self.trainer.config
        size = minibatch_rows(self.recipe, rows)
        config.actor_rollout_ref.actor.ppo_mini_batch_size = size
        config.critic.ppo_mini_batch_size = size


def _batch_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return metrics of a batch for all of verl's loggers, `RunLog` among them."""
    metrics = episode_metrics(episodes)
    return {PREFIX + name: float(value) for name, value in metrics.items()}


def _episodes(extras: Sequence[dict[str, Any]], expected: int) -> list[Episode]:
    """Return the episodes of a batch in task order.

    Raises:
        GemError: the engine failed, or an episode is missing.
    """
    faults = [extra["fault"] for extra in extras if extra["fault"]]
    if faults:
        raise GemError(f"{len(faults)} episodes met a fault of the engine; the first:\n{faults[0]}")
    records = [json.loads(extra["episode"]) for extra in extras if extra["episode"]]
    if len(records) != expected:
        raise GemError(
            f"verl brought {len(records)} of {expected} episodes: see its AgentLoopWorker's log."
        )
    return sorted(map(Episode.from_dict, records), key=lambda episode: episode.index)


def _keep_trained(batch: Any, extras: Sequence[dict[str, Any]], trained: Sequence[bool]) -> Any:
    """Drop rows with nothing to train on, order the rest and label them for the estimators.

    The episodes' records are taken out of the rows: the workers need not read them.

    Raises:
        GemError: no row is left.
    """
    texts = [extra["label"] for extra in extras]
    labels = dict(zip(batch.keys, read_labels(texts), strict=True))
    untrained = [key for key, used in zip(batch.keys, trained, strict=True) if not used]
    if len(untrained) == len(labels):
        raise GemError("No episode of the batch has an action to train on: raise the limits.")
    if untrained:
        tq.kv_clear(keys=untrained, partition_id=batch.partition_id)
    kept = sorted(labels.keys() - set(untrained), key=labels.__getitem__)
    columns = {
        "uid": [labels[key].encode() for key in kept],
        "extra_fields": [{} for _ in kept],
    }
    fields = tensordict_utils.get_tensordict(columns)
    tq.kv_batch_put(keys=kept, partition_id=batch.partition_id, fields=fields)
    return batch.select_keys(kept)
