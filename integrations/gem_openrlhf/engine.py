"""OpenRLHF's rollout actor, which also knows the version of its weights."""

from __future__ import annotations

from typing import Any

from openrlhf.trainer.ray import vllm_engine

_Stock: Any = vllm_engine.RolloutRayActor.__ray_metadata__.modified_class


class GemRolloutActor(_Stock):
    """OpenRLHF's actor around vLLM.

    Attributes:
        weights_version: training steps behind the engine's weights, see `gem_adapters.versions`.
        evaluated: version that evaluations are played with; ``None``: the newest.
    """

    weights_version = 0
    evaluated: int | None = None

    async def set_version(self, version: int) -> None:
        """The trainer has sent all weights after training step ``version``."""
        self.weights_version = version
        engines = getattr(self.llm, "engines", None)  # of the stand-in
        if engines is not None:
            engines.name(version)

    async def evaluate_with(self, version: int) -> None:
        """Play the coming evaluations with the weights after training step ``version``."""
        self.evaluated = version
