"""What TRL does not do for its vLLM engine: its precision, a server's settings, sleep per batch."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gem_core.errors import RunError
from gem_core.runs.recipe.recipe import Recipe
from gem_trl.values import model_length

CPU_VARIABLE = "GEM_TRL_TEST_VLLM_ON_CPU"
"""Environment variable that allows ``hardware.engine = "vllm"`` on a CPU; ``1`` in the tests with
a CPU build of vLLM, see ``benchmarks/engines``."""
SERVER_OPTIONS = """--weight-transfer-config '{"backend": "nccl"}' --logprobs-mode \
processed_logprobs"""
"""Options that a server needs; ``VLLM_SERVER_DEV_MODE=1`` opens what the weights are sent to."""


def allowed_on_cpu() -> bool:
    """Return whether a test wants vLLM on a CPU."""
    return os.environ.get(CPU_VARIABLE) == "1"


@contextmanager
def engine_options(dtype: str, device: str, *, reports_support: bool = False) -> Iterator[None]:
    """Inside the block TRL makes a colocated engine with the recipe's precision.

    Args:
        dtype: ``model.dtype`` of the recipe.
        device: its ``hardware.device``.
        reports_support: whether the engine reports which tokens could be drawn.

    Raises:
        RunError: the installed vLLM cannot report them.

    ``GRPOConfig`` has no fields for them: the engine would take the precision of the model's files,
    whatever the model is trained in. To be removed when it has them.
    """
    from trl.generation import vllm_generation

    if not hasattr(vllm_generation, "LLM"):  # no vLLM is installed; TRL says so if it is needed
        yield
        return
    original = vllm_generation.LLM
    options: dict[str, Any] = {"dtype": dtype}
    if device == "cpu":
        options["enforce_eager"] = True
    if reports_support:
        _require_masks(original)
        options["return_sampling_mask"] = True
    vllm_generation.LLM = functools.partial(original, **options)
    try:
        yield
    finally:
        vllm_generation.LLM = original


def _require_masks(engine: Any) -> None:
    if "return_sampling_mask" not in inspect.signature(engine).parameters:
        raise RunError(
            "This vLLM does not report which tokens could be drawn (return_sampling_mask); install "
            'vLLM 0.29, or set sampling.support = "all".'
        )


def sampling_params(trainer: Any, max_tokens: int) -> Any:
    """Return what TRL's own call samples by, with a turn's cap.

    An engine that reports which tokens could be drawn refuses temperature 0: the most likely token
    is then the only one that is left.

    Args:
        trainer: has a colocated engine.
        max_tokens: of the turn.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    engine = trainer.vllm_generation
    greedy = trainer.over_drawn and engine.temperature == 0
    options = {
        "repetition_penalty": engine.repetition_penalty,
        "temperature": 1.0 if greedy else engine.temperature,
        "top_p": engine.top_p,
        "top_k": 1 if greedy else engine.top_k,
        "min_p": engine.min_p or 0.0,
        "logprobs": engine.logprobs,
        **engine.generation_kwargs,
        "max_tokens": max_tokens,
        "output_kind": RequestOutputKind.FINAL_ONLY,
    }
    return SamplingParams(**options)


def engine_length(recipe: Recipe, longest: int | None, config: Any) -> int | None:
    """Return the longest sequence of the engine: no more than the model has positions for.

    Args:
        recipe: the experiment.
        longest: what TRL was asked for, its ``vllm_max_model_length``.
        config: the model's configuration, of transformers.

    vLLM refuses more than the positions. A turn at the end of a full context ends with them. The
    recipe's context is never cut: positions that the model scales (``rope_scaling``) are not known
    here, and vLLM decides about them. So it does about a length that the recipe names itself.
    """
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    if longest is None or longest != model_length(recipe) or positions is None:
        return longest
    context = recipe.limits.max_context_tokens
    assert context is not None  # there is a length only where there is a context
    return max(context, min(longest, positions))


def require_server(recipe: Recipe, info: dict[str, Any], longest: int | None) -> None:
    """Check that a vLLM server samples as the recipe's model does.

    Args:
        recipe: the experiment.
        info: what the server says of itself, ``VLLMClient.get_server_info()``.
        longest: tokens of the longest sequence; ``None`` = no limit of the recipe's.

    Raises:
        RunError: it does not; the message has the options to start it with.
    """
    model = info["model_config"]
    wrong = []
    if not str(model["dtype"]).endswith(recipe.model.dtype):
        wrong.append(f"dtype {model['dtype']}")
    if "processed_logprobs" not in str(model["logprobs_mode"]).lower():
        wrong.append(f"logprobs_mode {model['logprobs_mode']}")
    if longest is not None and int(model["max_model_len"]) < longest:
        wrong.append(f"max_model_len {model['max_model_len']}")
    if wrong:
        length = "" if longest is None else f" --max-model-len {longest}"
        raise RunError(
            f"The vLLM server has {', '.join(wrong)}; start it with VLLM_SERVER_DEV_MODE=1 vllm "
            f"serve MODEL --dtype {recipe.model.dtype} {SERVER_OPTIONS}{length}"
        )


@contextmanager
def awake(trainer: Any) -> Iterator[None]:
    """Keep a colocated engine with sleep mode awake for a batch.

    TRL has it sleep after every call, which discards its weights, and sends it all of them before
    the next one: at every turn.
    """
    engine = trainer.vllm_generation if trainer.use_vllm else None
    if engine is None or engine.mode != "colocate" or not engine.enable_sleep_mode:
        yield
        return
    engine.sync_weights()  # wakes their memory, too
    trainer._last_loaded_step = trainer.state.global_step
    engine.llm.wake_up(tags=["kv_cache"])
    engine.enable_sleep_mode = False
    try:
        yield
    finally:
        engine.enable_sleep_mode = True
        engine.llm.sleep(level=2)
        engine._llm_weights_sleeping = True
