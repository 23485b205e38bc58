"""Plays the controls of a recipe on the tasks of its evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from gem_core.errors import GemError
from gem_core.evaluation.contenders import Contender, LocalModel
from gem_core.evaluation.controls.blind import fit_blind
from gem_core.evaluation.controls.file import (
    CONTROLS,
    FORMAT,
    STARTS,
    Controls,
    FitRecord,
    write_controls,
)
from gem_core.evaluation.controls.players import BlindPlayer, RandomLegalPlayer
from gem_core.evaluation.evaluation import Progress, provenance, run_evaluation
from gem_core.evaluation.folder import EvalDir
from gem_core.evaluation.outcomes import as_text, task_means
from gem_core.evaluation.plan import EvaluationSubject, count_tasks, read_subject
from gem_core.runs.directory.run_dir import IfExists, RunDir
from gem_core.runs.recipe.load import load_recipe, override
from gem_core.runs.recipe.recipe import Recipe


class Trained(NamedTuple):
    """What is trained, and what its evaluation plays.

    Attributes:
        recipe: of the training; the blind players are fitted to its tasks.
        subject: the evaluation.
        counts: number of tasks of each environment of the evaluation.
    """

    recipe: Recipe
    subject: EvaluationSubject
    counts: list[int]


def read_trained(
    source: str,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    episodes: int | None = None,
) -> Trained:
    """Read a run or a recipe; see `read_subject` and `count_tasks`.

    Raises:
        GemError: there is no such thing.
    """
    subject = read_subject([source], profile, overrides)
    if not subject.counted:
        raise GemError(
            f"{source} is an environment: controls are fitted to the training tasks of a run or a "
            "recipe, so name one of these."
        )
    run = RunDir(source)
    recipe = (
        override(run.recipe, overrides) if run.exists else load_recipe(source, profile, overrides)
    )
    return Trained(recipe, subject, count_tasks(subject, episodes, None))


def play_controls(
    trained: Trained,
    start: str | None,
    out: Path,
    *,
    samples: int = 1,
    if_exists: IfExists = "error",
    progress: Progress,
) -> Controls:
    """Play every control, each into a folder of its own below ``out``, and write ``controls.json``.

    The random player and the sampled model play ``samples`` samples of each task, the others one:
    they play every sample of a task alike. Without ``start``, the directory or id of the model
    before training, only the players without a model are played.

    Raises:
        GemError: a control cannot be played, or an item of it has no result.
    """
    fits = fit_blind(trained.recipe)
    for name, contender in _contenders(fits, start, trained.subject.trainer).items():
        run_evaluation(
            _greedy(trained.subject) if name == "start_greedy" else trained.subject,
            trained.counts,
            contender,
            out / name,
            samples=samples if name in ("random", "start_sampled") else 1,
            if_exists=if_exists,
            retry_errors=if_exists == "resume",
            progress=progress,
        )
    controls = _collect(trained, fits, start, out)
    write_controls(out, controls)
    return controls


def _contenders(
    fits: Mapping[str, FitRecord], start: str | None, trainer: str | None
) -> dict[str, Contender]:
    constants = {env: [fit.constant] for env, fit in fits.items()}
    contenders: dict[str, Contender] = {
        "random": RandomLegalPlayer(),
        "constant": BlindPlayer("constant", constants),
        "sequence": BlindPlayer("sequence", {env: fit.sequence for env, fit in fits.items()}),
    }
    if start is not None:
        contenders |= {name: LocalModel(start, trainer=trainer) for name in STARTS}
    return contenders


def _greedy(subject: EvaluationSubject) -> EvaluationSubject:
    recipe = subject.recipe
    greedy = replace(recipe.eval, temperature=0.0, top_p=None)
    return subject._replace(recipe=replace(recipe, eval=greedy))


def _collect(
    trained: Trained, fits: Mapping[str, FitRecord], start: str | None, out: Path
) -> Controls:
    played = [name for name in CONTROLS if start is not None or name not in STARTS]
    outcomes = {name: _outcomes(EvalDir(out / name)) for name in played}
    origin = provenance(EvalDir(out / played[-1]).run)
    return Controls(
        format=FORMAT,
        kind="controls",
        name=trained.recipe.name,
        seed=trained.recipe.seed,
        tasks=list(trained.counts),
        outcomes=outcomes,
        success={name: float(task_means(texts).mean()) for name, texts in outcomes.items()},
        fit=dict(fits),
        start=None if start is None else Path(start).name,
        **origin,
    )


def _outcomes(folder: EvalDir) -> list[str]:
    """Return the outcomes of a control, by sample.

    Raises:
        GemError: an item has no result, so that it cannot be paired.
    """
    rows = folder.rows()
    errors = [row.error.message for row in rows if row.error is not None]
    if errors:
        raise GemError(
            f"{len(errors)} of {len(rows)} items of {folder.path} have no result ({errors[0]}): "
            "repair that, and play them again with --resume."
        )
    samples = max(row.sample for row in rows) + 1
    return [as_text(row.success for row in rows if row.sample == k) for k in range(samples)]
