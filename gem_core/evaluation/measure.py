"""One evaluation of a run by the engine of its recipe: the figures, and by what they were made."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from gem_core.evaluation.outcomes import as_text
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.splits import RunEnvs


class Measurement(NamedTuple):
    """The figures of an evaluation.

    Attributes:
        metrics: see `gem_core.evaluation.local.evaluate`; with vLLM also ``time/load`` (seconds
            until the engine could be asked) and ``time/engine`` (seconds inside of its steps).
        engine: name and version of what played, ``"vllm 0.29.0"``.
        outcomes: success of every task, see `gem_core.evaluation.outcomes`.
    """

    metrics: dict[str, float]
    engine: str
    outcomes: str


def measure(
    recipe: Recipe, model_dir: str | Path, log: Path, envs: RunEnvs | None = None
) -> Measurement:
    """Play the evaluation episodes of a recipe with a saved model, by its ``eval.engine``.

    Args:
        recipe: the experiment.
        model_dir: Hugging Face directory or id, including a tokenizer.
        log: gets what an engine in a process of its own prints.
        envs: the environments, where they are known (`gem_core.runs.splits.run_envs`).

    Raises:
        GemError: more than half of the episodes failed, or the engine's process did.
    """
    if recipe.eval.engine == "vllm":
        return _by_vllm(recipe, model_dir, log)
    from gem_core.evaluation.local import play_and_summarise

    episodes, metrics = play_and_summarise(recipe, model_dir, envs=envs)
    outcomes = as_text(episode.success for episode in episodes)
    return Measurement(metrics, f"transformers {version('transformers')}", outcomes)


def _by_vllm(recipe: Recipe, model_dir: str | Path, log: Path) -> Measurement:
    from gem_core.evaluation.child import episodes_by_vllm
    from gem_core.evaluation.stats import summarise

    began = perf_counter()
    answer = episodes_by_vllm(recipe, model_dir, log)
    metrics = {
        **summarise(answer.episodes),
        "time/load": answer.load_s,
        "time/engine": answer.engine_s,
        "seconds": perf_counter() - began,
    }
    outcomes = as_text(episode.success for episode in answer.episodes)
    return Measurement(metrics, f"vllm {answer.version}", outcomes)
