"""What is evaluated: the recipe of an evaluation, and how many tasks each environment has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gem_core.env.registration import list_envs, spec
from gem_core.errors import GemError, RecipeError, UnknownNameError, unknown
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.environments.data import make_for_run
from gem_core.runs.recipe.files import is_recipe_file, shipped
from gem_core.runs.recipe.load import load_recipe, override, recipe_from_dict
from gem_core.runs.recipe.recipe import EnvConfig, Recipe
from gem_core.runs.splits import env_key, split_envs

TASKS = 100
"""Tasks of an environment that draws them from a seed, where no number is given."""


class EvaluationSubject(NamedTuple):
    """What is to be evaluated.

    Attributes:
        recipe: environments, context, limits and sampling; it is evaluated only, so ``env`` has the
            environments of the evaluation, and ``eval.env`` is empty.
        run: the run that it comes from.
        counted: whether ``eval.episodes`` says how many tasks there are (a recipe or a run).
    """

    recipe: Recipe
    run: RunDir | None
    counted: bool

    @property
    def trainer(self) -> str | None:
        """The trainer of the run that it comes from, if there is one."""
        return None if self.run is None else self.run.info["trainer"]


def read_subject(
    sources: Sequence[str], profile: str | None = None, overrides: Sequence[str] = ()
) -> EvaluationSubject:
    """Read a run, a recipe, or ids and patterns of environments.

    Args:
        sources: one run directory, baseline or file of a recipe; or ids and patterns of
            environments.
        profile: merged over a baseline.
        overrides: ``dotted.key=value``; with ids, ``env.0`` is the first environment.

    Raises:
        GemError: there is no such thing, or they cannot be evaluated together.
    """
    first = sources[0]
    run = RunDir(first)
    if run.exists:
        _alone(sources, "a run")
        recipe = override(run.recipe, overrides)
        return EvaluationSubject(_only_evaluated(recipe), run, counted=True)
    if is_recipe_file(first) or first in shipped("baselines"):
        _alone(sources, "a recipe")
        recipe = load_recipe(first, profile, overrides)
        return EvaluationSubject(_only_evaluated(recipe), None, counted=True)
    if profile is not None:
        raise RecipeError("--profile is merged over a baseline; here are ids of environments.")
    tables = [{"id": env_id, "kwargs": _every_item(env_id)} for env_id in _ids(sources)]
    recipe = recipe_from_dict({"name": _name(sources), "env": tables})
    return EvaluationSubject(_only_evaluated(override(recipe, overrides)), None, counted=False)


def count_tasks(subject: EvaluationSubject, episodes: int | None, tasks: int | None) -> list[int]:
    """Return the number of tasks of each environment.

    Args:
        subject: what is evaluated.
        episodes: tasks of all environments together.
        tasks: tasks of each environment. Without either: ``eval.episodes`` of a recipe; every item
            of an environment over data; `TASKS` of any other.

    Raises:
        GemError: both numbers are given, or one is not positive.
    """
    from gem_core.evaluation.items import divide_tasks

    configs = subject.recipe.env
    if episodes is not None and tasks is not None:
        raise GemError("--episodes is for all environments together, --tasks for each: give one.")
    for number in (episodes, tasks):
        if number is not None and number < 1:
            raise GemError("An evaluation needs at least one task.")
    if episodes is None and tasks is None and subject.counted:
        episodes = subject.recipe.eval.episodes
        if episodes == 0:
            raise GemError("eval.episodes is 0 in this recipe: give --episodes or --tasks.")
    if episodes is not None:
        return divide_tasks(episodes, len(configs))
    return [_tasks_of(subject.recipe, k, tasks) for k in range(len(configs))]


def _alone(sources: Sequence[str], what: str) -> None:
    if len(sources) > 1:
        raise GemError(f"{sources[0]} is {what}, which is evaluated alone; drop {sources[1]!r}.")


def _ids(patterns: Sequence[str]) -> list[str]:
    """Return the ids that the patterns name, each once."""
    ids: dict[str, None] = {}
    for pattern in patterns:
        if any(sign in pattern for sign in "*?["):
            matching = list_envs(pattern)
            if not matching:
                raise GemError(f"No environment matches {pattern!r}; `gem-core list` has all ids.")
            ids.update(dict.fromkeys(matching))
            continue
        try:
            ids[spec(pattern).id] = None
        except UnknownNameError:
            names = [*list_envs(), *shipped("baselines")]
            hint = "It is no run directory and no recipe either; `gem-core list` lists names."
            raise unknown("environment", pattern, names, hint) from None
    return list(ids)


def _name(sources: Sequence[str]) -> str:
    return " ".join(sources)[:80].replace("/", "_").replace("\\", "_").lstrip(".") or "evaluation"


def _every_item(env_id: str) -> dict[str, Any]:
    """Return the parameters with which an environment over data plays each item once."""
    return {"pick": "seed", "part": "all"} if _has_table(env_id) else {}


def _has_table(env_id: str) -> bool:
    """Return whether an environment plays items of data, not initial states that a seed draws."""
    loaded = spec(env_id).load()
    divides = callable(getattr(loaded, "items_played", None))
    return divides and not getattr(loaded, "draws_tasks", False)


def _only_evaluated(recipe: Recipe) -> Recipe:
    """Return a recipe that has the environments of the evaluation as its only ones.

    The part of data that the evaluation plays becomes a parameter, since nothing else is left from
    which it could be known.
    """
    from msgspec.structs import replace

    configs: list[EnvConfig] = []
    for config in split_envs(recipe, "eval"):
        kwargs = config.kwargs
        if _has_table(config.id) and {**spec(config.id).kwargs, **kwargs}.get("part") is None:
            kwargs = {**kwargs, "part": "all"}
        configs.append(replace(config, kwargs=kwargs, weight=1.0))
    return replace(recipe, env=configs, eval=replace(recipe.eval, env=[]))


def _tasks_of(recipe: Recipe, position: int, tasks: int | None) -> int:
    config = recipe.env[position]
    if not _has_table(config.id):
        return tasks or TASKS
    env = make_for_run(config, env_key(recipe, "eval", position))
    try:
        items = len(env.unwrapped.item_indices())  # type: ignore[attr-defined]
    finally:
        env.close()
    return items if tasks is None else min(items, tasks)


def model_digest(folder: Path) -> str | None:
    """Return what tells one version of a local model from another; ``None`` for no directory.

    It is made of names, sizes and times of its files: the weights are not read.
    """
    from hashlib import blake2b

    if not folder.is_dir():
        return None
    digest = blake2b(digest_size=8)
    for path in sorted(folder.iterdir()):
        if path.is_file():
            state = path.stat()
            digest.update(f"{path.name}/{state.st_size}/{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()
