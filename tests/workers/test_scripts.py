"""Code that workers cannot import: a script's own classes and functions, lambdas, local classes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gem_core.env.interface import Env
from gem_core.env.spec import EnvSpec
from gem_core.errors import GemError
from gem_core.execution.workers import Builder, WorkerEnv
from gem_core.execution.workers.by_value import pack_definition

SCRIPT = Path(__file__).parent / "own_script.py"


def test_an_environment_of_a_script_plays_in_workers(backend):
    command = [sys.executable, str(SCRIPT), backend]
    environment = {**os.environ, "GEM_CORE_TRUST": "0"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr
    there, here, run_there, run_here = json.loads(done.stdout.splitlines()[-1])
    assert there["elsewhere"] and not here["elsewhere"]
    assert there["obs"] == here["obs"] and there["answers"] == ["HEYHEY"] * 4 == here["answers"]
    assert sorted(there["resets"]) == [1, 2, 3, 4], "they share the variables of the script"
    assert run_there == run_here and len(run_there) == 3


def test_functions_lambdas_and_local_classes_reach_workers(pool):
    class Local(Env):
        def __init__(self, prefix):
            super().__init__()
            self.prefix = prefix

        def _reset(self, options):
            return self.prefix("start"), {"pid": os.getpid(), "said": options["say"]()}

        def _step(self, action):
            return self.prefix(action), 0.0, True, False, {}

    def make(prefix):
        return Local(prefix)

    for target in (Local, make, lambda prefix: make(prefix)):
        env = WorkerEnv(pool, Builder(target, (lambda text: f"> {text}",)).pack())
        text, info = env.reset(seed=1, options={"say": lambda: "hello"})
        assert text == "> start" and info["pid"] in pool.pids and info["said"] == "hello"
        assert env.step("go")[0] == "> go"
        env.close()


def test_what_cannot_be_sent_is_named(monkeypatch):
    lock = threading.Lock()

    class Locked(Env):
        def _reset(self, options):
            with lock:
                return "", {}

    monkeypatch.setattr(sys.modules["__main__"], "Locked", Locked, raising=False)
    message = "my:Locked-v0: Locked of the script cannot be sent .*lock.*: put it in a module"
    with pytest.raises(GemError, match=message):
        pack_definition(EnvSpec("my:Locked-v0", "__main__:Locked"))


def test_a_module_travels_by_name():
    assert pack_definition(EnvSpec("my:Faulty-v0", "faulty_env:Faulty")) == b""
