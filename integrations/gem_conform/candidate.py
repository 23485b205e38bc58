"""The trainer under test: its declaration, its tables of keys, and its small runs on a CPU."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from gem_core.errors import RunError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.trainers import Trainer, get_trainer, resolve

Env = Mapping[str, str]
BASELINE = "guess-the-number-easy"
PROFILE = "tiny"
SMALL = ("batch.episodes=8", "train.steps=2", "train.save_every=0", "eval.episodes=0")
"""Overrides of every recipe of the kit; a check adds its own."""
ON_A_CPU = {
    "CUDA_VISIBLE_DEVICES": "",  # some trainers train on a GPU that they see, whatever is asked
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",  # the matrices are tiny: more threads only wait for each other
}
"""Environment variables of the checks and of their runs; those that are set stay."""
TIMEOUT_S = 900
"""Longest time of one small run; those that start Ray take up to two minutes."""
_POLL_S = 0.02
_SHOWN = 3000
"""Characters of a failed run's output in the report."""


@dataclass
class Candidate:
    """A trainer, and where its runs are made.

    Attributes:
        name: of the trainer.
        folder: gets the run directories; those of an earlier call are replaced.
        overrides: of every recipe, where the trainer needs something else than the tiny profile.
        cases: of the checks that have several, those that are checked; empty = all.
        environ: environment variables of the runs: not those that a check leaves behind.
        ahead: runs that began before a check asked for them, see `gem_conform.ahead`.
    """

    name: str
    folder: Path
    overrides: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    ahead: dict[str, Future[Ended]] = field(default_factory=dict)
    _runs: dict[str, RunDir] = field(default_factory=dict)
    _processes: set[subprocess.Popen[bytes]] = field(default_factory=set)

    @cached_property
    def trainer(self) -> Trainer:
        """The declaration.

        Raises:
            UnknownNameError: there is no such trainer.
        """
        return get_trainer(self.name)

    @cached_property
    def tables(self) -> Tables:
        """What the module of ``translate`` says of keys.

        Raises:
            AttributeError: it lacks a table.
        """
        module = import_module(self.trainer.translate.partition(":")[0])
        return Tables(
            frozenset(module.TRANSLATED),
            frozenset(module.APPLIED),
            dict(module.REFUSED),
            dict(module.NATIVE_OWNED),
            tuple(module.NATIVE_DEFAULTS),
        )

    def recipe(self, *overrides: str) -> Recipe:
        """Return the small recipe with ``overrides``."""
        return load_recipe(BASELINE, PROFILE, [*SMALL, *self.overrides, *overrides])

    def with_native(self, table: Mapping[str, Any]) -> Recipe:
        """Return the small recipe with ``table`` as ``[trainer.<name>]``."""
        return recipe_from_dict(self.recipe().to_dict() | {"trainer": {self.name: dict(table)}})

    def translate(self, recipe: Recipe) -> Any:
        """Return the native configuration of ``recipe``.

        Raises:
            RecipeError: the trainer refuses it.
        """
        return resolve(self.trainer.translate)(recipe)

    def path(self, run: str) -> Path:
        """Return the directory of a run."""
        return self.folder / run

    def command(self, run: str, *overrides: str, resume: bool = False) -> list[str]:
        """Return the command line of a small run."""
        command = [sys.executable, "-m", "gem_core.cli", "train", BASELINE, "--profile", PROFILE]
        command += ["--trainer", self.name, "--run", str(self.path(run))]
        for text in (*SMALL, *self.overrides, *overrides):
            command += ["--set", text]
        return [*command, "--resume"] if resume else command

    def start(
        self, run: str, *overrides: str, resume: bool = False, env: Env | None = None
    ) -> Ended:
        """Make a small run, to its end; ``env`` has further environment variables.

        Raises:
            RunError: it did not end within `TIMEOUT_S`.
        """
        with self._process(run, overrides, resume, env) as process:
            return self._wait(process, run, time.monotonic() + TIMEOUT_S)

    def run(
        self, run: str, *overrides: str, resume: bool = False, env: Env | None = None
    ) -> RunDir:
        """Return a finished small run; one of the same name is made once. For ``env`` see `start`.

        Raises:
            RunError: it did not end well.
        """
        if run not in self._runs:
            begun = self.ahead.pop(run, None)
            ended = begun.result() if begun else self.start(run, *overrides, resume=resume, env=env)
            if ended.code:
                raise RunError(
                    f"the run {run!r} ended with exit code {ended.code}; its output "
                    f"({self._log(run)}) ends with:\n{ended.tail}"
                )
            self._runs[run] = RunDir(self.path(run))
        return self._runs[run]

    def stop_after(self, step: int, run: str, *overrides: str) -> Ended:
        """Start a run, send it SIGTERM when it has ``step`` steps, and wait for its end.

        Raises:
            RunError: it ended before, or did not end within `TIMEOUT_S`.
        """
        deadline = time.monotonic() + TIMEOUT_S
        with self._process(run, overrides, resume=False) as process:
            while len(RunDir(self.path(run)).metrics()) < step and time.monotonic() < deadline:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
                    log = self._log(run)
                    raise RunError(f"the run {run!r} ended before step {step}; see {log}")
            process.send_signal(signal.SIGTERM)
            return self._wait(process, run, deadline)

    @contextmanager
    def _process(
        self, run: str, overrides: Sequence[str], resume: bool, env: Env | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a run whose output goes to a file; end it, with what it started, if need be."""
        if not resume:
            shutil.rmtree(self.path(run), ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._log(run).open("wb") as output:
            process = subprocess.Popen(
                self.command(run, *overrides, resume=resume),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**ON_A_CPU, **self.environ, **(env or {})},
                start_new_session=True,
            )
        self._processes.add(process)
        try:
            yield process
        finally:
            _end(process)
            self._processes.discard(process)

    def end_runs(self) -> None:
        """End the runs that are under way."""
        for process in tuple(self._processes):
            _end(process)

    def _wait(self, process: subprocess.Popen[bytes], run: str, deadline: float) -> Ended:
        """Wait for the end of a run."""
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise RunError(
                f"the run {run!r} did not end within {TIMEOUT_S} s; see {self._log(run)}"
            ) from None
        output = self._log(run).read_text(encoding="utf-8", errors="replace")
        return Ended(process.returncode, output)

    def _log(self, run: str) -> Path:
        return self.folder / f"{run}.log"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run, with what it started, if it is under way."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Ended(NamedTuple):
    """A process that ended.

    Attributes:
        code: its exit code.
        output: what it printed.
    """

    code: int
    output: str

    @property
    def tail(self) -> str:
        """The end of its output."""
        return self.output[-_SHOWN:].strip()


@dataclass(frozen=True)
class Tables:
    """What an adapter says of keys, see `gem_adapters.key_table.KeyTable`.

    Attributes:
        translated: recipe keys that become native ones.
        applied: recipe keys that the adapter itself carries out.
        refused: recipe key -> why it cannot be honoured.
        owned: native key -> what decides it.
        free: native keys with a default of the adapter's, which a recipe may set.
    """

    translated: Collection[str]
    applied: Collection[str]
    refused: Mapping[str, str]
    owned: Mapping[str, str]
    free: Collection[str]
