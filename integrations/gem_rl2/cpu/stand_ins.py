"""The modules of flash-attn, sglang and sglang-router that RL2 imports, as small as they can be.

Only names that RL2 0.0.2 and the newer source import exist here. They are put into ``sys.modules``,
so they never shadow anything outside the process that asked for them.
"""

from __future__ import annotations

import base64
import importlib.machinery
import multiprocessing
import os
import pickle
import sys
import time
import types
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from gem_rl2.cpu import attention


class MultiprocessingSerializer:
    """sglang sends handles of GPU memory; here the tensors themselves are sent."""

    @staticmethod
    def serialize(obj: Any, output_str: bool = False) -> bytes | str:
        """Pickle ``obj``; base64 text with ``output_str``."""
        data = pickle.dumps(obj)
        return base64.b64encode(data).decode() if output_str else data

    @staticmethod
    def deserialize(data: bytes | str) -> Any:
        """The inverse of `serialize`."""
        return pickle.loads(base64.b64decode(data) if isinstance(data, str) else data)


@dataclass
class LocalSerializedTensor:
    """One tensor, serialised once per tensor-parallel rank."""

    values: list[bytes]

    def get(self, rank: int) -> Any:
        """The tensor of ``rank``."""
        return MultiprocessingSerializer.deserialize(self.values[rank])


class FlattenedTensorBucket:
    """Many tensors in one flat tensor (newer RL2)."""

    def __init__(self, named_tensors: list[tuple[str, torch.Tensor]]) -> None:
        self.metadata = [(name, tuple(t.shape)) for name, t in named_tensors]
        self.flat = torch.cat([t.detach().reshape(-1) for _, t in named_tensors])

    def get_flattened_tensor(self) -> torch.Tensor:
        """All values."""
        return self.flat

    def get_metadata(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes, in order."""
        return self.metadata


def unflatten(flat: torch.Tensor, metadata: list[Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """The named tensors of a `FlattenedTensorBucket`."""
    sizes = [int(torch.Size(shape).numel()) for _, shape in metadata]
    for (name, shape), part in zip(metadata, flat.split(sizes), strict=True):
        yield name, part.view(shape)


@dataclass
class SamplingParams:
    """The sampling parameters of sglang that `gem_rl2.cpu.engine` honours."""

    max_new_tokens: int
    stop_token_ids: list[int]
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    sampling_seed: int | None = None
    no_stop_trim: bool = True
    stop: None = None


@dataclass
class ServerArgs:
    """What RL2 sets of sglang's server arguments."""

    model_path: str
    host: str
    port: int
    dtype: str = "auto"
    tp_size: int = 1
    mem_fraction_static: float = 0.5
    enable_memory_saver: bool = False
    log_level: str = "info"

    def url(self) -> str:
        """Address of the server."""
        return f"http://{self.host}:{self.port}"


@dataclass
class RouterArgs:
    """What RL2 sets of the router's arguments."""

    host: str
    port: int
    worker_urls: list[str] = field(default_factory=list)
    log_level: str = "info"


def launch_server(args: ServerArgs) -> None:
    """Become the engine: a fresh interpreter, because the parent has threads and a fork has not."""
    _become("engine", args.host, args.port, args.model_path)


def launch_router(args: RouterArgs) -> None:
    """Become the router."""
    _become("router", args.host, args.port, *args.worker_urls)


def _become(role: str, host: str, port: int, *rest: str) -> None:
    command = [sys.executable, "-W", "ignore", "-m", f"gem_rl2.cpu.{role}"]
    os.execv(sys.executable, [*command, host, str(port), str(os.getppid()), *rest])


def launch_server_process(args: ServerArgs) -> Any:
    """Start the engine and wait until it answers (newer RL2)."""
    process = multiprocessing.Process(target=launch_server, args=(args,))
    process.start()
    while True:
        try:
            urllib.request.urlopen(f"{args.url()}/health_generate", timeout=5)
            return process
        except OSError:
            if not process.is_alive():
                raise RuntimeError("the stand-in engine died at its start") from None
            time.sleep(0.1)


def _nothing() -> None:
    """sglang's ``monkey_patch_torch_reductions``: there are no GPU handles to patch."""


MODULES: dict[str, dict[str, Any]] = {
    "flash_attn": {"__version__": "2.8.3"},
    "flash_attn.flash_attn_interface": {
        name: getattr(attention, name)
        for name in (
            "_flash_attn_forward",
            "_flash_attn_backward",
            "_flash_attn_varlen_forward",
            "_flash_attn_varlen_backward",
        )
    },
    "sglang": {},
    "sglang.srt": {},
    "sglang.srt.patch_torch": {"monkey_patch_torch_reductions": _nothing},
    "sglang.srt.server_args": {"ServerArgs": ServerArgs},
    "sglang.srt.sampling": {},
    "sglang.srt.sampling.sampling_params": {"SamplingParams": SamplingParams},
    "sglang.srt.utils": {"MultiprocessingSerializer": MultiprocessingSerializer},
    "sglang.srt.utils.patch_torch": {"monkey_patch_torch_reductions": _nothing},
    "sglang.srt.model_executor": {},
    "sglang.srt.model_executor.model_runner": {"LocalSerializedTensor": LocalSerializedTensor},
    "sglang.srt.weight_sync": {},
    "sglang.srt.weight_sync.tensor_bucket": {"FlattenedTensorBucket": FlattenedTensorBucket},
    "sglang.srt.entrypoints": {},
    "sglang.srt.entrypoints.http_server": {"launch_server": launch_server},
    "sglang.srt.entrypoints.http_server_engine": {"launch_server_process": launch_server_process},
    "sglang_router": {},
    "sglang_router.launch_router": {"RouterArgs": RouterArgs, "launch_router": launch_router},
}


ROUTER_VARIABLE = "GEM_RL2_ROUTER"
"""Environment variable: with the value "sglang" the installed router of sglang is used."""


def install() -> None:
    """Put the stand-ins into ``sys.modules``; a second call changes nothing."""
    real_router = os.environ.get(ROUTER_VARIABLE) == "sglang"
    for name, contents in MODULES.items():
        if name in sys.modules or (real_router and name.startswith("sglang_router")):
            continue
        module = types.ModuleType(name, "Stand-in of gem_rl2.cpu.")
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        module.__path__ = []
        vars(module).update(contents)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
