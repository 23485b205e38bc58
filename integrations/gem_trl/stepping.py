"""Play without a barrier between turns, through the step loop of TRL's colocated vLLM engine.

TRL's own call answers a whole batch of turns at once, so that all episodes wait for the slowest
environment. Where environments can block, each request enters the engine on its own instead.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gem_adapters.vllm_steps import StepPolicy
from gem_trl.vllm import sampling_params


def can_step(trainer: Any) -> bool:
    """Return whether this rank has an engine of its own that takes requests one by one."""
    if not trainer.use_vllm or trainer.vllm_mode != "colocate":
        return False
    engine = trainer.vllm_generation
    structured = "structured_outputs" in engine.generation_kwargs
    return (
        engine.tensor_parallel_size == 1 and not engine.structured_outputs_regex and not structured
    )


class SteppingPolicy(StepPolicy):
    """A policy for `gem_core.episodes.rollout.play_many` over the engine in this process.

    Args:
        trainer: whose engine it is; the trainer's weights are sent to it first, where they changed.
        stop_ids: token ids that end a turn.
    """

    def __init__(self, trainer: Any, stop_ids: Collection[int]) -> None:
        self.generation = trainer.vllm_generation
        ends = frozenset(stop_ids) | set(trainer.eos_token_ids)
        engine = self.generation.llm.llm_engine
        super().__init__(engine, lambda r: sampling_params(trainer, r.max_tokens), ends)
        if trainer.state.global_step != trainer._last_loaded_step:  # as TRL before its own call
            self.generation.sync_weights()
            trainer._last_loaded_step = trainer.state.global_step
