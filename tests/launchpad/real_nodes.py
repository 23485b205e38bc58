"""``real_nodes.py FOLDER [HOW]``: two nodes of the real launchpad, as Oat has them.

How it goes wrong: ``stubborn``, ``fail``, ``learner dies``, ``actor dies``.
The learner asks the actor, writes ``result`` and stops the program, as Oat's learner does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import launchpad as lp
from launchpad.nodes.python.local_multi_processing import PythonProcess

from gem_oat.nodes import run_nodes, stop_on_failure

TRAINING_S = 3.0


class Actor:
    """Answers; a stubborn one does not end when it is asked to."""

    def __init__(self, folder: str, how: str) -> None:
        if how == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path(folder, "actor").write_text(str(os.getpid()))

        if how == "actor dies":
            threading.Timer(1.0, os._exit, (1,)).start()

    def step(self, prompts: list[str]) -> list[str]:
        return [prompt.upper() for prompt in prompts]


class Learner:
    """Trains for a while."""

    def __init__(self, folder: str, how: str, actors: list) -> None:
        self.folder, self.how, self.actors = folder, how, actors

    def run(self) -> None:
        stop_on_failure(self._run)

    def _run(self) -> None:
        answer = self.actors[0].step(["a"])
        Path(self.folder, "learner").write_text(str(os.getpid()))
        time.sleep(TRAINING_S)
        if self.how == "fail":
            raise RuntimeError("the learner fails")
        if self.how == "learner dies":
            os._exit(1)
        Path(self.folder, "result").write_text(answer[0])
        lp.stop()


def main() -> None:
    folder, how = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "end"
    sys.argv = sys.argv[:1]  # launchpad reads the rest as its flags
    program = lp.Program("gem")
    actor = program.add_node(lp.CourierNode(Actor, folder, how), label="actor_0_0")
    program.add_node(lp.PyClassNode(Learner, folder, how, [actor]), label="learner_0_0")
    resources = {label: PythonProcess() for label in ("actor_0_0", "learner_0_0")}
    run_nodes(program, resources, "local_mp", patience=2.0)


if __name__ == "__main__":
    main()
