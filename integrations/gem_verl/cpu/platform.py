"""A CPU platform for verl, which `gem_verl.cpu.harness` makes it import."""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AutoModelForTokenClassification
from verl.plugin.platform import PlatformBase, PlatformRegistry
from verl.utils import distributed, torch_functional

from gem_core.errors import GemError
from gem_verl.cpu.harness import ENGINE

if torch.cuda.is_available():
    raise GemError(
        "gem-core's CPU harness of verl was asked for on a machine with a GPU: set "
        'hardware.device = "gpu" there.'
    )


_CPU_FUNCTIONS = ("device_count", "stream", "synchronize", "current_stream", "Stream")
_MEASURES = (
    "memory_allocated",
    "memory_reserved",
    "max_memory_allocated",
    "max_memory_reserved",
)
_ACTIONS = (
    "empty_cache",
    "set_device",
    "manual_seed",
    "manual_seed_all",
    "reset_peak_memory_stats",
    "ipc_collect",
)
_FREE_AND_TOTAL = (2**33, 2**33)
"""Bytes that ``mem_get_info`` reports."""


def _device_module() -> types.ModuleType:
    """Make a stand-in for ``torch.cuda``: nothing to measure, nothing to select."""
    functions: dict[str, Any] = {name: getattr(torch.cpu, name) for name in _CPU_FUNCTIONS}
    functions |= dict.fromkeys(_MEASURES, lambda *_, **__: 0)
    functions |= dict.fromkeys(_ACTIONS, lambda *_, **__: None)
    functions["get_rng_state"] = torch.get_rng_state
    functions["set_rng_state"] = torch.set_rng_state
    functions["mem_get_info"] = lambda *_, **__: _FREE_AND_TOTAL
    functions["current_device"] = lambda: "cpu"
    functions["get_device_name"] = lambda *_: "cpu"
    functions["is_available"] = lambda: True
    module = types.ModuleType("gem_verl_cpu_device")
    for name, function in functions.items():
        setattr(module, name, function)
    return module


@PlatformRegistry.register(platform="cpu")
class CPUPlatform(PlatformBase):
    """verl's device interface over the CPU; Ray counts logical GPUs for it."""

    _module = _device_module()

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> Any:
        return self._module

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False  # never found by itself, only by VERL_PLATFORM=cpu

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: Any) -> None: ...

    def synchronize(self, device_index: Any = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: Any) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_id: int = 0) -> tuple[Any, Any]:
        return (None, None)

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


def _plain_gloo() -> None:
    """Name the device once: verl asks for "cpu:gloo,cpu:gloo" here, which torch rejects."""
    original = distributed.initialize_global_process_group_ray

    def start(timeout_second: Any = None, backend: Any = None) -> Any:
        return original(timeout_second, backend or "gloo")

    distributed.initialize_global_process_group_ray = start


def _critic_without_flash_attention() -> None:
    """Load the critic with SDPA: verl loads it with flash-attention and no other."""

    original = AutoModelForTokenClassification.from_pretrained

    def load(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "attn_implementation": "sdpa"})

    AutoModelForTokenClassification.from_pretrained = load


def _register_engine() -> None:
    """Make the CPU engine known to verl; its classes are imported when asked for."""
    # Not at the top: these import what is repaired above.
    from verl.workers.rollout import base, replica

    def load() -> Any:
        from gem_verl.cpu.replica import HFReplica

        return HFReplica

    replica.RolloutReplicaRegistry.register(ENGINE, load)
    # verl has no function to register a worker-side rollout class.
    base._ROLLOUT_REGISTRY[(ENGINE, "async")] = "gem_verl.cpu.replica.HFWeights"


_plain_gloo()
_critic_without_flash_attention()
# Without flash-attention verl takes log-probs in a Python loop over tokens, for the memory's sake.
torch_functional.logprobs_from_logits_v2 = torch_functional.logprobs_from_logits_naive
# The reference model's CPU offload pins its memory, which needs an accelerator.
torch.Tensor.pin_memory = lambda self, *_, **__: self
_register_engine()
