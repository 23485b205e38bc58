"""What a run's environments are made from: the same data in every process, and a record of them.

The launcher makes every environment once and writes what it was made from into ``run.json``. Each
process of the run finds the run directory in `gem_core.runs.directory.run_dir.RUN_VARIABLE`, loads
the data in the recorded commit and refuses to continue with others. Inside a run data are strict:
a built-in sample is played only if the recipe asks for it, with ``kwargs.dataset = "sample"``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from gem_core.env.interface import Env
from gem_core.env.registration import make_from_data
from gem_core.env.spec import EnvSpec
from gem_core.envs._data_source import strict_data
from gem_core.envs._hub import DataUnavailableError
from gem_core.errors import DataError, GemError, RecipeError
from gem_core.runs.directory.run_dir import RUN_VARIABLE, RunDir
from gem_core.runs.environments.servers import described_there, wanted
from gem_core.runs.environments.tools import (
    Tools,
    described_tools,
    task_digest,
    tools_key,
    with_tools,
)
from gem_core.runs.environments.workers import close_run_pools
from gem_core.runs.recipe.recipe import EnvConfig, Recipe, Split
from gem_core.runs.splits import split_envs

Row = dict[str, Any]
_HUB_REVISION = re.compile(r"(.+)@([0-9a-f]{40})")


class RunData:
    """The environments of a run as they were recorded, and what is made here compared with them.

    Args:
        rows: the environments, see `describe_environments`; none where nothing is recorded.
        source: where they are recorded, for messages.
    """

    def __init__(self, rows: Sequence[Row] = (), source: str = "") -> None:
        self.source = source
        self._rows: dict[str, Row] = {}
        self._commits: dict[str, str] = {}
        self._compared: set[str] = set()
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Let what is made from now on agree with a further environment."""
        self._rows.setdefault(_row_key(row), row)
        for dataset, commit in _commit_of(row).items():
            self._commits.setdefault(dataset, commit)

    def make(self, config: EnvConfig) -> Env:
        """Make an environment, without its tools, from the recorded data.

        Raises:
            DataError: its data are not available here, or are not the recorded ones.
        """
        row = self._rows.get(_config_key(config))
        with strict_data(self._commits if row is None else _commit_of(row) or self._commits):
            return make_from_data(config.id, config.kwargs)

    def compare(self, config: EnvConfig, env: Env) -> None:
        """Compare an environment with the recorded one, at the first call for each.

        Raises:
            DataError: they differ, in their data or in their tools.
        """
        key = _config_key(config)
        row = self._rows.get(key)
        if row is not None and key not in self._compared:
            self._compare(row, config, env)
            self._compare_server(row, env)
            self._compared.add(key)

    def compare_served(self, config: EnvConfig, made: EnvSpec) -> None:
        """Compare an environment behind a server with the recorded one.

        Raises:
            DataError: they differ.
        """
        row = self._rows.get(_config_key(config))
        if row is not None:
            self._compare_task(row, made.fingerprint(), made.data_revision)

    def _compare(self, row: Row, config: EnvConfig, env: Env) -> None:
        self._compare_tools(row.get("tools", []), described_tools(env), row["id"])
        made = _spec_of(env)
        self._compare_task(row, task_digest(made, config, env), made.data_revision)

    def _compare_task(self, row: Row, fingerprint: str, here: str | None) -> None:
        if fingerprint == row["fingerprint"]:
            return
        recorded = row["data_revision"]
        if recorded == here:
            problem = "this process has another version of its code: install the same gem-core"
        else:
            problem = (
                f"it was recorded with the data {recorded!r}, and this process has {here!r}: put "
                "the same data in place, or start a new run"
            )
        raise DataError(f"{row['id']}: {self.source} and this process differ: {problem}.")

    def _compare_server(self, row: Row, env: Env) -> None:
        """Compare what a server says of its environment; whether seeds decide is no part of it."""
        then = row.get("provenance", {})
        if not any(name.startswith("server") for name in then):
            return
        now = _provenance(env)
        for name in sorted(then.keys() | now.keys()):
            if then.get(name) != now.get(name):
                raise DataError(
                    f"{row['id']}: {self.source} was recorded with {name} {then.get(name)!r}, and "
                    f"the server now says {now.get(name)!r}: start the server with the same "
                    "gem-core and data, or start a new run."
                )

    def _compare_tools(self, recorded: Tools, here: Tools, env_id: str) -> None:
        for then, now in zip(recorded, here, strict=True):
            if then != now:
                raise DataError(
                    f"{env_id}: {self.source} was recorded with the tool {then}, and this process "
                    f"has {now}: make them equal (GEM_CORE_SANDBOX names the sandbox's level, the "
                    "options of a tool its data), or start a new run."
                )


def make_for_run(config: EnvConfig, key: str) -> Env:
    """Make an environment as every part of a run makes it; outside of a run, data are strict too.

    Args:
        config: id and parameters.
        key: of its table in the recipe (``env.0``), for messages; see `env_key`.

    Raises:
        DataError: its data are not available, or are not those of the run.
        MissingDependencyError: a package that it needs is missing.
        RecipeError: it does not accept its parameters.
    """
    return _make(_data_of(os.environ.get(RUN_VARIABLE)), config, key)


def compare_served(config: EnvConfig, made: EnvSpec) -> None:
    """Compare an environment behind a server with the one that the run recorded.

    Raises:
        DataError: they differ.
    """
    _data_of(os.environ.get(RUN_VARIABLE)).compare_served(config, made)


def task_fingerprint(config: EnvConfig, key: str) -> str:
    """Return the fingerprint of an environment with its data, see `gem_core.EnvSpec`.

    Raises:
        DataError: as `make_for_run`.
    """
    env = make_for_run(config, key)
    try:
        return task_digest(_spec_of(env), config, env)
    finally:
        env.close()


def env_key(recipe: Recipe, split: Split, position: int) -> str:
    """Return the key of an environment's table in the recipe: ``env.0`` or ``eval.env.0``."""
    table = "eval.env" if split == "eval" and recipe.eval.env else "env"
    return f"{table}.{position}"


def describe_environments(recipe: Recipe, resumed: RunDir | None = None) -> list[Row]:
    """Make every environment of a recipe, which checks its parameters and its data.

    With ``workers.backend = "server"`` the servers make them, and say what they are.

    Args:
        recipe: the experiment.
        resumed: a run that continues; its data must be those that it began with.

    Returns:
        One row per environment of the training, in the recipe's order, then those that only the
        evaluation plays. ``used_in``: ``train``, ``eval`` or both; ``id``; ``kwargs`` as in the
        recipe, with the part of the data; ``fingerprint`` and ``data_revision`` of what was made;
        ``revision``: its commit on the Hub; ``items`` in its table of data; ``sample``: whether it
        is a built-in sample. What does not apply is ``None``. With tools also ``tools``: what each
        of them is on this machine, such as the sandbox's level; ``tools_key``: a digest of the
        recipe's ``tools`` and ``tool_use``. With an environment of another package or of a server
        also ``provenance``: whether its seeds decide, what the server says that it is.

    Raises:
        DataError: data are not available, or changed since the run began.
        RecipeError: an environment does not accept its parameters, or shows images; a server cannot
            be used.
    """
    record = _recorded(resumed) if resumed is not None else None
    data = record or RunData()
    rows: list[Row] = []
    splits: list[Split] = ["train"]
    if recipe.eval.episodes or recipe.eval.every:
        splits.append("eval")
    for split in splits:
        for position, config in enumerate(split_envs(recipe, split)):
            same = [row for row in rows if _row_key(row) == _config_key(config)]
            if split == "eval" and same:
                for row in same:
                    row["used_in"] = ["train", "eval"]
                continue
            key = env_key(recipe, split, position)
            if recipe.workers.backend == "server":
                row = _describe_served(data, recipe, config, key, split)
            else:
                row = _describe(data, config, key, split)
            data.add(row)
            rows.append(row)
    return rows


@contextmanager
def in_run(run: RunDir, rows: Sequence[Row] | None = None) -> Iterator[None]:
    """Record the environments of a run; inside the block its processes make them from these data.

    Args:
        run: the run directory.
        rows: its environments, if `describe_environments` was called before.

    Raises:
        DataError: as `describe_environments`.
        RecipeError: as `describe_environments`.
    """
    if rows is None:
        rows = describe_environments(run.recipe, run)
    if run.info.get("environments") != rows:
        run.record_environments(rows)
    with belonging_to(run):
        yield


@contextmanager
def belonging_to(run: RunDir) -> Iterator[None]:
    """Inside the block this process, and those that it starts, belong to a run."""
    before = os.environ.get(RUN_VARIABLE)
    os.environ[RUN_VARIABLE] = str(run.path.resolve())
    _data_of.cache_clear()
    try:
        yield
    finally:
        close_run_pools(os.environ[RUN_VARIABLE])
        if before is None:
            del os.environ[RUN_VARIABLE]
        else:
            os.environ[RUN_VARIABLE] = before


@cache
def _data_of(path: str | None) -> RunData:
    """Return the record of the run of this process, which is read once."""
    return (None if path is None else _recorded(RunDir(path))) or RunData()


def _recorded(run: RunDir) -> RunData | None:
    """Return the record of a run; ``None`` for a run of an older version, which has none."""
    rows = run.info.get("environments")
    return None if rows is None else RunData(rows, str(run.path / "run.json"))


def _make(data: RunData, config: EnvConfig, key: str) -> Env:
    try:
        env = data.make(config)
    except DataUnavailableError as error:
        raise DataError(
            f"{key}: {config.id}: {error} To play the small built-in sample instead, ask for it: "
            f"--set '{key}.kwargs.dataset=sample'."
        ) from error
    except GemError:
        raise
    except (TypeError, ValueError) as error:
        raise RecipeError(f"{key}.kwargs: {config.id}: {error}") from error
    if getattr(env.unwrapped, "shows_images", False):
        env.close()
        raise DataError(
            f"{key}: {config.id}: its items have images, and a run plays text only: choose another "
            "environment, or play the questions without their images: --set "
            f"'{key}.kwargs.images=drop'."
        )
    env = with_tools(env, config, key)
    data.compare(config, env)
    return env


def _describe_served(
    data: RunData, recipe: Recipe, config: EnvConfig, key: str, split: Split
) -> Row:
    """Describe an environment as the servers of the run have it; it is not made here."""
    wanted_there = wanted(config, key, data.compare_served)
    made, facts = described_there(recipe.workers, wanted_there, key, recipe.limits.turn_deadline_s)
    return _row(config, split, made.fingerprint(), made.data_revision, facts)


def _row(
    config: EnvConfig, split: Split, fingerprint: str, revision: str | None, facts: Row
) -> Row:
    row: Row = {
        "used_in": [split],
        "id": config.id,
        "kwargs": json.loads(_json(config.kwargs)),
        "fingerprint": fingerprint,
        "data_revision": revision,
        "items": facts["items"],
        "sample": facts["sample"],
    }
    row["revision"] = next(iter(_commit_of(row).values()), None)
    return row


def _describe(data: RunData, config: EnvConfig, key: str, split: Split) -> Row:
    env = _make(data, config, key)
    spec = _spec_of(env)
    facts = {
        "items": getattr(env.unwrapped, "item_count", None),
        "sample": bool(getattr(env.unwrapped, "is_sample", False)),
    }
    row = _row(config, split, task_digest(spec, config, env), spec.data_revision, facts)
    provenance = _provenance(env)
    if provenance:
        row["provenance"] = provenance
    if config.tools:
        row["tools"] = described_tools(env)
        row["tools_key"] = tools_key(config)
    env.close()
    return row


def _provenance(env: Env) -> dict[str, str]:
    """Return what is known of a foreign environment only by asking it; empty for all others."""
    ask = getattr(env.unwrapped, "provenance", None)
    return {} if ask is None else dict(ask())


def _spec_of(env: Env) -> EnvSpec:
    assert env.spec is not None  # make() sets it
    return env.spec


def _commit_of(row: Row) -> dict[str, str]:
    """Return the data set on the Hub and its commit, if the row has one."""
    match = _HUB_REVISION.fullmatch(row["data_revision"] or "")
    return {} if match is None else {match[1]: match[2]}


def _config_key(config: EnvConfig) -> str:
    return f"{config.id} {_json(config.kwargs)} {tools_key(config)}"


def _row_key(row: Row) -> str:
    return f"{row['id']} {_json(row['kwargs'])} {row.get('tools_key', '')}"


def _json(data: Any) -> str:
    return json.dumps(data, sort_keys=True, default=str)
