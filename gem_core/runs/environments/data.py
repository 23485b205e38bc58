"""What a run's environments are made from: the same data in every process, and a record of them.

The launcher makes every environment once and writes what it was made from into ``run.json``. Each
process of the run finds the run directory in `gem_core.runs.directory.run_dir.RUN_VARIABLE`, loads
the data in the recorded commit and refuses to continue with others. Inside a run data are strict:
a built-in sample is played only if the recipe asks for it, with ``kwargs.dataset = "sample"``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from gem_core.env.interface import Env
from gem_core.env.registration import make_from_data
from gem_core.env.spec import EnvSpec
from gem_core.envs._data_source import strict_data
from gem_core.envs._hub import DataUnavailableError
from gem_core.errors import DataError, GemError, RecipeError
from gem_core.runs.directory.run_dir import RUN_VARIABLE, RunDir
from gem_core.runs.environments.pools import close_run_pools
from gem_core.runs.environments.rows import Row, commit_of, config_key, row_key
from gem_core.runs.environments.tools import Tools, described_tools, task_digest, with_tools
from gem_core.runs.recipe.recipe import EnvConfig


class RunData:
    """The environments of a run as they were recorded, and what is made here compared with them."""

    def __init__(self, rows: Sequence[Row] = (), source: str = "") -> None:
        self.source = source
        self._rows: dict[str, Row] = {}
        self._commits: dict[str, str] = {}
        self._compared: set[str] = set()
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Let what is made from now on agree with a further environment."""
        self._rows.setdefault(row_key(row), row)
        for dataset, commit in commit_of(row).items():
            self._commits.setdefault(dataset, commit)

    def make(self, config: EnvConfig) -> Env:
        """Make an environment, without its tools, from the recorded data.

        Raises:
            DataError: its data are not available here, or are not the recorded ones.
        """
        row = self._rows.get(config_key(config))
        with strict_data(self._commits if row is None else commit_of(row) or self._commits):
            return make_from_data(config.id, config.kwargs)

    def compare(self, config: EnvConfig, env: Env) -> None:
        """Compare an environment with the recorded one, at the first call for each.

        Raises:
            DataError: they differ, in their data or in their tools.
        """
        key = config_key(config)
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
        row = self._rows.get(config_key(config))
        if row is not None:
            self._compare_task(row, made.fingerprint(), made.data_revision)

    def _compare(self, row: Row, config: EnvConfig, env: Env) -> None:
        self._compare_tools(row.get("tools", []), described_tools(env), row["id"])
        made = spec_of(env)
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
        now = provenance(env)
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

    Raises:
        DataError: its data are not available, or are not those of the run.
        MissingDependencyError: a package that it needs is missing.
        RecipeError: it does not accept its parameters.
    """
    return make_with(_data_of(os.environ.get(RUN_VARIABLE)), config, key)


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
        return task_digest(spec_of(env), config, env)
    finally:
        env.close()


@contextmanager
def belonging_to(run: RunDir) -> Iterator[None]:
    """Inside the block this process, and those that it starts, belong to a run."""
    before = os.environ.get(RUN_VARIABLE)
    os.environ[RUN_VARIABLE] = str(run.path.resolve())
    _data_of.cache_clear()
    try:
        yield
    finally:
        close_run_pools(os.environ.pop(RUN_VARIABLE))
        if before is not None:
            os.environ[RUN_VARIABLE] = before


@cache
def _data_of(path: str | None) -> RunData:
    """Return the record of the run of this process, which is read once."""
    return (None if path is None else recorded_data(RunDir(path))) or RunData()


def recorded_data(run: RunDir) -> RunData | None:
    """Return the record of a run; ``None`` for a run of an older version, which has none."""
    rows = run.info.get("environments")
    return None if rows is None else RunData(rows, str(run.path / "run.json"))


def make_with(data: RunData, config: EnvConfig, key: str) -> Env:
    """Make an environment from recorded data, with its tools, and compare it with the record.

    Raises:
        DataError: as `make_for_run`, or its items have images.
        RecipeError: it does not accept its parameters.
    """
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


def provenance(env: Env) -> dict[str, str]:
    """Return what is known of a foreign environment only by asking it; empty for all others."""
    ask = getattr(env.unwrapped, "provenance", None)
    return {} if ask is None else dict(ask())


def spec_of(env: Env) -> EnvSpec:
    """Return the specification of an environment that `make` made."""
    assert env.spec is not None  # make() sets it
    return env.spec
