"""vLLM in this process as the policy of an evaluation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gem_adapters.evaluation_machines import load_machines
from gem_adapters.vllm_steps import StepPolicy
from gem_core.episodes.rollout import Request
from gem_core.errors import MissingDependencyError
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import MachineFactory

MEMORY_SHARE = 0.9
"""Share of the free memory of a GPU that the engine may take."""
_ONE_PROCESS = "VLLM_ENABLE_V1_MULTIPROCESSING"


class VllmPolicy(StepPolicy):
    """The policy of an evaluation; it is a `gem_core.evaluation.runner.ItemPolicy`, too."""

    def finish(self, item: int) -> None:
        """Do nothing: what an item uses is in its episode."""

    async def close(self) -> None:
        """Do nothing: the engine lives as long as the process."""


@contextmanager
def stepping(
    recipe: Recipe, model_dir: str | Path, number: int = 0
) -> Iterator[tuple[MachineFactory, VllmPolicy]]:
    """Load a saved model into vLLM; yield what makes machines, and the policy.

    Its memory is returned when the process ends, not before.

    Args:
        recipe: environments, context, limits, ``sampling`` and ``eval``.
        model_dir: Hugging Face directory or id, including a tokenizer.
        number: of this process among those of the evaluation; nothing here depends on it.

    Raises:
        MissingDependencyError: vLLM is not installed.
        TrustError: the model brings code, and the user gave no ``--trust``.
    """
    # The engine is stepped here, so it must live here; and it ends with this process.
    os.environ[_ONE_PROCESS] = "0"
    try:
        from vllm import LLM
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "This evaluation needs vLLM: install it in the environment of your trainer "
            "(docs/install.md), or set eval.engine=hf."
        ) from error
    factory, revision = load_machines(recipe, model_dir)
    llm = LLM(**engine_options(recipe, model_dir, revision))
    fields = sampling_fields(recipe, factory.stop_ids)
    yield (
        factory,
        VllmPolicy(
            llm.llm_engine,
            lambda request: _sampling_params(request, fields),
            factory.stop_ids,
            reports_logprobs=False,  # an evaluation reads none
        ),
    )


def engine_options(recipe: Recipe, model_dir: str | Path, revision: str | None) -> dict[str, Any]:
    """Return the arguments of ``vllm.LLM``.

    Args:
        recipe: ``model.dtype``, ``limits.max_context_tokens`` and ``hardware.device``.
        model_dir: Hugging Face directory or id.
        revision: of a Hugging Face id.
    """
    options: dict[str, Any] = {
        "model": str(model_dir),
        "revision": revision,
        "tokenizer_revision": revision,
        "dtype": recipe.model.dtype,
        "max_model_len": recipe.limits.max_context_tokens,
        "generation_config": "vllm",  # only what the recipe says decides how it samples
    }
    if recipe.hardware.device == "cpu":
        # Of a prompt in several parts vLLM takes a draw back: a seeded generator of a CPU cannot.
        return {**options, "enforce_eager": True, "enable_chunked_prefill": False}
    return {**options, "gpu_memory_utilization": _free_share()}


def _free_share() -> float:
    """Return the share of the GPU's memory that the engine may take beside what others hold."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return float(MEMORY_SHARE * free / total)


def sampling_fields(recipe: Recipe, stop_ids: list[int]) -> dict[str, Any]:
    """Return the fields of ``vllm.SamplingParams`` that all requests share.

    Args:
        recipe: ``eval.temperature``, ``eval.top_p`` and ``sampling``.
        stop_ids: token ids that end a turn; no other token does.
    """
    return {
        "temperature": recipe.eval.temperature,
        "top_p": recipe.eval_top_p,
        "top_k": recipe.sampling.top_k,
        "stop_token_ids": stop_ids,
        "ignore_eos": True,
        "detokenize": False,
    }


def _sampling_params(request: Request, fields: dict[str, Any]) -> Any:
    """Return how a request is sampled: with its own cap and its own seed."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        **fields,
        max_tokens=request.max_tokens,
        seed=request.seed,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
