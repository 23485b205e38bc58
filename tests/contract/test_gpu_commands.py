"""docs/commands_gpu.md: the adapter under test takes the recipe of each of its commands."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gem_core.cli.parser import build_parser
from gem_core.errors import RecipeError
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.trainers import get_trainer, resolve

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "commands_gpu.md"


def commands(trainer):
    """Each ``gem-core train`` of a trainer: variables, and the arguments that the parser reads."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if "gem-core train " in line and f"--trainer {trainer} " in line:
            before, _, after = line.strip().removesuffix(" &").partition("gem-core train ")
            variables = dict(word.split("=", 1) for word in shlex.split(before))
            found.append((variables, build_parser().parse_args(["train", *shlex.split(after)])))
    return found


def test_every_command_is_one_that_the_trainer_takes(trainer_name, config, monkeypatch):
    trainer = get_trainer(trainer_name)
    hardware = []
    for variables, arguments in commands(trainer_name):
        recipe = load_recipe(arguments.baseline, arguments.profile, arguments.overrides)
        assert arguments.trainer == trainer_name and recipe.hardware.device == "gpu"
        assert config.translate(recipe)
        hardware.append((recipe.hardware.nodes, recipe.hardware.gpus_per_node))
        if trainer.check_nodes and variables:
            with pytest.raises(RecipeError, match=next(iter(variables))):
                resolve(trainer.check_nodes)(recipe)
            with monkeypatch.context() as patch:
                for name, value in variables.items():
                    patch.setenv(name, value)
                resolve(trainer.check_nodes)(recipe)
    assert {(1, 1), (1, 8)} <= set(hardware)
    if (2, 8) not in hardware:
        with pytest.raises(RecipeError, match=r"hardware\.nodes = 2"):
            config.translate(load_recipe("guess-the-number-easy", "paper", ["hardware.nodes=2"]))


def test_a_shell_reads_every_block():
    blocks = [part.partition("```")[0] for part in PAGE.read_text().split("```bash\n")[1:]]
    assert len(blocks) > 15
    for block in blocks:
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr + block


def test_the_page_is_what_the_program_writes():
    program = ROOT / "scripts" / "gpu_commands.py"
    done = subprocess.run([sys.executable, str(program), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
