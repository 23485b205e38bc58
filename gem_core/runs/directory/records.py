"""What the files of a run must have for what reads them; they may have more.

Only what is read by name is listed. A field that older versions did not write has a default.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Number = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""An integer that JSON has in every language."""
Figures = dict[str, float | None]
"""Figures by name; see `gem_conform.metric_names`."""


class Measured(msgspec.Struct, rename=lambda name: f"success/{name}"):
    """The figures of an evaluation that every table shows."""

    mean: float
    low: float
    high: float


class InfoFile(msgspec.Struct):
    """``run.json``."""

    trainer: str
    versions: dict[str, str] = {}
    python: str = ""
    platform: str = ""
    processor: str = ""
    cores: int | None = None
    gpus: list[str] = []
    commit: str | None = None
    command: list[str] = []
    started: float | None = None
    environments: list[dict[str, Any]] | None = None
    native: list[str] | dict[str, Any] | None = None


class _Env(msgspec.Struct):
    id: str


class RecipeFile(msgspec.Struct):
    """``recipe.json``: what every recipe has, of which nothing need be installed here."""

    name: str
    env: list[_Env]
    seed: int = 0
    algorithm: dict[str, Any] = {}
    train: dict[str, Any] = {}


class StepLine(msgspec.Struct):
    """A line of ``metrics.jsonl``."""

    step: Number
    time: float | None = None


class EvalLine(msgspec.Struct):
    """A line of ``evals.jsonl``."""

    step: Number
    when: str
    engine: str | None = None
    mean: float | None = msgspec.field(default=None, name="success/mean")
    low: float | None = msgspec.field(default=None, name="success/low")
    high: float | None = msgspec.field(default=None, name="success/high")


class SessionLine(msgspec.Struct):
    """A line of ``sessions.jsonl``."""

    event: str
    time: float
    command: list[str] | None = None
    commit: str | None = None
    versions: dict[str, str] | None = None
    outcome: str = ""
    phase: str = ""
    seconds: float = 0.0


class Seconds(msgspec.Struct):
    """Wall seconds by phase."""

    train: float


class _Session(msgspec.Struct):
    commit: str | None = None
    estimated: bool = False


class ResultFile(msgspec.Struct):
    """``result.json`` of a training: the types of its fields, not which of them it has."""

    name: str = ""
    trainer: str = ""
    estimator: str = ""
    seed: int = 0
    before: Figures | None = None
    after: Figures | None = None
    steps: Number = 0
    episodes: Number = 0
    model: str = ""
    seconds: dict[str, float] = {}
    versions: dict[str, str] = {}
    hardware: dict[str, Any] = {}
    python: str = ""
    commit: str | None = None
    sessions: list[_Session] = []
    environments: list[dict[str, Any]] | dict[str, str] | None = None


class _Environment(msgspec.Struct):
    id: str
    metrics: Figures


class EvaluationFile(msgspec.Struct):
    """``result.json`` of an evaluation; of one that only scored again, without ``seconds``."""

    kind: str
    name: str
    model: str
    samples: int
    items: Number
    metrics: Figures
    environments: list[_Environment]
    errors: dict[str, int]
    usage: dict[str, float | None]
    seconds: float | None = None
    versions: dict[str, str] = {}
    python: str = ""
    commit: str | None = None


class CellFile(ResultFile, kw_only=True):
    """``result.json`` of a finished cell of a comparison: what its tables show."""

    before: Measured | None  # type: ignore[assignment]
    after: Measured | None  # type: ignore[assignment]
    steps: Number
    episodes: Number
    seconds: Seconds  # type: ignore[assignment]
    versions: dict[str, str]
    hardware: dict[str, Any]
    python: str


class FailedFile(msgspec.Struct):
    """``failed.json`` of a cell of a comparison."""

    reason: str
