"""Small runs that begin before a check asks for them; the processes are programs of a line."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from gem_conform import ahead
from gem_conform.candidate import Candidate
from gem_conform.checks import CHECKS

NOTE = "import os, sys; open(sys.argv[1], 'a').write(os.environ.get('LEFT', 'none') + ' ')"
HANG = f"{NOTE}; import time; time.sleep(600)"


class Stub(Candidate):
    """Its runs are one program, which notes that it ran in a file beside the run."""

    program = NOTE

    def command(self, run: str, *overrides: str, resume: bool = False) -> list[str]:
        return [sys.executable, "-c", self.program, f"{self.path(run)}.txt"]


def noted(candidate: Candidate) -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted(candidate.folder.glob("*.txt"))}


@pytest.fixture
def candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return Stub("plain", tmp_path)


def test_each_run_is_made_once_with_the_environment_of_the_command(
    candidate: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEFT", "by a check")
    with ahead.runs_ahead(candidate, ["result", "repeat", "lockstep", "resume"]):
        assert list(candidate.ahead) == ["first", "again", "whole"]
        for run in ("first", "again", "first"):
            candidate.run(run)
        candidate.ahead["whole"].result()
    assert noted(candidate) == {"again": "none ", "first": "none ", "whole": "none "}


def test_checks_without_runs_begin_none_nor_does_a_machine_with_one_core(
    candidate: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ahead.runs_ahead(candidate, [name for name in CHECKS if name not in ahead.RUNS]):
        assert not candidate.ahead
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with ahead.runs_ahead(candidate, list(CHECKS)):
        assert not candidate.ahead
    assert noted(candidate) == {}


def test_an_error_ends_the_run_that_is_under_way_and_begins_no_other(candidate: Stub) -> None:
    candidate.program = HANG
    with pytest.raises(KeyboardInterrupt), ahead.runs_ahead(candidate, ["repeat"]):
        while not noted(candidate):
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert candidate.ahead["first"].result().code < 0
    assert candidate.ahead["again"].cancelled()
    assert noted(candidate) == {"first": "none "}
