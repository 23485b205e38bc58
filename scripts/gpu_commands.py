#!/usr/bin/env python3
"""Write ``docs/commands_gpu.md``: ``python scripts/gpu_commands.py [--check]``.

What starts each trainer on one GPU, on eight, on two machines, and under Slurm. The test
`tests/contract/test_gpu_commands.py` reads every command of the page with gem-core's own parser and
has the adapter translate its recipe, in each trainer's environment.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from importlib import import_module
from pathlib import Path

from gem_core.runs.install import shell_block, stack
from gem_core.runs.recipe.load import load_recipe
from gem_trl.nodes import MEET_VARIABLE, torchrun

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands_gpu.md"
TITLES = {"trl": "TRL", "verl": "verl", "openrlhf": "OpenRLHF", "oat": "Oat", "rl2": "RL2"}
BASELINE = "guess-the-number-easy"
RUN = "/shared/runs/paper"
FIRST = "10.0.0.1"
"""An address of the first machine, in the examples."""
MEET = f"{FIRST}:29500"
RAY_PORT = 6379
HEAD = """# Commands on GPUs

<!-- Written by scripts/gpu_commands.py: change that, not this file. -->

**None of these commands has been run on a GPU, and neither Slurm nor SkyPilot has read the
scripts.** What was checked, in each trainer's environment: gem-core's parser takes every
`gem-core train` of this page, the adapter translates its recipe, and a shell finds no mistake of
syntax. Lines of installation, and the driver that they need:
[install.md](install.md#for-training-on-gpus). Whether a model fits: `gem-core plan`. What a trainer
does on GPUs: [gpu.md](gpu.md).

Before the first run, in the trainer's environment:
`gem-core doctor --trainer NAME --device gpu --recipe BASELINE --profile small`. A run that was
stopped goes on with the same command and `--resume`. On several machines the run directory must be
one folder that all of them see under the same path, here `/shared/runs/paper`. A grid of runs,
each on one machine, is submitted to Slurm by `gem-core submit`: [a grid on Slurm](train/slurm.md).
"""


def main() -> int:
    """Write or check the page; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only check the page")
    options = parser.parse_args()
    text = page()
    if options.check and (not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text):
        print(f"{PAGE.name} is out of date: run python scripts/gpu_commands.py")
        return 1
    if not options.check:
        PAGE.write_text(text, encoding="utf-8")
    return 0


def page() -> str:
    """Return the page."""
    return "\n".join([HEAD, *(section(name) for name in TITLES), sky()])


def train(name: str, profile: str, *keys: str, run: str = "") -> str:
    """Return the command of a run."""
    words = ["gem-core", "train", BASELINE, "--trainer", name, "--profile", profile]
    words += [word for key in keys for word in ("--set", key)]
    return shlex.join([*words, "--run", run or f"runs/{profile}"])


def section(name: str) -> str:
    """Return the commands of a trainer."""
    parts = [
        f"## {TITLES[name]}\n",
        f"One GPU, with the profile `small` (0.6B, 24 GB):\n\n{bash(train(name, 'small'))}",
        f"Eight GPUs of one machine, with the profile `paper`:\n\n{bash(train(name, 'paper'))}",
    ]
    refused = import_module(f"gem_{name}.key_table").TABLE.refused.get("hardware.nodes")
    if refused:
        parts.append(f"Two machines: refused before anything runs, as {refused}\n")
        parts.append(f"Slurm, one machine:\n\n{bash(slurm_of_one(name))}")
    else:
        parts.append(f"Two machines of eight GPUs:\n\n{bash(*two_machines(name))}")
        parts.append(f"Slurm, two machines:\n\n{bash(slurm_of_two(name))}")
    return "\n".join(parts)


def two_machines(name: str) -> list[str]:
    """Return what is started on the first machine and on the other."""
    command = train(name, "paper", "hardware.nodes=2", run=RUN)
    if name == "trl":
        return [
            f"# on the first, {FIRST}:",
            f"{MEET_VARIABLE}={MEET} {command}",
            "# on the other, when the first has evaluated the model and prints this line:",
            f"{MEET_VARIABLE}={MEET} {second_of_trl(MEET)}",
        ]
    return [
        f"# on the first, {FIRST}:",
        f"ray start --head --port={RAY_PORT}",
        "# on the other, in the same environment:",
        f"ray start --address={FIRST}:{RAY_PORT}",
        "# on the first, when `ray status` shows 16 GPUs:",
        f"RAY_ADDRESS=auto {command}",
        "ray stop  # on both",
    ]


def second_of_trl(address: str) -> str:
    """Return the command of the machines after the first, as TRL's launcher makes it."""
    before = os.environ.get(MEET_VARIABLE)
    os.environ[MEET_VARIABLE] = MEET
    try:
        recipe = load_recipe(BASELINE, "paper", ["hardware.nodes=2"])
        command = torchrun(recipe, "gem_trl.launch", [RUN, "--resume"], module=True)
    finally:
        os.environ.pop(MEET_VARIABLE)
        os.environ |= {} if before is None else {MEET_VARIABLE: before}
    return shlex.join(["python", *command[1:]]).replace(MEET, address)


def slurm(name: str, nodes: int) -> list[str]:
    """Return the head of a batch script; its machines get SIGTERM ten minutes before the end."""
    return [
        "#!/bin/bash",
        f"#SBATCH --job-name=gem-core-{name} --nodes={nodes} --ntasks-per-node=1",
        "#SBATCH --gpus-per-node=8 --exclusive --time=24:00:00 --signal=B:TERM@600",
        f". /shared/{name}-env/bin/activate",
        *(line for line in stack(name).lines if line.startswith("export ")),
    ]


def forwarded(command: str) -> list[str]:
    """Return lines that run a command and hand SIGTERM of the batch script on to it."""
    return [
        f"{command} &",
        'trap "kill -TERM $!" TERM',
        "wait $! || wait $!  # the first one ends with the signal, the second with the run",
    ]


def slurm_of_one(name: str) -> str:
    """Return the batch script of a run on one machine."""
    return "\n".join([*slurm(name, 1), *forwarded(train(name, "paper", run=RUN))])


def slurm_of_two(name: str) -> str:
    """Return the batch script of a run on two machines; it runs on the first of them."""
    command = train(name, "paper", "hardware.nodes=2", run=RUN)
    first = 'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    other = 'srun --nodes=1 --ntasks=1 --exclude="$first"'
    if name == "trl":
        return "\n".join(
            [
                *slurm(name, 2),
                first,
                f"export {MEET_VARIABLE}=$first:29500",
                f"{{ until [ -s {RUN}/evals.jsonl ]; do sleep 10; done  # the first evaluates",
                f"  {other} {second_of_trl('$first:29500')}",
                "} &",
                *forwarded(command),
            ]
        )
    return "\n".join(
        [
            *slurm(name, 2),
            first,
            f'ray start --head --node-ip-address="$first" --port={RAY_PORT}',
            f'{other} ray start --address="$first:{RAY_PORT}" --block &',
            f"export RAY_ADDRESS=$first:{RAY_PORT}",
            "until ray status | grep -q '/16.0 GPU'; do sleep 5; done",
            *forwarded(command),
            "code=$?; ray stop; exit $code",
        ]
    )


def sky() -> str:
    """Return an example for SkyPilot."""
    name = "verl"
    setup = "\n".join(f"  {line}" for line in shell_block(name).splitlines())
    text = "\n".join(
        [
            "workdir: .  # a checkout, which the lines install",
            "resources:",
            "  accelerators: H100:8",
            "file_mounts:",
            "  /shared: {name: my-runs, mode: MOUNT}",
            "setup: |",
            setup,
            "run: |",
            f"  . {name}-env/bin/activate",
            f"  {train(name, 'paper', run=RUN)}",
        ]
    )
    return (
        "## SkyPilot\n\nOne example, for verl on eight GPUs; `my-runs` is a bucket of yours. "
        f"`sky launch verl.yaml` starts it.\n\n```yaml\n{text}\n```\n"
    )


def bash(*lines: str) -> str:
    """Return lines as Markdown."""
    return "```bash\n" + "\n".join(lines) + "\n```\n"


if __name__ == "__main__":
    sys.exit(main())
