"""What a run is, worked out once: `resolve_run` makes it before anything is trained.

`ResolvedRun` is handed down by the launcher to the trainer's adapter. Other processes of the run
(ranks, actors) have only the run directory: `read_resolved` gives them the same, with the
environments that the launcher recorded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gem_core.runs import trainers
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.environments.description import describe_environments
from gem_core.runs.environments.rows import Row
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.redaction import is_secret_name, redact, redact_command
from gem_core.runs.splits import RunEnvs, run_envs


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRun:
    """A recipe, and what follows from it on this machine.

    Attributes:
        recipe: the experiment.
        trainer: the declaration of its trainer.
        native: what the trainer's ``translate`` returned: arguments, or a table.
        envs: the environments of training and evaluation with the data divided between them.
        environments: what each of them was made from, see
            `gem_core.runs.environments.description.describe_environments`.
        model: what the trainer loads by ``from_pretrained`` (`gem_core.training.tiny.model_path`);
            ``None`` as long as nobody asked: the tiny model is built at the first time.
    """

    recipe: Recipe
    trainer: trainers.Trainer
    native: Any
    envs: RunEnvs
    environments: tuple[Row, ...]
    model: str | None = None

    def with_model(self, path: str) -> ResolvedRun:
        """Return the run with the place of its model."""
        return replace(self, model=path)

    def record(self) -> dict[str, Any]:
        """Return what ``run.json`` keeps of it, without secrets."""
        return {"environments": list(self.environments), "native": shown(self.native)}


def resolve_run(
    recipe: Recipe, name: str, resumed: RunDir | None = None, *, native: Any = None
) -> ResolvedRun:
    """Work out what a run is; every environment is made once for it.

    With ``resumed``, a run that continues, its data must be those that it began with. ``native`` is
    what the trainer's ``translate`` returned, where it was called before.

    Raises:
        DataError: data are not available, or changed since the run began.
        RecipeError: the trainer cannot honour a key; an environment does not accept its parameters.
        UnknownNameError: there is no such trainer.
    """
    trainer = trainers.get_trainer(name)
    native = trainers.resolve(trainer.translate)(recipe) if native is None else native
    envs = run_envs(recipe)
    rows = describe_environments(recipe, resumed, envs)
    return ResolvedRun(
        recipe=recipe, trainer=trainer, native=native, envs=envs, environments=tuple(rows)
    )


def shown(native: Any) -> Any:
    """Return a native configuration as JSON without secrets; what JSON has no type for is a text.

    >>> shown({"lr": 0.1, "hub_token": "abc"}), shown(["+logger.api_key=abc", "lr=0.1"])
    ({'lr': 0.1, 'hub_token': '***'}, ['+logger.api_key=***', 'lr=0.1'])
    """
    if isinstance(native, Mapping):
        return redact(json.loads(json.dumps(native, default=str)), is_secret_name)
    signs = [word[: len(word) - len(word.lstrip("+~"))] for word in native]
    words = redact_command([word.lstrip("+~") for word in native])
    return [sign + word for sign, word in zip(signs, words, strict=True)]


def read_resolved(run: RunDir) -> ResolvedRun:
    """Return what a run is, in a process that has only its directory; no environment is made.

    ``native`` is translated again: ``run.json`` keeps it without secrets.

    ``environments`` is empty where none were recorded.

    Raises:
        RecipeError: as `resolve_run`.
        RunError: it is not the directory of a run.
    """
    recipe, info = run.recipe, run.info
    trainer = trainers.get_trainer(info["trainer"])
    return ResolvedRun(
        recipe=recipe,
        trainer=trainer,
        native=trainers.resolve(trainer.translate)(recipe),
        envs=run_envs(recipe),
        environments=tuple(info.get("environments") or ()),
    )
