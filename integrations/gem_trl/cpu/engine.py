"""gem_core's CPU engine in place of transformers' generate, in TRL's own hook for rollouts.

TRL calls ``rollout_func``, which may sample as it likes. On a CPU it samples from the model that
TRL trains with the engine that all adapters share, so that equal weights give equal episodes in
every trainer. Scoring, loss and update are TRL's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gem_adapters.versions import VersionedEngines, generate_by_version, pick_version
from gem_core.episodes.data import Completion
from gem_core.episodes.rollout import Request
from gem_core.policies.engine.engine import Engine, EngineRequest
from gem_core.policies.engine.sampling import Sampling
from gem_trl.policy import EnginePolicy

_TRANSLATED = {"eos_token_id", "max_new_tokens"}
"""What the adapter itself writes into TRL's ``generation_kwargs``; requests carry both."""


class CpuEnginePolicy(EnginePolicy):
    """A batch policy with the model of a ``GRPOTrainer``.

    TRL generates itself where all ranks must do so together, and where ``[trainer.trl]`` asks for
    what only transformers' generate has, see `by_trl`.
    """

    _engines: VersionedEngines[Engine] | None = None

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """See `gem_core.episodes.rollout.BatchPolicy`."""
        if self.by_trl:
            return super().complete_batch(requests)
        recipe = self.trainer.recipe
        sampling = self._sampling()
        stop_ids = self.stop_ids | set(self.trainer.eos_token_ids)
        keeps_support = self.trainer.over_drawn
        asked = [
            EngineRequest(
                r.prompt_ids, r.max_tokens, stop_ids, sampling, r.seed, support=keeps_support
            )
            for r in requests
        ]
        versions = [pick_version(recipe, request.machine) for request in requests]
        return generate_by_version(self.engines, asked, versions)

    @property
    def engines(self) -> VersionedEngines[Engine]:
        """The engines of the model that TRL trains, as it is now, and of its old weights."""
        version = self.trainer.weights_version
        if self._engines is None:
            model = self.trainer.accelerator.unwrap_model(self.trainer.model)
            keep = self.trainer.recipe.sampling.staleness
            self._engines = VersionedEngines(model, Engine, keep, version)
        if self._engines.version != version:
            self._engines.name(version)
        return self._engines

    @property
    def by_trl(self) -> bool:
        """Whether TRL's own generation must be used."""
        trainer = self.trainer
        if trainer.use_vllm or trainer.use_transformers_continuous_batching or self.coupled:
            return True
        special: dict[str, Any] = {
            "min_p": trainer.min_p,
            "repetition_penalty": trainer.repetition_penalty not in (None, 1.0),
            "cache_implementation": trainer.args.cache_implementation,
            "generation_kwargs": set(trainer.args.generation_kwargs or ()) - _TRANSLATED,
        }
        return any(special.values())

    def _sampling(self) -> Sampling:
        """Return what `gem_trl.rollout.sampling_at` and the recipe set."""
        config = self.trainer.generation_config
        return Sampling(
            config.temperature if config.do_sample else 0.0,
            config.top_p or 1.0,
            config.top_k or -1,
        )
