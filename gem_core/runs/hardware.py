"""The versions and the hardware that a run had."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from gem_core.runs.provenance import commit
from gem_core.runs.redaction import redact_command
from gem_core.runs.trainers import list_trainers

_VERSIONS = {
    "accelerate",
    "deepspeed",
    "gem-core",
    "numpy",
    "ray",
    "sglang",
    "tokenizers",
    "torch",
    "transformers",
    "vllm",
}
"""Distributions whose versions are recorded, besides those of the trainers."""


def describe_machine() -> dict[str, Any]:
    """Return versions, hardware and commit of this process, for ``run.json``."""
    return {
        "versions": installed_versions(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _cpu_name(),
        "cores": os.cpu_count(),
        "gpus": _gpu_names(),
        "commit": commit(),
        "command": redact_command(sys.argv),
        "started": time.time(),
    }


def made_with(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a result keeps of ``run.json``: versions, hardware and commit."""
    return {
        "versions": info["versions"],
        "hardware": {key: info[key] for key in ("platform", "processor", "cores", "gpus")},
        "python": info["python"],
        "commit": info["commit"],
    }


def installed_versions() -> dict[str, str]:
    """Return the versions of the trainers that are installed here, and of what they rest on."""
    installed = {d.metadata["Name"].lower(): d.version for d in distributions()}
    recorded = _VERSIONS | {t.distribution.lower() for t in list_trainers().values()}
    return {name: installed[name] for name in sorted(recorded & installed.keys())}


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def _gpu_names() -> list[str]:
    """Return the names of the GPUs as ``nvidia-smi`` lists them, without importing torch."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    done = subprocess.run(
        [tool, "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True
    )
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []
