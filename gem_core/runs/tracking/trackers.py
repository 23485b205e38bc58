"""The trackers behind one interface; each package is imported when its tracker is opened."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gem_core.errors import MissingDependencyError
from gem_core.runs.directory.files import refuse_link


class RunFacts(NamedTuple):
    """What a tracker is told of a run.

    Attributes:
        name: name of the run directory.
        project: name under which the runs of one study are grouped.
        folder: the run directory, for what a tracker stores locally.
        params: the recipe, dotted key -> value, and the trainer.
        id: what the tracker called the run when it was opened before; "" the first time.
    """

    name: str
    project: str
    folder: Path
    params: Mapping[str, Any]
    id: str = ""


class Tracker(Protocol):
    """Where a run's metrics are sent."""

    id: str
    """What this tracker calls the run, to continue it later; "" if it needs no such name."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of one step."""

    def close(self) -> None:
        """Send what is left, and end."""


class TensorBoard:
    """Writes event files to ``<run>/tensorboard``."""

    def __init__(self, facts: RunFacts) -> None:
        summary = _package("tensorboard")
        self.id = ""
        self._writer = summary.Writer(str(refuse_link(facts.folder / "tensorboard")))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one scalar for each metric."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step=step)

    def close(self) -> None:
        """Write what is buffered."""
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases; its own variables (``WANDB_MODE=offline``) apply."""

    def __init__(self, facts: RunFacts) -> None:
        wandb = _package("wandb")
        self._run = wandb.init(
            project=facts.project,
            name=facts.name,
            id=facts.id or None,
            resume="allow",
            dir=str(facts.folder),
            config=dict(facts.params),
            reinit="create_new",  # a trainer may have a run of its own in this process
            settings=wandb.Settings(silent=True),
        )
        self._run.define_metric("*", step_metric="step")
        self.id = str(self._run.id)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send all metrics of the step at once."""
        self._run.log({"step": step, **metrics})

    def close(self) -> None:
        """Wait until everything is sent."""
        self._run.finish()


class MLflow:
    """A run of MLflow, on the server of ``MLFLOW_TRACKING_URI``."""

    def __init__(self, facts: RunFacts) -> None:
        mlflow = _package("mlflow")
        self._entities = import_module("mlflow.entities")
        self._client = mlflow.MlflowClient()
        self.id = facts.id or self._create(facts)

    def _create(self, facts: RunFacts) -> str:
        known = self._client.get_experiment_by_name(facts.project)
        experiment = known.experiment_id if known else self._client.create_experiment(facts.project)
        run = self._client.create_run(experiment, run_name=facts.name)
        for key, value in facts.params.items():
            self._client.log_param(run.info.run_id, _plain(key), str(value)[:500])
        return str(run.info.run_id)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send all metrics of the step in one request."""
        metric = self._entities.Metric
        now = int(time.time() * 1000)
        rows = [metric(_plain(name), value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self.id, metrics=rows)

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self.id)


class Trackio:
    """A run of Trackio, in its local database or on the Space that its own variables name."""

    def __init__(self, facts: RunFacts) -> None:
        trackio = _package("trackio")
        params = {key: str(value) for key, value in facts.params.items()}
        self._run = trackio.init(
            project=facts.project, name=facts.name, config=params, resume="allow", embed=False
        )
        self.id = ""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Store all metrics of the step."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Wait until everything is stored."""
        self._run.finish()


TRACKERS: dict[str, Callable[[RunFacts], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
    "trackio": Trackio,
}
"""Name in a recipe -> the tracker."""
_PACKAGES = {
    "tensorboard": ("tensorboard.summary", "tensorboard"),
    "wandb": ("wandb", "wandb"),
    "mlflow": ("mlflow", "mlflow-skinny"),
    "trackio": ("trackio", "trackio"),
}
"""Name in a recipe -> the module that is imported, and what pip installs."""


def open_tracker(name: str, facts: RunFacts) -> Tracker:
    """Open a tracker of `TRACKERS`.

    Raises:
        MissingDependencyError: its package is not installed.
    """
    return TRACKERS[name](facts)


def require_trackers(names: Iterable[str]) -> None:
    """Import the packages of the trackers, so that a missing one is known before a run begins.

    Raises:
        MissingDependencyError: one is not installed.
    """
    for name in names:
        _package(name)


def _package(tracker: str) -> Any:
    """Import a tracker's package.

    Raises:
        MissingDependencyError: it is not installed.
    """
    module, package = _PACKAGES[tracker]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"track.to has {tracker!r}, whose package is not installed ({error}): "
            f"pip install {package}, or leave {tracker!r} out. metrics.jsonl is always written."
        ) from error


def _plain(name: str) -> str:
    """Return ``name`` with the characters that MLflow accepts."""
    return "".join(c if c.isalnum() or c in "_-. /" else "_" for c in name)
