"""One evaluation of a run by the engine of its recipe: the figures, and by what they were made."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from gem_core.evaluation.engines import engine_of
from gem_core.evaluation.outcomes import as_text
from gem_core.evaluation.stats import summarise
from gem_core.policies.gpu import release_memory
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.splits import RunEnvs


class Measurement(NamedTuple):
    """The figures of an evaluation.

    Attributes:
        metrics: see `gem_core.evaluation.local.evaluate`; of processes of their own also
            ``time/load`` (seconds until all engines could be asked) and ``time/engine`` (seconds
            inside of an engine's steps, at most; 0 where it counts none).
        engine: name and version of what played, ``"vllm 0.29.0"``.
        outcomes: success of every task, see `gem_core.evaluation.outcomes`.
    """

    metrics: dict[str, float]
    engine: str
    outcomes: str


def measure(
    recipe: Recipe,
    model_dir: str | Path,
    log: Path,
    envs: RunEnvs | None = None,
    trainer: str | None = None,
) -> Measurement:
    """Play the evaluation episodes of a recipe with a saved model, by its ``eval.engine``.

    ``log`` gets what an engine in a process of its own prints; ``trainer`` is whose engine
    ``eval.engine = "trainer"`` means.

    Raises:
        GemError: more than half of the episodes failed, or the engine's process did.
    """
    if recipe.eval.engine != "hf":
        from gem_core.evaluation.child import episodes_by

        began, name = perf_counter(), engine_of(recipe, trainer)
        answer = episodes_by(name, recipe, model_dir, log)
        episodes = answer.episodes
        engine = f"{'transformers' if name == 'hf' else name} {answer.version}"
        times = {"time/load": answer.load_s, "time/engine": answer.engine_s}
    else:
        from gem_core.evaluation.local import evaluation_episodes

        began = perf_counter()  # the first evaluation of a process imports torch
        episodes = evaluation_episodes(recipe, model_dir, envs=envs)
        engine, times = f"transformers {version('transformers')}", {}
        release_memory()  # a trainer that runs next in this process needs it
    metrics = {**summarise(episodes), **times, "seconds": perf_counter() - began}
    return Measurement(metrics, engine, as_text(episode.success for episode in episodes))
