"""OpenRLHF's policy actor in this process, without a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from gem_core.episodes.data import Episode
from gem_core.training.recipe import Recipe
from gem_openrlhf.cpu import harness

harness.apply()  # before the imports below: they need flash_attn and vllm

import numpy as np  # noqa: E402
import ray  # noqa: E402
from deepspeed.utils import safe_get_full_grad  # noqa: E402
from openrlhf.trainer.ppo_utils.experience import Experience  # noqa: E402
from openrlhf.trainer.ppo_utils.kl_controller import FixedKLController  # noqa: E402
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator  # noqa: E402
from openrlhf.trainer.ray.launcher import ReferenceModelActor  # noqa: E402
from openrlhf.trainer.ray.ppo_actor import PolicyModelActor  # noqa: E402
from openrlhf.trainer.ray.ppo_critic import CriticModelActor  # noqa: E402
from openrlhf.utils import get_strategy  # noqa: E402

from gem_openrlhf.advantages import GemExperienceMaker  # noqa: E402
from gem_openrlhf.config import flags, render  # noqa: E402
from gem_openrlhf.cpu.parse import parse  # noqa: E402
from gem_openrlhf.rollout import to_native  # noqa: E402


class InProcess:
    """The released actor, experience maker and optimizer over one model, by direct calls.

    Args:
        recipe: the experiment; its float32 needs the harness, which honours it here too.
        model_dir: Hugging Face directory of the policy.
    """

    def __init__(self, recipe: Recipe, model_dir: str) -> None:
        harness.choose_dtype(recipe)
        native = {**flags(recipe), "actor.model_name_or_path": model_dir}
        native |= {"train.agent_func_path": "unused.py"}
        self.recipe, self.args = recipe, parse(render(native))
        self.strategy = get_strategy(self.args)
        self.steps: list[dict[str, np.ndarray]] = []
        algorithm, self.critic, self.reference = recipe.algorithm, None, None
        # As OpenRLHF counts them: optimizer steps of the whole run, for the learning rate.
        updates = recipe.train.steps * algorithm.epochs * algorithm.minibatches
        self.actor = self._actor(PolicyModelActor, model_dir, updates, None)
        if algorithm.estimator == "gae":
            self.critic = self._actor(CriticModelActor, model_dir, updates)
        if algorithm.kl_coef:
            self.reference = self._actor(ReferenceModelActor, model_dir)
        self.maker = GemExperienceMaker(
            recipe,
            Group(self.actor),
            Group(self.critic) if self.critic else None,
            None,
            Group(self.reference) if self.reference else None,
            FixedKLController(algorithm.kl_coef),
            self.strategy,
            self.actor.tokenizer,
        )
        self._generator = SamplesGenerator(self.strategy, None, None, self.actor.tokenizer, [])
        self._capture_gradients()

    def _actor(self, ray_class: Any, model_dir: str, *arguments: Any) -> Any:
        """Make an actor of a Ray class as a plain object."""
        with patch.object(ray._private.services, "get_node_ip_address", lambda: "127.0.0.1"):
            actor = ray_class.__ray_metadata__.modified_class(1, 0, "127.0.0.1", None)
            actor.init_model_from_pretrained(self.strategy, model_dir, *arguments)
        return actor

    def samples(
        self,
        episodes: Sequence[Episode],
        *,
        states: Mapping[int, list[int]] = MappingProxyType({}),
        logprobs: bool = False,
    ) -> list[Experience]:
        """Episodes through the adapter's response and OpenRLHF's SamplesGenerator."""
        return [
            self._generator._process_response_into_experience(
                to_native(episode, states.get(episode.index), logprobs),
                max_len=self.args.data.max_len,
            )
            for episode in episodes
        ]

    def experiences(self, episodes: Sequence[Episode], **options: Any) -> list[Experience]:
        """Episodes as experiences with log-probabilities, advantages and returns."""
        plain = SimpleNamespace(get=lambda value: value, put=lambda value: value)
        with patch("openrlhf.trainer.ppo_utils.experience_maker.ray", plain):
            return self.maker.make_experience_batch(self.samples(episodes, **options))

    def train(self, experiences: Sequence[Experience]) -> dict[str, float]:
        """OpenRLHF's update on ``experiences``; returns its status."""
        status: dict[str, float] = {}
        for actor in (self.critic, self.actor):
            if actor is not None:
                for experience in experiences:
                    actor.append(experience)
                status |= actor.fit(*([self.maker.kl_ctl.value] if actor is self.actor else []))
        return status

    def _capture_gradients(self) -> None:
        """Keep the gradient of each optimizer step, as it is before clipping."""
        engine, step = self.actor.actor.model, self.strategy.optimizer_step

        def optimizer_step(optim: Any, model: Any, *args: Any, **kwargs: Any) -> None:
            if model is self.actor.actor and engine.is_gradient_accumulation_boundary():
                named = engine.module.named_parameters()
                grads = {n: safe_get_full_grad(p) for n, p in named if p.requires_grad}
                self.steps.append({n: g.double().numpy().copy() for n, g in grads.items()})
            step(optim, model, *args, **kwargs)

        self.strategy.optimizer_step = optimizer_step


class Group:
    """OpenRLHF's RayActorGroup over one plain object: calls run now, results are kept."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def async_run_method_batch(self, method_name: str, **columns: Any) -> list[Any]:
        """One result per row of ``columns``, as one chunk."""
        count = len(next(iter(columns.values())))
        method = getattr(self.actor, method_name)
        return [[method(**{k: v[i] for k, v in columns.items()}) for i in range(count)]]
