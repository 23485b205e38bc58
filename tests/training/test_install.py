"""The install lines for GPU machines: their order, their pins, the pages that show them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gem_core.errors import UnknownNameError
from gem_core.runs.install import (
    DRIVERS,
    install_line,
    normal,
    requirement,
    shell_block,
    stack,
    stacks,
)
from gem_core.runs.trainers import check, get_trainer, list_trainers

ROOT = Path(__file__).resolve().parents[2]
TRAINERS = list_trainers()


def resolved(name: str) -> dict[str, str]:
    """What the resolver chose for the lines."""
    text = (ROOT / "constraints" / "gpu" / f"{name}.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {normal(name): version for name, _, version in (line.partition("==") for line in lines)}


@pytest.mark.parametrize("name", TRAINERS)
def test_the_pins_are_those_that_a_resolver_found_to_agree(name):
    versions = resolved(name)
    for text in stack(name).requirements():
        wanted = Requirement(text)
        installed = versions[normal(wanted.name)]
        assert wanted.specifier.contains(installed, prereleases=True), (text, installed)
    for watched in stack(name).watched:
        assert normal(watched) in versions, watched


@pytest.mark.parametrize("name", TRAINERS)
def test_torch_comes_first_then_the_engine_then_what_is_built_then_the_trainer(name):
    chosen = stack(name)
    places = [chosen.lines.index(chosen.line_for("torch"))]
    places.append(chosen.lines.index(chosen.line_for(chosen.engine)))
    if chosen.flash_attn:
        line = chosen.line_for("flash-attn")
        places.append(chosen.lines.index(line))
        assert "--no-build-isolation" in line
        needed = {"packaging", "psutil", "ninja", "setuptools", "wheel"}
        assert needed <= set(chosen.line_for("torch").split())
    places.append(chosen.lines.index(chosen.line_for(TRAINERS[name].distribution)))
    assert places == sorted(set(places)) and places[0] == 0


@pytest.mark.parametrize("name", TRAINERS)
def test_the_lines_install_a_tested_trainer_with_a_python_that_it_supports(name):
    trainer, chosen = TRAINERS[name], stack(name)
    assert trainer.install == install_line(name) == " && ".join(chosen.lines)
    pinned = resolved(name)[normal(trainer.distribution)]
    python = tuple(int(part) for part in chosen.python.split("."))
    status = check(trainer, python=python, version_of=lambda _: pinned, has_module=lambda _: True)
    assert status.problems == ()
    assert f'"{requirement(name)}"' in chosen.command
    assert shell_block(name).startswith(f"python{chosen.python} -m venv {name}-env")


@pytest.mark.parametrize("name", TRAINERS)
def test_every_distribution_that_is_watched_has_a_line_that_mends_it(name):
    chosen = stack(name)
    held = {normal(owner) for owner in chosen.holds}
    assert {normal(TRAINERS[name].distribution), chosen.engine} == held
    for watched in ("torch", chosen.engine):
        assert chosen.line_for(watched) in chosen.lines


@pytest.mark.parametrize("name", TRAINERS)
def test_a_missing_module_is_mended_by_a_version_that_was_resolved(name):
    versions = resolved(name)
    for command in TRAINERS[name].modules.values():
        words = command.removeprefix("pip install ").replace("'", "").replace('"', "").split()
        for word in words:
            if word.startswith(("-", "gem-core")):
                continue
            wanted = Requirement(word)
            assert wanted.specifier.contains(versions[normal(wanted.name)]), command


def test_a_trainer_without_lines_is_guessed():
    with pytest.raises(UnknownNameError, match="Did you mean 'verl'"):
        stack("ver")
    assert sorted(stacks()) == sorted(TRAINERS)
    assert get_trainer("trl").install == install_line("trl")


def test_the_pages_show_the_lines():
    program = ROOT / "scripts" / "install_lines.py"
    done = subprocess.run([sys.executable, str(program), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", TRAINERS)
def test_the_cuda_of_a_trainer_is_the_one_that_its_pins_resolve_to(name):
    """So is the driver that the page asks for before anything is installed."""
    versions, major = resolved(name), stack(name).cuda.partition(".")[0]
    (runtime,) = [
        versions[package]
        for package in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12")
        if package in versions
    ]
    assert runtime.startswith(f"{stack(name).cuda}.")
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    table, lines = page.index("| trainer | CUDA"), page.index("pip install torch==")
    assert table < lines
    assert f"| {stack(name).cuda} | {DRIVERS[major]} or newer |" in page[table:lines]


def test_a_driver_of_cuda_13_is_what_three_trainers_need():
    assert {name for name in TRAINERS if stack(name).driver == "580"} == {"trl", "verl", "openrlhf"}


@pytest.mark.parametrize("name", TRAINERS)
def test_a_dockerfile_has_the_lines_of_the_page_and_no_other_installation(name):
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    block = next(part for part in page.split("```bash\n") if f"-m venv {name}-env" in part)
    wanted = block.partition("```")[0].splitlines()
    path = ROOT / "integrations" / f"gem_{name}" / "Dockerfile"
    lines = path.read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    run = [line.removeprefix("RUN ") for line in lines if line.startswith("RUN ")]
    assert run[0].startswith("apt-get update && apt-get install -y --no-install-recommends ")
    assert run[0].endswith("&& rm -rf /var/lib/apt/lists/*")
    exports = [line for line in wanted if line.startswith("export ")]
    assert run[1 : 1 + len(wanted) - len(exports)] == [x for x in wanted if x not in exports]
    left = run[1 + len(wanted) - len(exports) :]
    assert [shlex.split(line)[2:-2] for line in left] == ([exports] if exports else [])
    tag = f"nvidia/cuda:{stack(name).cuda}."
    (base,) = [line for line in lines if line.startswith("FROM ")]
    assert base.startswith(f"FROM {tag}") and "-devel-" in base, "flash-attn is compiled"
    assert f"PATH=/opt/{name}-env/bin:$PATH" in "\n".join(lines)
