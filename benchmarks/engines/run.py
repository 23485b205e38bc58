"""Train with a real engine on a CPU: ``python benchmarks/engines/run.py CASE [--steps 20]``.

A case is a function of ``TRAINER_cases.py``. It runs in the environment ``.venvs/TRAINER-vllm``
(``python scripts/make_env.py TRAINER-vllm``), and its figures go to ``results/CASE.json``. A case
whose figures are not as they must be ends with an error. The cases ``TRAINER-gemma`` and
``TRAINER-gemma-bfloat16`` train a pretrained model, whose folder ``--model`` names: that of
``gem-core model get gemma-3-270m --trim-vocabulary chain-sum --profile gemma``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common import HERE, MODEL_VARIABLE, ROOT, engine_environment

ENVIRONMENTS = {"oat-launchpad": "launchpad"}
"""Case -> its environment, where that is not ``TRAINER-vllm``."""
PROGRAMS = {
    "trl-second-runner": "second_runner.py",
    "trl-second-temperature": "second_runner.py",
    "trl-second-support": "second_runner.py",
    "trl-second-sampler": "second_runner.py",
    "trl-kernels": "trl_kernels.py",
}
"""Case -> its program, where that is not ``TRAINER_cases.py``."""


def with_libpython(environment: dict[str, str], python: str) -> dict[str, str]:
    """Return ``environment`` in which launchpad finds the library of its interpreter."""
    ask = "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"
    folder = subprocess.check_output([python, "-c", ask], text=True).strip()
    known = os.environ.get("LD_LIBRARY_PATH")
    joined = os.pathsep.join(filter(None, (folder, known)))
    return {**environment, "LD_LIBRARY_PATH": joined}


def main() -> int:
    """Start the case's program in its environment; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", help="trl-colocate, trl-server, trl-standin, trl-checks, ...")
    parser.add_argument("--steps", type=int, default=20, help="training steps")
    parser.add_argument("--python", help="interpreter; default: that of the case's environment")
    parser.add_argument("--model", type=Path, help="the folder of Gemma 3 270M, for TRAINER-gemma")
    options = parser.parse_args()
    trainer = options.case.partition("-")[0]
    name = ENVIRONMENTS.get(options.case, f"{trainer}-vllm")
    python = options.python or str(ROOT / ".venvs" / name / "bin" / "python")
    with tempfile.TemporaryDirectory() as folder:
        environment = engine_environment(Path(folder) / "site", trainer)
        if options.model is not None:
            environment[MODEL_VARIABLE] = str(options.model.resolve())
        if name == "launchpad":
            environment = with_libpython(environment, python)
        program = str(HERE / PROGRAMS.get(options.case, f"{trainer}_cases.py"))
        command = [python, program, options.case, str(Path(folder) / "run"), str(options.steps)]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
