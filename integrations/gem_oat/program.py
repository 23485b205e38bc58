"""Oat's own program of processes: ``python -m gem_oat.program RUN START``.

`gem_oat.launch` starts it in a process of its own, see `gem_oat.nodes`.
"""

from __future__ import annotations

import os
import sys

from gem_adapters.cpu_threads import VARIABLE, cpu_threads
from gem_core.runs.directory.run_dir import RunDir
from gem_oat import launch
from gem_oat._compat import see_gpus


def main() -> None:
    """Build Oat's program for the run and run it to its end."""
    run = RunDir(sys.argv[1])
    if run.recipe.hardware.device == "cpu":
        from gem_oat.cpu import install

        install()
        os.environ[VARIABLE] = str(cpu_threads(run.recipe))
    else:
        see_gpus(run.recipe.hardware.gpus_per_node)
    launch.launch_program(launch.arguments(run.recipe, run, int(sys.argv[2])))


if __name__ == "__main__":
    main()
