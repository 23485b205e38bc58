"""A stand-in for the Python of a trainer: it takes the command of a cell and writes its run.

What it does is in ``$STAND_IN/seedN``: it ``fails``; or at its first start it ``waits`` for
SIGTERM, saves and ends, or it ``hangs``. Without such a file, and at a later start, it finishes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from gem_core.cli.parser import build_parser
from gem_core.runs.directory.files import append_line
from gem_core.runs.directory.lock import exclusive
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_core.training.stopping import RunStopped, mark_stopped, stop_on_sigterm, stop_requested


def main(words: list[str]) -> int:
    assert words[:2] == ["-m", "gem_core.cli"], words
    arguments = build_parser().parse_args(words[2:])
    assert arguments.resume
    recipe = load_recipe(arguments.baseline, arguments.profile, arguments.overrides)
    with exclusive(arguments.run):
        run = RunDir.create(arguments.run, recipe, arguments.trainer, "resume")
        append_line(run.path / "starts.jsonl", {"job": os.getppid(), "pid": os.getpid()})
        first = len((run.path / "starts.jsonl").read_text().splitlines()) == 1
        asked = Path(os.environ["STAND_IN"]) / run.path.name
        behaviour = asked.read_text() if asked.exists() else ""
        if behaviour == "fails":
            print("something happened")
            sys.exit("RuntimeError: out of luck")
        if behaviour == "hangs" and first:
            print("step 1 of 3", flush=True)
            time.sleep(300)
        if behaviour == "waits" and first:
            try:
                with stop_on_sigterm(run):
                    print("step 1 of 3", flush=True)
                    while not stop_requested(run):
                        time.sleep(0.02)
                    raise mark_stopped(run, 1)
            except RunStopped as stopped:
                print(stopped, file=sys.stderr)
                return stopped.exit_code
        (run.path / "result.json").write_text(json.dumps({"steps": 3}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
