"""Looks at this machine and this environment. torch and trainers are not imported here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gem_core.errors import GemError
from gem_core.runs.environments.description import describe_environments
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.trainers import installed_version
from gem_preflight.readiness.facts import Gpu, Machine, Torch

SECONDS = 300.0
"""A process that imports for longer is given up: vLLM takes a minute on a slow disk."""
MIB = 1 << 20
_MARK = "gem-core-probe "
_TORCH = f"""
import json, warnings
try:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        import torch
        cuda = torch.cuda.is_available()
    texts = [str(warning.message).strip() for warning in told]
    error = "; ".join(text.splitlines()[0] for text in texts if "CUDA" in text)
    number = torch.cuda.device_count() if cuda else 0
    devices = [torch.cuda.get_device_properties(i) for i in range(number)]
    nccl = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    found = dict(
        version=torch.__version__, cuda=torch.version.cuda,
        gpus=[(d.name, d.total_memory, (d.major, d.minor)) for d in devices],
        nccl=".".join(map(str, torch.cuda.nccl.version())) if nccl else None,
        architectures=torch.cuda.get_arch_list() if cuda else [], error="" if cuda else error)
except Exception as failure:
    found = dict(error=f"{{type(failure).__name__}}: {{failure}}")
print("\\n{_MARK}" + json.dumps(found))
"""
_IMPORTS = f"""
import importlib, json, sys
for path in sys.argv[1:]:
    module, _, name = path.partition(":")
    try:
        loaded = importlib.import_module(module)
        if name:
            getattr(loaded, name)
        text = ""
    except BaseException as failure:
        text = f"{{type(failure).__name__}}: {{failure}}"
    sys.stdout.write("\\n{_MARK}" + json.dumps([path, text]) + "\\n")
    sys.stdout.flush()
"""


class Here:
    """The machine and the environment of this interpreter."""

    def machine(self, folder: Path) -> Machine:
        """Return this machine; runs are to be written below ``folder``."""
        existing = folder.resolve()
        while not existing.exists():
            existing = existing.parent
        shm = Path("/dev/shm")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus, driver_error = _listed_gpus()
        return Machine(
            python=sys.version_info[:2],
            gpus=gpus,
            driver_error=driver_error,
            nvcc=_nvcc(),
            shm_bytes=shutil.disk_usage(shm).total if shm.is_dir() else None,
            disk_bytes=shutil.disk_usage(existing).free,
            folder=folder,
            hidden=visible is not None and visible.strip() in ("", "-1"),
        )

    def torch(self) -> Torch | None:
        """Return this environment's torch; ``None`` = not installed."""
        installed = installed_version("torch")
        if installed is None:
            return None
        lines, death = _python(_TORCH)
        if not lines:
            return Torch(installed, error=death)
        found: dict[str, Any] = lines[-1]
        gpus = tuple(Gpu(name, size, tuple(level)) for name, size, level in found.get("gpus", ()))
        return Torch(
            version=found.get("version", installed),
            cuda=found.get("cuda"),
            gpus=gpus,
            nccl=found.get("nccl"),
            architectures=tuple(found.get("architectures", ())),
            error=found["error"],
        )

    def version(self, distribution: str) -> str | None:
        """Return the version of an installed distribution; ``None`` = not installed."""
        return installed_version(distribution)

    def has_module(self, name: str) -> bool:
        """Return whether a module can be found, without importing it."""
        return find_spec(name) is not None

    def requires(self, distribution_name: str) -> Sequence[str]:
        """Return what an installed distribution declares that it needs; empty = not installed."""
        try:
            return distribution(distribution_name).requires or []
        except PackageNotFoundError:
            return []

    def built_for(self, distribution_name: str) -> str | None:
        """Return the torch in the version or in the file name of what pip installed."""
        try:
            found = distribution(distribution_name)
        except PackageNotFoundError:
            return None
        origin = found.read_text("direct_url.json") or ""
        match = re.search(r"torch(\d+\.\d+)", f"{found.version} {origin}")
        return match[1] if match else None

    def import_errors(self, modules: Sequence[str]) -> dict[str, str]:
        """Import ``module`` or ``module:name`` in a new process; return those that fail."""
        if not modules:
            return {}
        lines, death = _python(_IMPORTS, *modules)
        told: dict[str, str] = dict(lines)
        for module in modules:
            if module not in told:  # the first that says nothing is the one that ended it
                told[module] = death
                break
        return {module: text for module, text in told.items() if text}

    def environment_error(self, recipe: Recipe) -> str:
        """Make the environments of a recipe in this process; return what keeps it from it."""
        try:
            describe_environments(recipe)
        except GemError as error:
            return str(error)
        return ""


def _python(program: str, *arguments: str) -> tuple[list[Any], str]:
    """Run a program of this interpreter.

    Returns:
        What it marked in its output, and how it ended where it ended badly.
    """
    command = [sys.executable, "-c", program, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired as late:
        output = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        return _marked(output), f"Python did not answer in {SECONDS:.0f} s"
    last = done.stderr.strip().splitlines()[-1:] or ["no message"]
    return _marked(done.stdout), f"Python ended with exit code {done.returncode} ({last[0]})"


def _marked(output: str) -> list[Any]:
    lines = output.splitlines()
    return [json.loads(line.removeprefix(_MARK)) for line in lines if line.startswith(_MARK)]


def _listed_gpus() -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs that ``nvidia-smi`` lists, hidden ones included, and why it fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return (), ""
    told = ""
    for fields in ("name,memory.total,compute_cap", "name,memory.total"):  # old ones lack the last
        command = [tool, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        done = subprocess.run(command, capture_output=True, text=True)
        if not done.returncode:
            return tuple(_gpu(line) for line in done.stdout.splitlines() if line.strip()), ""
        told = (done.stdout + done.stderr).strip() or f"exit code {done.returncode}"
    return (), " ".join(told.split())


def _gpu(line: str) -> Gpu:
    name, size, *rest = (part.strip() for part in line.split(","))
    major, _, minor = rest[0].partition(".") if rest else ("", "", "")
    known = major.isdigit() and minor.isdigit()
    megabytes = int(size) if size.isdigit() else 0  # "[N/A]" where memory is the host's
    return Gpu(name, megabytes * MIB, (int(major), int(minor)) if known else None)


def _nvcc() -> str | None:
    """Return the version of CUDA of the compiler that builds would use."""
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    tool = shutil.which("nvcc") or shutil.which(str(Path(home) / "bin" / "nvcc"))
    if tool is None:
        return None
    done = subprocess.run([tool, "--version"], capture_output=True, text=True)
    match = re.search(r"release (\d+\.\d+)", done.stdout)
    return match[1] if match else None
