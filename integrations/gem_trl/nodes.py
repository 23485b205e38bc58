"""A run on several machines: where they meet, and what is started on each.

`gem-core train` is started on the first one, with `MEET_VARIABLE`. It evaluates, starts its own
processes by ``torchrun`` and prints the command that starts those of each other machine, which wait
there for the rest. When all have ended, it evaluates and writes the result. All machines must see
the run directory under the same path.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence

from gem_core.errors import RecipeError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.recipe import Recipe
from gem_trl.batching import processes

MEET_VARIABLE = "GEM_TRL_RENDEZVOUS"
"""Environment variable with the address of the first machine: ``HOST:PORT``."""
PATIENCE_S = 3600
"""Seconds in which all machines must have been started."""
_ADDRESS = re.compile(r"[^\s:/]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")


def require_meeting_place(recipe: Recipe) -> None:
    """Check, before anything runs, that a run on several machines can be started.

    Raises:
        RecipeError: nothing says where the machines meet.
    """
    meeting_place(recipe)


def meeting_place(recipe: Recipe) -> str | None:
    """Return the address at which the machines of a run meet; ``None`` for one machine.

    Raises:
        RecipeError: `MEET_VARIABLE` has none.
    """
    if recipe.hardware.nodes == 1:
        return None
    address = os.environ.get(MEET_VARIABLE, "")
    if not _ADDRESS.fullmatch(address):
        has = f"has {address!r}" if address else "is not set"
        raise RecipeError(
            f"hardware.nodes = {recipe.hardware.nodes}: TRL's machines need an address to meet at, "
            f"and {MEET_VARIABLE} {has}: set it to HOST:PORT, an address of this machine and a "
            "free port, and start this command again; it says what to start on the others."
        )
    return address


def torchrun(recipe: Recipe, program: str, arguments: Sequence[str], *, module: bool) -> list[str]:
    """Return the command that starts the processes of one machine; it is the same on each.

    Args:
        recipe: the hardware.
        program: path of a script, or name of a module.
        arguments: arguments of the program.
        module: ``program`` is a module.

    Raises:
        RecipeError: as `meeting_place`.
    """
    hardware = recipe.hardware
    command = [sys.executable, "-m", "torch.distributed.run"]
    command += [f"--nproc-per-node={hardware.gpus_per_node}"]
    address = meeting_place(recipe)
    if address is None:
        command += ["--standalone"]
    else:
        command += [f"--nnodes={hardware.nodes}", "--rdzv-backend=c10d"]
        command += [f"--rdzv-endpoint={address}", f"--rdzv-id={recipe.name}"]
        command += [f"--rdzv-conf=join_timeout={PATIENCE_S},read_timeout={PATIENCE_S}"]
    command += ["--module"] if module else []
    # Without "--" torchrun looks for options of its own among the program's.
    return [*command, "--", program, *arguments]


def command(recipe: Recipe, run: RunDir, resume: bool) -> list[str]:
    """Return what starts the processes of this machine; ``[]``: this process trains.

    It is the same with ``resume``: without a checkpoint a resumed run begins, so that the other
    machines need no other command.

    Raises:
        RecipeError: as `meeting_place`.
    """
    if processes(recipe) == 1:
        return []
    return torchrun(recipe, "gem_trl.launch", [str(run.path.resolve()), "--resume"], module=True)


def tell_the_others(recipe: Recipe, command: Sequence[str]) -> None:
    """Print what is to be started on each of the other machines, if there are others."""
    others = recipe.hardware.nodes - 1
    if others:
        where = "the other machine" if others == 1 else f"each of the other {others} machines"
        print(f"Start this on {where}: {shlex.join(command)}", flush=True)
