"""OpenRLHF's trainer actors with gem_core's estimators, task order and logs put in.

``train_ppo_ray`` takes its classes from module attributes; `installed` puts subclasses there. Ray
imports them in the worker, where they check themselves before step 1. A patch of the stock classes
in the driver would not arrive in the worker.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import ray
from openrlhf.trainer import ppo_trainer, ppo_trainer_async
from openrlhf.trainer import ray as ray_trainers
from openrlhf.trainer.ray import launcher, ppo_actor, ppo_critic, vllm_engine

from gem_core.runs.directory.run_dir import current_run
from gem_core.training.stopping import SaveClock, mark_stopped
from gem_openrlhf._compat import check_private_signatures
from gem_openrlhf.advantages import GemExperienceMaker, require_installed
from gem_openrlhf.engine import GemRolloutActor
from gem_openrlhf.metrics import RunLog
from gem_openrlhf.support import GemReferenceModelActor
from gem_openrlhf.updates import GemCriticModelActor, GemPolicyModelActor

check_private_signatures()

_Actor: Any = object
"""Base of the two mixins below, which are combined with OpenRLHF's actor classes."""


class _Trains(_Actor):
    """Mixed into the actor that trains: estimators, the check before step 1, metrics."""

    args: Any
    experience_maker: Any
    vllm_engines: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        run = current_run()
        self.weights_version = 0
        stock = self.experience_maker
        self.recipe = run.recipe
        self.run_log = RunLog(run)
        self.save_clock = SaveClock(run)
        self.stopping = False
        self.experience_maker = GemExperienceMaker(
            self.recipe,
            stock.actor_model_group,
            stock.critic_model_group,
            stock.reward_model_group,
            stock.initial_model_group,
            stock.kl_ctl,
            stock.strategy,
            stock.tokenizer,
        )

    def fit(self, *args: Any, **kwargs: Any) -> None:
        require_installed(self, self.recipe)
        super().fit(*args, **kwargs)

    def init_checkpoint_states(self) -> Any:
        """OpenRLHF's; a resumed run sends its weights after this."""
        states = super().init_checkpoint_states()
        self.weights_version = states["global_step"]
        return states

    def train_step(self, rollout_samples: Any, global_step: int) -> Any:
        """OpenRLHF's training step, the one after ``global_step``, which sends its weights."""
        self.weights_version = global_step + 1
        return super().train_step(rollout_samples, global_step)

    def broadcast_to_vllm(self) -> None:
        """OpenRLHF's; the engines also learn which version of the weights this is."""
        super().broadcast_to_vllm()
        engines = self.vllm_engines or []
        ray.get([engine.set_version.remote(self.weights_version) for engine in engines])

    def save_logs_and_checkpoints(
        self, global_step: int, logs_dict: Any = None, client_states: Any = None
    ) -> None:
        maker = self.experience_maker
        self.run_log.log_step(global_step, maker.episodes, maker.metrics, logs_dict)
        decision = self.save_clock.after(global_step)
        settings = self.args.ckpt
        interval = settings.save_steps
        settings.save_steps = 1 if decision.save else interval
        super().save_logs_and_checkpoints(global_step, logs_dict, client_states)
        settings.save_steps = interval
        self.stopping = decision.stop
        if self.stopping and not self.evaluates_after(global_step):
            self.stop(global_step)

    def evaluates_after(self, step: int) -> bool:
        """Return whether this actor evaluates next; in asynchronous mode another one does."""
        return False

    def stop(self, step: int) -> None:
        """End training after step ``step``, whose checkpoint is written.

        Raises:
            RunStopped: always; OpenRLHF's command line ends with it before it saves a model.
        """
        raise mark_stopped(current_run(), step)


class _Generates(_Actor):
    """Mixed into the actor that draws prompts: task order instead of a shuffle, evaluation.

    The engines load the tokenizer themselves: OpenRLHF sends it with every prompt.
    """

    prompts_dataloader: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        generator = self.samples_generator
        rows = self.prompts_dataloader.dataset
        self.prompts_dataloader = generator.strategy.setup_dataloader(
            rows, 1, shuffle=False, collate_fn=rows.collate_fn
        )
        generator.prompts_dataloader = self.prompts_dataloader
        generator.tokenizer = None

    def evaluate(self, step: int, **sampling: Any) -> dict[str, float]:
        """Play the evaluation episodes; nothing is returned to choose a best checkpoint by."""
        # OpenRLHF has a temperature of its own for evaluations, and no top_p.
        sampling["top_p"] = current_run().recipe.eval_top_p
        samples = self.samples_generator.generate_eval_samples(**sampling)
        episodes = [sample.labels[0][0] for sample in samples]
        RunLog(current_run()).log_evaluation(step, episodes)
        return {}


class GemPPOTrainer(_Trains, _Generates, ppo_trainer.PPOTrainer.__ray_metadata__.modified_class):
    """Synchronous mode: one actor generates and trains."""

    def evaluates_after(self, step: int) -> bool:
        """Return whether an evaluation follows training step ``step``."""
        every = self.recipe.eval.every
        return bool(every) and step % every == 0

    def evaluate(self, step: int, **sampling: Any) -> dict[str, float]:
        """Evaluate; end then if the run is asked to."""
        metrics = super().evaluate(step, **sampling)
        if self.stopping:
            self.stop(step)
        return metrics


class GemTrainingActor(_Trains, ppo_trainer_async.TrainingActor.__ray_metadata__.modified_class):
    """Asynchronous mode: the actor that trains."""


class GemGenerateSamplesActor(
    _Generates, ppo_trainer_async.GenerateSamplesActor.__ray_metadata__.modified_class
):
    """Asynchronous mode: the actor that draws prompts."""

    def _run_eval(self) -> dict[str, float]:
        if current_run().recipe.sampling.staleness:
            # Training may have gone on: which weights come first would be by chance.
            engines = self.samples_generator.vllm_engines
            ray.get([engine.evaluate_with.remote(self._last_eval_step) for engine in engines])
        sampling = {
            **self.generate_kwargs,
            "temperature": self.args.eval.temperature,
            "n_samples_per_prompt": 1,
        }
        return self.evaluate(self._last_eval_step, **sampling)


SUBCLASSES: tuple[tuple[Any, str, type], ...] = (
    (ppo_trainer, "PPOTrainer", GemPPOTrainer),
    (ppo_trainer_async, "TrainingActor", GemTrainingActor),
    (ppo_trainer_async, "GenerateSamplesActor", GemGenerateSamplesActor),
    (launcher, "ReferenceModelActor", GemReferenceModelActor),
    (ppo_actor, "PolicyModelActor", GemPolicyModelActor),
    (ppo_critic, "CriticModelActor", GemCriticModelActor),
    (vllm_engine, "RolloutRayActor", GemRolloutActor),
)
"""Module, name of the stock class, and what stands there during a run."""


def _with_logprobs(create_engines: Callable[..., Any]) -> Callable[..., Any]:
    """Have vLLM report the probabilities that it samples from, also without a correction."""
    signature = inspect.signature(create_engines)

    def create(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs)
        arguments.arguments["logprobs_mode"] = "processed_logprobs"
        return create_engines(*arguments.args, **arguments.kwargs)

    return create


@contextmanager
def marked(marks: Sequence[Callable[[Any], Any]]) -> Iterator[None]:
    """Mark the arguments of the run that OpenRLHF's command line starts in this process.

    After it has read them: it would pack the sequences of dynamic batches, which takes flash-attn.

    Args:
        marks: each is called with the arguments, see `gem_openrlhf.rows.count_rows` and
            `gem_openrlhf.support.restrict`.
    """
    from openrlhf import utils

    original = utils.get_strategy

    def get_strategy(args: Any) -> Any:
        for mark in marks:
            mark(args)
        return original(args)

    with patch.object(utils, "get_strategy", get_strategy):
        yield


@contextmanager
def installed(marks: Sequence[Callable[[Any], Any]] = ()) -> Iterator[None]:
    """Put the subclasses where ``train_ppo_ray`` and its controllers look for the stock classes.

    Args:
        marks: of OpenRLHF's arguments, see `marked`.
    """
    with ExitStack() as stack:
        stack.enter_context(marked(marks))
        for module, name, subclass in SUBCLASSES:
            stack.enter_context(patch.object(module, name, ray.remote(subclass)))
        engines = _with_logprobs(ray_trainers.create_vllm_engines)
        stack.enter_context(patch.object(ray_trainers, "create_vllm_engines", engines))
        yield
