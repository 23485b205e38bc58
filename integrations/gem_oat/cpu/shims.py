"""What has to be patched so that Oat's learner and actor run on a CPU."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from typing import Any

import torch

from gem_core.errors import GemError
from gem_oat.values import real_parts

_CPU = torch.device("cpu")
_installed: list[bool] = []
_VLLM = ("vllm", "vllm.outputs", "vllm.lora", "vllm.lora.request")
_LAUNCHPAD = (
    "launchpad",
    "launchpad.nodes",
    "launchpad.nodes.python",
    "launchpad.nodes.python.local_multi_processing",
)
"""Modules that Oat imports, and that the stand-ins are put in place of."""


def install() -> None:
    """Patch this process, once; before Oat is imported.

    Raises:
        GemError: there is a GPU.
    """
    if torch.cuda.is_available():
        raise GemError(
            "Oat's CPU backend does not run beside a GPU: hide it (CUDA_VISIBLE_DEVICES=-1), or "
            "use it (hardware.device=gpu)."
        )
    if _installed:
        return
    _installed.append(True)
    _hide_cuda()
    _stand_in()
    _compile_nothing()


def _hide_cuda() -> None:
    """The CUDA calls that Oat makes unconditionally."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # Oat reads numbers
    cuda: Any = torch.cuda
    cuda.current_device = lambda: _CPU
    cuda.device_count = lambda: 1
    cuda.is_available = lambda: False  # in a build for CUDA it may ask the function above
    cuda.synchronize = lambda *_: None
    cuda.set_device = lambda *_: None  # not the same object: torch keeps a table of these functions
    empty = torch.empty

    def empty_on_cpu(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        # oat.utils.distributed.WorkerWrap.update_weight receives weights on "cuda".
        return empty(*args, device=_CPU if device == "cuda" else device, **kwargs)

    torch.empty = empty_on_cpu


def _stand_in() -> None:
    """Put the stand-ins where Oat imports the real modules from."""
    real = real_parts()
    if "vllm" in real:
        # Where triton is missing, vLLM 0.8 leaves a placeholder of it, which torch's compiler takes
        # for the real one if it is imported later.
        import torch._inductor.compile_fx  # noqa: F401
    else:
        from gem_oat.cpu import vllm_standin

        for name in _VLLM:
            sys.modules[name] = vllm_standin
    if "launchpad" not in real:
        from gem_oat.cpu import launchpad_standin

        launchpad_standin.prepare_nodes_by(install)
        for name in _LAUNCHPAD:
            sys.modules[name] = launchpad_standin


def _compile_nothing() -> None:
    """DeepSpeed without its compiled parts: torch's AdamW, no shared-memory operator."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    if "TORCH_EXTENSIONS_DIR" not in os.environ:
        # A killed build leaves a lock that every later run would wait for: a folder of our own.
        folder = tempfile.mkdtemp(prefix="gem-oat-extensions-")
        os.environ["TORCH_EXTENSIONS_DIR"] = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    import deepspeed  # noqa: F401

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    import oat.utils.deepspeed

    oat.utils.deepspeed.FusedAdam = torch.optim.AdamW
