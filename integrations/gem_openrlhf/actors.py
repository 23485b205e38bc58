"""OpenRLHF's trainer actors with gem_core's estimators, task order and logs put in.

``train_ppo_ray`` takes its trainer classes from module attributes; `installed` puts these
subclasses there. Ray imports them in the worker, where they check themselves before step 1. A
patch of the stock classes in the driver would not arrive in the worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import ray
from openrlhf.trainer import ppo_trainer, ppo_trainer_async

from gem_core.episodes.metrics import episode_metrics
from gem_core.training.runs import current_run
from gem_openrlhf.advantages import GemExperienceMaker, require_installed
from gem_openrlhf.metrics import common


class _Trains:
    """Mixed into the actor that trains: estimators, the check before step 1, metrics."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        stock, self.run = self.experience_maker, current_run()
        groups = (stock.actor_model_group, stock.critic_model_group, stock.reward_model_group)
        rest = (stock.initial_model_group, stock.kl_ctl, stock.strategy, stock.tokenizer)
        self.experience_maker = GemExperienceMaker(self.run.recipe, *groups, *rest)

    def fit(self, *args: Any, **kwargs: Any) -> None:
        require_installed(self, self.run.recipe)
        super().fit(*args, **kwargs)

    def save_logs_and_checkpoints(self, global_step: int, logs_dict: Any, *rest: Any) -> None:
        maker = self.experience_maker
        metrics = episode_metrics(maker.episodes) | maker.summary | common(logs_dict)
        self.run.log(global_step, metrics)
        self.run.log_episodes(global_step, maker.episodes[: self.run.recipe.train.log_episodes])
        super().save_logs_and_checkpoints(global_step, logs_dict, *rest)


class _Generates:
    """Mixed into the actor that draws prompts: task order instead of a shuffle, evaluation.

    The engines load the tokenizer themselves: OpenRLHF sends it with every prompt.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        generator, rows = self.samples_generator, self.prompts_dataloader.dataset
        ordered = {"shuffle": False, "collate_fn": rows.collate_fn}
        self.prompts_dataloader = generator.strategy.setup_dataloader(rows, 1, **ordered)
        generator.prompts_dataloader, generator.tokenizer = self.prompts_dataloader, None

    def evaluate(self, step: int, **sampling: Any) -> dict[str, float]:
        """Play the held-out episodes; nothing is returned to choose a best checkpoint by."""
        samples = self.samples_generator.generate_eval_samples(**sampling)
        episodes = [sample.labels[0][0] for sample in samples]
        current_run().log_eval(step, "during", episode_metrics(episodes))
        return {}


class GemPPOTrainer(_Trains, _Generates, ppo_trainer.PPOTrainer.__ray_metadata__.modified_class):
    """Synchronous mode: one actor generates and trains."""


class GemTrainingActor(_Trains, ppo_trainer_async.TrainingActor.__ray_metadata__.modified_class):
    """Asynchronous mode: the actor that trains."""


class GemGenerateSamplesActor(
    _Generates, ppo_trainer_async.GenerateSamplesActor.__ray_metadata__.modified_class
):
    """Asynchronous mode: the actor that draws prompts."""

    def _run_eval(self) -> dict[str, float]:
        sampling = {"temperature": self.args.eval.temperature, "n_samples_per_prompt": 1}
        return self.evaluate(self._last_eval_step, **{**self.generate_kwargs, **sampling})


@contextmanager
def installed() -> Iterator[None]:
    """Put the subclasses where ``train_ppo_ray`` and its controllers look for the stock classes."""
    generates, trains = ray.remote(GemGenerateSamplesActor), ray.remote(GemTrainingActor)
    with (
        patch.object(ppo_trainer, "PPOTrainer", ray.remote(GemPPOTrainer)),
        patch.object(ppo_trainer_async, "GenerateSamplesActor", generates),
        patch.object(ppo_trainer_async, "TrainingActor", trains),
    ):
        yield
