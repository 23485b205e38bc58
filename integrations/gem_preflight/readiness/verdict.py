"""Puts the checks of one trainer together: ready on a GPU, ready on a CPU, or what is missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gem_core.errors import GemError, MissingDependencyError
from gem_core.runs.checkout import cpu_line
from gem_core.runs.install import Stack, shell_block, stacks
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.trainers import Trainer, check, get_trainer, resolve
from gem_preflight.readiness import hardware, on_gpu, software
from gem_preflight.readiness.facts import (
    ANY_RUN,
    GB,
    Ask,
    Device,
    Machine,
    Probe,
    Problem,
    Torch,
)

CPU_STATE = "ready on CPU (tiny profile, stand-in engine)"
GPU_STATE = "ready on GPU"
NOT_READY = "not ready"


@dataclass(frozen=True)
class Verdict:
    """Whether a run of one trainer could start here.

    Attributes:
        trainer: the trainer.
        version: of its distribution; ``None`` = not installed.
        device: where the run would train.
        problems: what keeps it from starting; empty = it could start.
        notes: what is worth knowing, and keeps nothing from starting.
        seen: the machine in words.
    """

    trainer: Trainer
    version: str | None
    device: Device
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    seen: str = ""

    @property
    def ready(self) -> bool:
        """Whether a run could start."""
        return not self.problems

    @property
    def state(self) -> str:
        """The verdict in words."""
        if not self.ready:
            return f"{NOT_READY} on {self.device.upper()}"
        return GPU_STATE if self.device == "gpu" else CPU_STATE

    def data(self) -> dict[str, Any]:
        """Return the verdict as JSON's types."""
        return {
            "trainer": self.trainer.name,
            "package": self.trainer.distribution,
            "version": self.version,
            "tested": self.trainer.tested_range,
            "device": self.device,
            "state": self.state,
            "ready": self.ready,
            "problems": [{"text": p.text, "fix": p.fix} for p in self.problems],
            "notes": list(self.notes),
            "machine": self.seen,
        }


def examine(name: str, probe: Probe, ask: Ask = ANY_RUN) -> Verdict:
    """Check whether a run of the trainer called ``name`` could start.

    Raises:
        UnknownNameError: there is no such trainer.
        MissingDependencyError: packaging is not installed, with which versions are compared.
    """
    trainer = get_trainer(name)
    known = stacks().get(name)
    if known is not None and ask.recipe is not None:
        known = on_gpu.needed(known, ask.recipe.trainer.get(name, {}))
    machine = probe.machine(ask.folder)
    version = probe.version(trainer.distribution)
    torch = probe.torch() if version else None
    device = _device(ask, machine, torch)
    problems, notes = _packages(trainer, known, probe, machine, torch, ask, device)
    if device == "gpu":
        builds = any(software.FLASH in problem.fix for problem in problems)
        present = known if version else None
        more, told = on_gpu.machine_of(trainer, present, machine, torch, ask, builds)
    else:
        more, told = _cpu_machine(machine, torch), []
    if ask.recipe is not None and ask.recipe.hardware.device != device:
        text = f"the recipe trains on a {ask.recipe.hardware.device.upper()}"
        more = [*more, Problem(text, f"--set hardware.device={device}")]
    elif ask.recipe is not None:
        refused = [] if problems else _refusals(trainer, ask.recipe)
        engine = software.missing_eval_engine(ask.recipe, name, probe)
        more = [*more, *_model_files(ask.recipe), *_environments(ask.recipe, probe)]
        more = [*more, *engine, *refused]
    found = (*problems, *more)
    return Verdict(trainer, version, device, found, (*notes, *told), _seen(machine, torch))


def _seen(machine: Machine, torch: Torch | None) -> str:
    """Return the machine in words."""
    gpus = Counter(
        f"{gpu.name} ({gpu.bytes / GB:.0f} GB)"
        for gpu in (torch.gpus if torch and torch.gpus else machine.gpus)
    )
    parts = [", ".join(f"{number} x {name}" for name, number in gpus.items()) or "no GPU"]
    if torch is not None:
        cuda = f"CUDA {torch.cuda}" if torch.cuda else "for CPUs"
        nccl = f", NCCL {torch.nccl}" if torch.nccl else ""
        parts.append(f"torch {torch.version} ({cuda}{nccl})")
    parts.append(f"nvcc {machine.nvcc}" if machine.nvcc else "no nvcc")
    parts.append(f"/dev/shm {(machine.shm_bytes or 0) / GB:.1f} GB")
    return "; ".join([*parts, f"{machine.disk_bytes / GB:.0f} GB of free disk"])


def _device(ask: Ask, machine: Machine, torch: Torch | None) -> Device:
    if ask.device is not None:
        return ask.device
    if ask.recipe is not None:
        return ask.recipe.hardware.device
    here = (torch is not None and torch.gpus) or (machine.gpus and not machine.hidden)
    return "gpu" if here else "cpu"


def _packages(
    trainer: Trainer,
    known: Stack | None,
    probe: Probe,
    machine: Machine,
    torch: Torch | None,
    ask: Ask,
    device: Device,
) -> tuple[list[Problem], list[str]]:
    """Check Python and packages; a trainer that is missing or untested is all that is said."""
    status = check(
        _with_gpu_python(trainer, known, device),
        python=machine.python,
        version_of=probe.version,
        has_module=probe.has_module,
    )
    if not status.ready:
        return [_problem(text, trainer, known, device) for text in status.problems], []
    launch = trainer.launch.partition(":")[0]
    if device == "gpu" and known is not None:
        return on_gpu.packages(known, probe, machine, torch, ask, launch), list(known.notes)
    modules = [*(known.cpu if known else ()), launch]
    notes = [] if device == "cpu" else ["What it needs on a GPU is not known to gem-core."]
    fix = _build_line(trainer) if known is not None else trainer.install
    return software.failed_imports(modules, probe, lambda _: fix), notes


def _with_gpu_python(trainer: Trainer, known: Stack | None, device: Device) -> Trainer:
    """Narrow the range of Python where the packages for GPUs end earlier than the trainer."""
    if device == "cpu" or known is None or known.below is None:
        return trainer
    major, minor = known.below.split(".")
    return replace(trainer, python=(trainer.python[0], (int(major), int(minor))))


def _problem(text: str, trainer: Trainer, known: Stack | None, device: Device) -> Problem:
    """Divide a message of `check` into what is wrong and the line that fixes it."""
    built = known is not None and device == "cpu"
    if known is not None and text.startswith("needs Python"):
        lines = shell_block(trainer.name).splitlines()
        return Problem(
            text.partition(": ")[0], _build_line(trainer) if built else " && ".join(lines)
        )
    for fix in (trainer.install, *trainer.modules.values()):
        if text.endswith(f": {fix}"):
            return Problem(text.removesuffix(f": {fix}"), _build_line(trainer) if built else fix)
    return Problem(text)


def _build_line(trainer: Trainer) -> str:
    """Return the line that makes an environment for CPUs; the trainer's own is for GPUs."""
    line = cpu_line(trainer.name, trainer.install)
    return f"{line}    # in a checkout of gem-core" if line.startswith("make ") else line


def _cpu_machine(machine: Machine, torch: Torch | None) -> list[Problem]:
    """Check that the stand-ins are allowed, which they are only where no GPU can be used."""
    problems = []
    if torch is not None and torch.gpus:
        text = "a GPU is present, and the stand-ins for CPUs are refused beside one"
        problems.append(Problem(text, "export CUDA_VISIBLE_DEVICES="))
    return [*problems, *hardware.disk(machine, hardware.CPU_DISK_GB)]


def _model_files(recipe: Recipe) -> list[Problem]:
    """Check that a model that is named by a directory is there; a name on the Hub is not asked."""
    path = recipe.model.path
    if not path.startswith(("/", ".", "~")) or (Path(path) / "config.json").is_file():
        return []
    return [Problem(f"model.path = {path!r} is not a directory with a config.json")]


def _environments(recipe: Recipe, probe: Probe) -> list[Problem]:
    """Make the environments: their packages, parameters, data and servers."""
    error = probe.environment_error(recipe)
    return [Problem(error)] if error else []


def _refusals(trainer: Trainer, recipe: Recipe) -> list[Problem]:
    """Translate the recipe; what the trainer cannot honour keeps the run from starting."""
    try:
        resolve(trainer.translate)(recipe)
    except MissingDependencyError as error:
        return [Problem(str(error))]
    except GemError as error:
        return [Problem(f"the recipe is refused: {error}")]
    return []
