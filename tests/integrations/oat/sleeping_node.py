"""A program of one node that sleeps, with a process of its own: ``sleeping_node.py FOLDER``."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from gem_oat.cpu.launchpad_standin import Program, PyClassNode, launch


class Sleeper:
    def __init__(self, folder):
        self.folder = folder

    def run(self):
        subprocess.Popen(["sleep", "600"])
        (self.folder / "asleep").touch()
        time.sleep(600)


if __name__ == "__main__":
    program = Program("sleep")
    program.add_node(PyClassNode(Sleeper, Path(sys.argv[1])), label="sleeper")
    launch(program, local_resources={})
