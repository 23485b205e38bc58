"""SGLang in this process as the policy of an evaluation, by its offline engine.

Written from the source of SGLang 0.5.2, the release that RL2 needs; it has not been run, as SGLang
needs a GPU. That release takes no seed for a request: the draws of an evaluation depend on the
engine's seed and on which requests are computed together, so that they are not repeatable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gem_adapters.evaluation_machines import load_machines
from gem_adapters.request_seeds import sglang_seed
from gem_core.episodes.data import Completion
from gem_core.episodes.rollout import Request
from gem_core.errors import MissingDependencyError
from gem_core.policies.completions import to_completion
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import MachineFactory

FIRST_PORT, PORTS = 30_000, 1_000
"""Ports near which an engine looks for free ones, and how many of them each process has."""
SEEDS_PER_PROCESS = 1_000
"""Seeds of a run are below it, so that no two processes have the same seed of their engine."""
_END_AT_ONCE = "SGL_FORCE_SHUTDOWN"


class SglangPolicy:
    """The policy of an evaluation; it is a `gem_core.evaluation.runner.ItemPolicy`, too.

    Args:
        engine: ``sglang.Engine``; ``async_generate`` is used.
        sampling: sampling parameters that do not change.
        stop_ids: token ids that end a turn.
    """

    def __init__(self, engine: Any, sampling: dict[str, Any], stop_ids: list[int]) -> None:
        self.engine = engine
        self.stop_ids = stop_ids
        self.sampling = sampling

    async def complete(self, request: Request) -> Completion:
        """See `gem_core.episodes.rollout.Policy`.

        The engine goes on with the request of a call that is cancelled, up to its cap.

        Raises:
            GemError: the answer cannot be used.
        """
        limits = {"max_new_tokens": request.max_tokens, **sglang_seed(request.seed)}
        answer = await self.engine.async_generate(
            input_ids=request.prompt_ids, sampling_params={**self.sampling, **limits}
        )
        return to_completion(
            answer["output_ids"],
            None,
            answer["meta_info"]["finish_reason"]["type"],
            self.stop_ids,
            request.max_tokens,
            reports_logprobs=False,  # an evaluation reads none
        )

    def finish(self, item: int) -> None:
        """Do nothing: what an item uses is in its episode."""

    async def close(self) -> None:
        """Do nothing: the engine ends with the process."""


@contextmanager
def stepping(
    recipe: Recipe, model_dir: str | Path, number: int = 0
) -> Iterator[tuple[MachineFactory, SglangPolicy]]:
    """Load a saved model into SGLang; yield what makes machines, and the policy.

    Its memory is returned when the process ends, not before.

    Args:
        recipe: environments, context, limits, ``sampling`` and ``eval``.
        model_dir: Hugging Face directory or id, including a tokenizer.
        number: of this process among those of the evaluation.

    Raises:
        MissingDependencyError: SGLang is not installed.
        TrustError: the model brings code, and the user gave no ``--trust``.
    """
    # Otherwise the engine answers all requests before it follows the SIGTERM of a run that ended.
    os.environ[_END_AT_ONCE] = "1"
    try:
        from sglang import Engine
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "This evaluation needs SGLang: install it in the environment of your trainer "
            "(docs/install.md), or set eval.engine=hf."
        ) from error
    factory, revision = load_machines(recipe, model_dir)
    engine = Engine(**engine_options(recipe, model_dir, revision, number))
    yield factory, SglangPolicy(engine, sampling_fields(recipe, factory.stop_ids), factory.stop_ids)


def engine_options(
    recipe: Recipe, model_dir: str | Path, revision: str | None, number: int
) -> dict[str, Any]:
    """Return the arguments of ``sglang.Engine``, which are those of its ``ServerArgs``.

    The context is the model's own: the engine refuses a request that fills it to the last token.

    Args:
        recipe: ``model.dtype`` and ``seed``.
        model_dir: Hugging Face directory or id.
        revision: of a Hugging Face id.
        number: of this process among those of the evaluation.
    """
    return {
        "model_path": str(model_dir),
        "revision": revision,
        "dtype": recipe.model.dtype,
        "skip_tokenizer_init": True,  # token ids go in and come out
        "random_seed": SEEDS_PER_PROCESS * number + recipe.seed,
        # It takes the next free port after a random one, which processes that start together
        # could take from each other.
        "port": FIRST_PORT + PORTS * number,
    }


def sampling_fields(recipe: Recipe, stop_ids: list[int]) -> dict[str, Any]:
    """Return the sampling parameters that all requests share.

    ``ignore_eos`` is not among them: with it SGLang ignores ``stop_token_ids``, too.

    Args:
        recipe: ``eval.temperature``, ``eval.top_p`` and ``sampling``.
        stop_ids: token ids that end a turn.
    """
    return {
        "temperature": recipe.eval.temperature,
        "top_p": recipe.eval_top_p,
        "top_k": recipe.sampling.top_k,
        "stop_token_ids": stop_ids,
        "no_stop_trim": True,
    }
