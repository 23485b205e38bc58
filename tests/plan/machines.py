"""Machines and environments that the tests of the doctor state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gem_core.runs.recipe.recipe import Recipe
from gem_preflight.readiness.facts import Gpu, Machine, Torch

H100 = Gpu("NVIDIA H100 80GB HBM3", 80 * 10**9, (9, 0))
KERNELS = ("sm_80", "sm_90")


@dataclass
class Stated:
    """A `Probe` that says what a test wrote down, and records what was imported."""

    here: Machine
    torch_here: Torch | None
    versions: dict[str, str]
    declares: dict[str, list[str]] = field(default_factory=dict)
    built: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    imported: list[str] = field(default_factory=list)
    environment: str = ""

    def machine(self, folder: Path) -> Machine:
        return replace(self.here, folder=folder)

    def torch(self) -> Torch | None:
        return self.torch_here

    def version(self, distribution: str) -> str | None:
        return self.versions.get(distribution)

    def has_module(self, name: str) -> bool:
        return name not in self.absent

    def requires(self, distribution: str) -> Sequence[str]:
        return self.declares.get(distribution, []) if distribution in self.versions else []

    def built_for(self, distribution: str) -> str | None:
        return self.built.get(distribution)

    def environment_error(self, recipe: Recipe) -> str:
        return self.environment

    def import_errors(self, modules: Sequence[str]) -> dict[str, str]:
        self.imported += modules
        return {module: self.broken[module] for module in modules if module in self.broken}


# What the released packages declare of the distributions that are watched.
DECLARES = {
    "trl": ["transformers>=4.56.2", 'vllm<=0.31.0,>=0.22.0; extra == "vllm"'],
    "verl": [
        "transformers!=5.6.0,<5.11,>=5.5.3",
        "numpy>=2.0.0",
        "ray[default]>=2.41.0",
        "tensordict!=0.9.0,<=0.10.0,>=0.8.0",
        'flash-attn==2.8.3; extra == "flash-attn-cu130torch211"',
        'torch==2.11.0; extra == "vllm"',
        'vllm==0.24.0; extra == "vllm"',
        'transformers==5.9.0; extra == "vllm"',
        'torch==2.99.0; extra == "cpu"',
    ],
    "openrlhf": [
        "deepspeed==0.19.6",
        "flash-attn==2.8.3",
        "ray[default]==2.55.0",
        "torch",
        "transformers==5.15.0",
        'vllm==0.29.0; extra == "vllm"',
    ],
    "oat-llm": ["flash-attn==2.7.4.post1", "vllm==0.8.4", "numpy==1.26.4", "transformers==4.51.3"],
    "rl-square": ["torch==2.8.0", "flash-attn==2.8.3", "sglang[all]==0.5.2"],
    "vllm": ["torch==2.13.0"],
}
VERSIONS = {
    "trl": {"trl": "1.16.0", "vllm": "0.29.0", "torch": "2.13.0", "transformers": "5.23.0"},
    "verl": {
        "verl": "0.9.1", "vllm": "0.24.0", "torch": "2.11.0", "transformers": "5.9.0",
        "numpy": "2.3.5", "ray": "2.60.0", "tensordict": "0.10.0", "flash-attn": "2.8.3",
    },
    "openrlhf": {
        "openrlhf": "0.11.2", "vllm": "0.29.0", "torch": "2.13.0", "transformers": "5.15.0",
        "ray": "2.55.0", "deepspeed": "0.19.6", "flash-attn": "2.8.3",
    },
    "oat": {
        "oat-llm": "0.2.4", "vllm": "0.8.4", "torch": "2.6.0", "transformers": "4.51.3",
        "numpy": "1.26.4", "flash-attn": "2.7.4.post1",
    },
    "rl2": {
        "rl-square": "0.0.2", "sglang": "0.5.2", "torch": "2.8.0", "flash-attn": "2.8.3",
    },
}  # fmt: skip
CUDA = {"trl": "13.0", "verl": "13.0", "openrlhf": "13.0", "oat": "12.4", "rl2": "12.8"}


def whole(trainer: str, gpus: int = 8) -> Stated:
    """A machine with GPUs on which ``trainer`` could train."""
    versions = dict(VERSIONS[trainer])
    cuda = CUDA[trainer]
    cards = (H100,) * gpus
    torch = Torch(versions["torch"], cuda, cards, "2.28.9", KERNELS)
    python = (3, 10) if trainer == "oat" else (3, 11)
    here = Machine(python, cards, cuda, 64 * 10**9, 2 * 10**12)
    declares = {**DECLARES, "vllm": [f"torch=={versions['torch']}"]}
    return Stated(here, torch, versions, declares)


def without_gpu(trainer: str) -> Stated:
    """A machine without a GPU and the tested set for CPUs."""
    stated = whole(trainer, 0)
    kept = {k: v for k, v in stated.versions.items() if k not in ("vllm", "sglang", "flash-attn")}
    stated.versions = {**kept, "torch": "2.13.0+cpu"}
    stated.torch_here = Torch("2.13.0+cpu")
    stated.here = replace(stated.here, gpus=(), nvcc=None, python=(3, 11))
    return stated
