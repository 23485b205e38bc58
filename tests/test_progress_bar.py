"""Bars on a real terminal, for training, evaluation and comparison; lines elsewhere."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

SHOWN = {
    "train": """
from gem_core.runs.tracking.progress import progress
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.directory.run_dir import RunDir
run = RunDir.create({folder!r}, load_recipe("guess-the-number-easy", "tiny"), "trl")
with progress(run, 20, print):
    for step in range(1, 21):
        run.log(step, {{"success/mean": 0.5}})
""",
    "eval": """
from gem_core.evaluation.progress import show_progress
from gem_core.evaluation.rows import Failure, ItemRow
with show_progress(0, 20) as advance:
    print("a line")
    for number in range(20):
        advance(ItemRow(item=number, task=0, sample=0, env=0, env_id="[red]", seed=1,
                        error=Failure(kind="timeout", message="x")))
""",
    "compare": """
from pathlib import Path
from gem_core.cli import main
main(["compare", "--trainers", "trl", "--algorithms", "rebn", "--out", {folder!r}, "--allow-dirty",
      "--set", "batch.episodes=0"])
""",
}


def on_terminal(program):
    """What a program writes to a terminal, without control sequences."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=slave, stdout=slave, stderr=slave, env=environment
    ):
        os.close(slave)
        written = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the program has ended
                break
            written += part
    os.close(master)
    return written.decode()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train", "step 20/20  success 0.500"),
        ("eval", "20/20 items, 20 errors"),
        ("compare", "guess-the-number-easy/trl/rebn/seed0"),
    ],
)
def test_a_bar_on_a_terminal_and_lines_elsewhere(name, text, tmp_path):
    shown = on_terminal(SHOWN[name].format(folder=str(tmp_path / "terminal")))
    assert "\x1b[" in shown and "\u2501" in shown, shown
    assert text in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    program = SHOWN[name].format(folder=str(tmp_path / "pipe"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    output = done.stdout + done.stderr
    assert text in output and "\x1b" not in output and "\u2501" not in output
