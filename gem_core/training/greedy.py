"""The evaluations of a run with the most likely tokens, beside the sampled ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gem_core.evaluation.outcomes import TaskOutcome, add_outcome, read_outcomes
from gem_core.evaluation.stats import wilson
from gem_core.runs.directory.files import refuse_link
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.resolved import ResolvedRun
from gem_core.training.eval_engine import ENGINE_LOG


def evaluate_greedily(
    run: RunDir, resolved: ResolvedRun, model: str | Path, when: str, log: Callable[[str], None]
) -> None:
    """Play the evaluation greedily and keep its outcomes, if ``eval.greedy`` asks for that.

    Nothing is done where the run has that evaluation already, or where there is none.

    Raises:
        GemError: the evaluation failed.
    """
    from msgspec.structs import replace

    recipe = resolved.recipe
    if not recipe.eval.greedy or recipe.eval.episodes == 0 or (when, True) in read_outcomes(run):
        return
    from gem_core.evaluation.measure import measure

    greedy = replace(recipe, eval=replace(recipe.eval, temperature=0.0, top_p=None, greedy=False))
    log_file, trainer = refuse_link(run.path / ENGINE_LOG), resolved.trainer.name
    _, engine, outcomes = measure(greedy, model, log_file, resolved.envs, trainer)
    add_outcome(run, TaskOutcome(when, True, engine, outcomes))
    rate, low, high = _figures(outcomes).values()
    log(f"{when.capitalize()}, greedy: success {rate:.3f} [{low:.3f}, {high:.3f}]")


def greedy_figures(run: RunDir) -> dict[str, dict[str, float]] | None:
    """Return the success of greedy evaluations with 95 % Wilson intervals, by ``when``, if any."""
    outcomes = read_outcomes(run).items()
    found = {when: _figures(line.success) for (when, greedy), line in outcomes if greedy}
    return found or None


def _figures(outcomes: str) -> dict[str, float]:
    wins = outcomes.count("1")
    low, high = wilson(wins, len(outcomes))
    return {"success/mean": wins / len(outcomes), "success/low": low, "success/high": high}
