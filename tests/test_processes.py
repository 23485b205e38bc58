"""A trainer's program: its log, its failure, and that it does not outlive us."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gem_core.errors import RunError
from gem_core.processes import run_logged


def python(code):
    return [sys.executable, "-c", code]


def test_output_and_environment(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    code = "import os, sys; print(os.environ['MARK']); print('error', file=sys.stderr)"
    run_logged("it", python(code), log, {**os.environ, "MARK": "here"})
    first, *rest = log.read_text().splitlines()
    assert first == "before" and sorted(rest) == ["error", "here"]


def test_a_failure_shows_the_end_of_the_log(tmp_path):
    code = "import sys; print('first'); print(*range(70), sep='\\n'); sys.exit(3)"
    with pytest.raises(RunError, match=r"(?s)it ended with exit code 3.*69") as caught:
        run_logged("it", python(code), tmp_path / "log", os.environ)
    assert "first" not in str(caught.value)


def test_it_ends_with_its_parent(tmp_path):
    mark = tmp_path / "mark"
    child = f"import time, pathlib; pathlib.Path({str(mark)!r}).write_text('up'); time.sleep(60)"
    parent = (
        "import os, pathlib, sys; from gem_core.processes import run_logged; "
        f"run_logged('it', [sys.executable, '-c', {child!r}], "
        f"pathlib.Path({str(tmp_path / 'log')!r}), os.environ)"
    )
    process = subprocess.Popen(python(parent))
    until = time.monotonic() + 30
    while not mark.exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.kill()
    process.wait()
    while _named(str(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    assert mark.exists() and _named(str(mark)) == []


def _named(text):
    """Command lines with ``text`` in them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if text in line:
            found.append(line)
    return found
