"""OpenRLHF's policy actor in this process, without a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from gem_adapters.estimate import needs_critic
from gem_core.episodes.data import Episode
from gem_core.runs.recipe.recipe import Recipe
from gem_openrlhf.cpu import harness

harness.apply()  # before the imports below: they need flash_attn and vllm

import numpy as np  # noqa: E402
import ray  # noqa: E402
from deepspeed.utils import safe_get_full_grad  # noqa: E402
from openrlhf.trainer.ppo_utils.experience import (  # noqa: E402
    Experience,
    balance_experiences,
)
from openrlhf.trainer.ppo_utils.kl_controller import FixedKLController  # noqa: E402
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator  # noqa: E402
from openrlhf.utils import get_strategy  # noqa: E402

from gem_openrlhf.advantages import GemExperienceMaker  # noqa: E402
from gem_openrlhf.config import flags, render  # noqa: E402
from gem_openrlhf.cpu.parse import parse  # noqa: E402
from gem_openrlhf.rollout import to_native  # noqa: E402
from gem_openrlhf.rows import count_rows, counts_rows  # noqa: E402
from gem_openrlhf.support import GemReferenceModelActor, restrict  # noqa: E402
from gem_openrlhf.updates import GemCriticModelActor, GemPolicyModelActor  # noqa: E402


class InProcess:
    """The released actor, experience maker and optimizer over one model, by direct calls.

    Several of these in as many processes train together over gloo; ``MASTER_ADDR`` and
    ``MASTER_PORT`` say where they meet. Each makes the experiences of all episodes; `share` are
    those that it trains on.

    Args:
        recipe: the experiment; its float32 needs the harness, which honours it here too.
        model_dir: Hugging Face directory of the policy.
        rank: of this process.
        ranks: number of processes; ``hardware.gpus_per_node`` of the recipe.

    Attributes:
        steps: the gradient of each optimizer step by parameter name, as it is before clipping.
    """

    def __init__(self, recipe: Recipe, model_dir: str, *, rank: int = 0, ranks: int = 1) -> None:
        harness.choose_dtype(recipe)
        self.recipe = recipe
        self.rank = rank
        self.ranks = ranks
        native = {
            **flags(recipe),
            "actor.model_name_or_path": model_dir,
            "train.agent_func_path": "unused.py",
        }
        self.args = parse(render(native))
        if recipe.context.history != "append":
            count_rows(self.args)
        if recipe.sampling.support == "drawn":
            restrict(self.args)
        self.strategy = get_strategy(self.args)
        self.steps: list[dict[str, np.ndarray]] = []
        self._make_actors(model_dir)
        self.maker = GemExperienceMaker(
            recipe,
            Group(self.actor),
            Group(self.critic) if self.critic else None,
            None,
            Group(self.reference) if self.reference else None,
            FixedKLController(recipe.algorithm.kl_coef),
            self.strategy,
            self.actor.tokenizer,
        )
        self._generator = SamplesGenerator(self.strategy, None, None, self.actor.tokenizer, [])
        self._capture_gradients()

    def _make_actors(self, model_dir: str) -> None:
        """Make the policy, and the critic and the reference model that the recipe asks for."""
        algorithm = self.recipe.algorithm
        # As OpenRLHF counts them: optimizer steps of the whole run, for the learning rate.
        updates = self.recipe.train.steps * algorithm.epochs * algorithm.minibatches
        self.actor = self._actor(GemPolicyModelActor, model_dir, updates, None)
        self.critic: Any = None
        if needs_critic(self.recipe):
            self.critic = self._actor(GemCriticModelActor, model_dir, updates)
        self.reference: Any = None
        if algorithm.kl_coef:
            self.reference = self._actor(GemReferenceModelActor, model_dir)

    def _actor(self, actor_class: Any, model_dir: str, *arguments: Any) -> Any:
        """Make one of OpenRLHF's actors as a plain object."""
        with patch.object(ray._private.services, "get_node_ip_address", lambda: "127.0.0.1"):
            port = os.environ.get("MASTER_PORT") if self.ranks > 1 else None
            actor = actor_class(self.ranks, self.rank, "127.0.0.1", port)
            actor.init_model_from_pretrained(self.strategy, model_dir, *arguments)
        return actor

    def samples(
        self,
        episodes: Sequence[Episode],
        *,
        states: Mapping[int, list[int]] = MappingProxyType({}),
    ) -> list[Experience]:
        """Convert episodes with the adapter's `to_native` and OpenRLHF's SamplesGenerator."""
        responses = [to_native(episode, states.get(episode.index)) for episode in episodes]
        max_len = self.args.data.max_len
        return [
            self._generator._process_response_into_experience(response, max_len=max_len)
            for response in responses
        ]

    def experiences(self, episodes: Sequence[Episode], **options: Any) -> list[Experience]:
        """Return episodes as experiences with log-probabilities, advantages and returns."""
        plain = SimpleNamespace(get=lambda value: value, put=lambda value: value)
        with patch("openrlhf.trainer.ppo_utils.experience_maker.ray", plain):
            return self.maker.make_experience_batch(self.samples(episodes, **options))

    def share(self, experiences: Sequence[Experience]) -> list[Experience]:
        """Return the experiences that OpenRLHF hands to this rank: an equal part, in order."""
        if self.recipe.batch.max_tokens_per_device or counts_rows(self.args):
            experiences = balance_experiences(experiences, self.args)
        each = -(-len(experiences) // self.ranks)
        return list(experiences[self.rank * each : (self.rank + 1) * each])

    def train(self, experiences: Sequence[Experience]) -> dict[str, float]:
        """Run OpenRLHF's update on ``experiences``, the critic's first; return its status."""
        status: dict[str, float] = {}
        if self.critic is not None:
            for experience in experiences:
                self.critic.append(experience)
            status |= self.critic.fit()
        for experience in experiences:
            self.actor.append(experience)
        status |= self.actor.fit(self.maker.kl_ctl.value)
        return status

    def _capture_gradients(self) -> None:
        """Fill ``steps`` while OpenRLHF trains."""
        engine = self.actor.actor.model
        step = self.strategy.optimizer_step

        def optimizer_step(optimizer: Any, model: Any, *args: Any, **kwargs: Any) -> None:
            if model is self.actor.actor and engine.is_gradient_accumulation_boundary():
                gradients = {}
                for name, parameter in engine.module.named_parameters():
                    if parameter.requires_grad:
                        gradient = safe_get_full_grad(parameter)
                        gradients[name] = gradient.double().numpy().copy()
                self.steps.append(gradients)
            step(optimizer, model, *args, **kwargs)

        self.strategy.optimizer_step = optimizer_step


class Group:
    """OpenRLHF's RayActorGroup over one plain object: calls run now, results are kept."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def async_run_method_batch(self, method_name: str, **columns: Any) -> list[Any]:
        """Return one result per row of ``columns``, as one chunk."""
        count = len(next(iter(columns.values())))
        method = getattr(self.actor, method_name)
        results = []
        for row in range(count):
            arguments = {name: column[row] for name, column in columns.items()}
            results.append(method(**arguments))
        return [results]
