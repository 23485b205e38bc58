"""Makes OpenRLHF run on a machine without a GPU: import stand-ins, device patches, a local Ray.

Nothing of OpenRLHF's training code is replaced: rollouts, experiences, loss, DeepSpeed's ZeRO-2
optimizer and the weight sync are the released ones. What is replaced is what needs a CUDA device.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from gem_adapters.cpu_threads import VARIABLE as THREADS
from gem_adapters.cpu_threads import cpu_threads
from gem_core.errors import GemError
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.allocator import keep_freed_memory
from gem_openrlhf.cpu import real_vllm

STAND_INS = str(Path(__file__).with_name("stand_ins"))
FLOAT32_VARIABLE = "GEM_OPENRLHF_FLOAT32"
THREADS_VARIABLE = "GEM_OPENRLHF_THREADS"
_VARIABLES = {
    "DS_ACCELERATOR": "cpu",
    "TORCHDYNAMO_DISABLE": "1",  # torch.compile would build C++ for one small entropy
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}
# A loaded machine needs longer than Ray's defaults allow, and starves workers of Ray's niceness 15.
_RAY_VARIABLES = {
    "RAY_worker_niceness": "0",
    "RAY_raylet_start_wait_time_s": "180",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@contextmanager
def session(recipe: Recipe) -> Iterator[dict[str, Any]]:
    """Apply the harness to this process; yield ``ray.init`` options that apply it to workers."""
    choose_dtype(recipe)
    choose_engine(recipe)
    threads = str(cpu_threads(recipe))
    os.environ[THREADS_VARIABLE] = threads
    keep_freed_memory()
    os.environ.update(_RAY_VARIABLES)
    apply()
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray refuses made-up GPUs beside an empty list
    ranks = recipe.hardware.nodes * recipe.hardware.gpus_per_node
    slots = 3 * ranks + 4  # made-up GPUs: policy, reference and critic ranks, the engine
    real = bool(os.environ.get(real_vllm.CHOSEN))
    names = [
        *_VARIABLES,
        THREADS_VARIABLE,
        FLOAT32_VARIABLE,
        *(real_vllm.VARIABLES if real else ()),
    ]
    inherited = {THREADS: threads, **{name: os.environ[name] for name in names}}
    search_path = [] if real else [STAND_INS]
    if os.environ.get("PYTHONPATH"):
        search_path.append(os.environ["PYTHONPATH"])
    # Unix socket paths must be short, so this does not go into the run directory.
    with tempfile.TemporaryDirectory(
        prefix="gemray", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        if real:
            packages = Path(folder) / "packages"
            packages.mkdir()
            real_vllm.write_metadata(packages)
            search_path.insert(0, str(packages))
        started = {
            "address": "local",
            "num_cpus": slots + 4,
            "num_gpus": slots,
            "include_dashboard": False,
            "object_store_memory": 200 * 2**20,
            "_temp_dir": folder,
        }
        yield {
            # Several nodes are a Ray cluster that runs already.
            **(started if recipe.hardware.nodes == 1 else {}),
            "runtime_env": {
                "env_vars": {**inherited, "PYTHONPATH": os.pathsep.join(search_path)},
                "worker_process_setup_hook": f"{__name__}.apply",
            },
        }


def choose_dtype(recipe: Recipe) -> None:
    """Make OpenRLHF train in the recipe's dtype, float32 included."""
    os.environ[FLOAT32_VARIABLE] = "1" if recipe.model.dtype == "float32" else ""


def choose_engine(recipe: Recipe) -> None:
    """Have this process and Ray's workers import real vLLM where the recipe asks for it.

    Raises:
        MissingDependencyError: it is not installed.
    """
    os.environ.pop(real_vllm.CHOSEN, None)
    if recipe.hardware.engine == "vllm":
        real_vllm.require()
        os.environ.update(real_vllm.VARIABLES)


def apply() -> None:
    """Apply the harness to this process, once.

    Raises:
        GemError: there is a GPU: the stand-ins must never train where the real packages could.
    """
    if any(isinstance(finder, _PatchFinder) for finder in sys.meta_path):
        return
    os.environ.update(_VARIABLES)
    import torch

    if torch.cuda.is_available():
        raise GemError("The CPU harness does not run where a GPU is: set hardware.device=gpu.")
    torch.set_num_threads(int(os.environ.get(THREADS_VARIABLE, "1")))
    torch.cuda.current_device = lambda: _Cpu("cpu")
    for name in ("set_device", "synchronize", "current_stream", "empty_cache"):
        setattr(torch.cuda, name, lambda *_, **__: None)
    if STAND_INS not in sys.path:
        # Last where vLLM is real: the installed package comes before the stand-in then.
        real = os.environ.get(real_vllm.CHOSEN)
        sys.path.insert(len(sys.path) if real else 0, STAND_INS)
    for name, patch in _PATCHES.items():
        if name in sys.modules:
            patch(sys.modules[name])
    sys.meta_path.insert(0, _PatchFinder())


class _Cpu(str):
    """The device "cpu" that also passes for an index: OpenRLHF writes ``cuda:{device}``."""

    def __format__(self, spec: str) -> str:
        return "0"


class _PatchFinder(importlib.abc.MetaPathFinder):
    """Finds the modules that are patched, and has their patch run after their own code."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _PATCHES:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchLoader(spec.loader, _PATCHES[name])
        return spec


class _PatchLoader(importlib.abc.Loader):
    """A loader followed by a patch."""

    def __init__(self, loader: Any, patch: Callable[[Any], None]) -> None:
        self.loader = loader
        self.patch = patch

    def create_module(self, spec: Any) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        self.patch(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def _store_group(module: Any) -> None:
    """Broadcast weights to real vLLM without NCCL; the stand-in has this already."""
    if os.environ.get(real_vllm.CHOSEN):
        from gem_openrlhf.cpu.store import join

        module.stateless_init_process_group = join


def _no_shared_memory_op(module: Any) -> None:
    """Leave out a C++ extension that DeepSpeed would compile for minutes."""
    module.build_shm_op = lambda: None


def _cpu_optimizer(module: Any) -> None:
    """Put the device mesh on the CPU; use torch's AdamW instead of a compiled one."""
    make_mesh = module.init_device_mesh
    make_config = module.get_train_ds_config

    def init_device_mesh(device: str, *args: Any, **kwargs: Any) -> Any:
        return make_mesh("cpu" if device == "cuda" else device, *args, **kwargs)

    def get_train_ds_config(*args: Any, **kwargs: Any) -> dict[str, Any]:
        config: dict[str, Any] = make_config(*args, **kwargs)
        if config.get("optimizer", {}).get("type") == "AdamW":
            config["optimizer"]["params"]["torch_adam"] = True
        return config

    module.init_device_mesh = init_device_mesh
    module.get_train_ds_config = get_train_ds_config


def _cpu_strategy(module: Any) -> None:
    """Add float32, which DeepSpeed has, to bf16 and fp16, which OpenRLHF's parser knows.

    Packed sequences also stay with torch's attention, where OpenRLHF's parser sets flash-attn's.
    """
    make_strategy = module.get_strategy

    def get_strategy(args: Any) -> Any:
        if args.ds.packing_samples:
            args.ds.attn_implementation = "sdpa"
        if os.environ.get(FLOAT32_VARIABLE):
            args.ds.param_dtype = "fp32"
        return make_strategy(args)

    module.get_strategy = get_strategy


def _float32_models(module: Any) -> None:
    """Add the dtype "fp32" to the loading of models, see `_cpu_strategy`."""
    convert = module.convert_to_torch_dtype

    def convert_to_torch_dtype(name: str) -> Any:
        import torch

        return torch.float32 if name == "fp32" else convert(name)

    module.convert_to_torch_dtype = convert_to_torch_dtype


_PATCHES: dict[str, Callable[[Any], None]] = {
    "openrlhf.utils.distributed_util": _store_group,
    "deepspeed.comm.torch": _no_shared_memory_op,
    "openrlhf.utils.deepspeed.deepspeed": _cpu_optimizer,
    "openrlhf.utils": _cpu_strategy,  # the name that the command line imports
    "openrlhf.utils.utils": _float32_models,
}
