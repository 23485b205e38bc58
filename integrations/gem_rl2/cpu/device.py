"""What in torch and transformers insists on CUDA, turned to the CPU for this process."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.device_mesh as device_mesh
import torch.distributed.fsdp._init_utils as fsdp_init
import transformers.modeling_flash_attention_utils as flash_utils
import transformers.modeling_utils as modeling


def patch() -> None:
    """Make RL2's CUDA calls harmless. Tested with torch 2.13 and transformers 4.56."""
    _cuda()
    _distributed()
    _transformers()
    if find_spec("RL2.utils.checkpointing"):
        _full_state()


def _cuda() -> None:
    cuda: Any = torch.cuda
    cuda.current_device = lambda: torch.device("cpu")
    for name in ("set_device", "synchronize", "empty_cache"):
        setattr(cuda, name, lambda *args, **kwargs: None)


def _distributed() -> None:
    init_group = dist.init_process_group
    init_mesh = device_mesh.init_device_mesh
    dist.init_process_group = lambda backend=None, *a, **k: init_group("gloo", *a, **k)
    device_mesh.init_device_mesh = lambda device_type, *a, **k: init_mesh("cpu", *a, **k)
    dist.batch_isend_irecv = _self_exchange()
    # FSDP synchronises initial weights over any device; only this check wants a GPU.
    fsdp_init._check_module_states_for_sync_module_states = lambda *a, **k: None


def _self_exchange() -> Any:
    """NCCL lets a rank send to itself, which the newer RL2 does with one rank; Gloo does not."""
    original = dist.batch_isend_irecv

    def exchange(ops: list[Any]) -> list[Any]:
        rank = dist.get_rank()
        to_itself = [op for op in ops if op.peer == rank]
        sends = [op for op in to_itself if op.op is dist.isend]
        receives = [op for op in to_itself if op.op is not dist.isend]
        for send, receive in zip(sends, receives, strict=True):
            receive.tensor.copy_(send.tensor)
        others = [op for op in ops if op.peer != rank]
        return original(others) if others else []

    return exchange


def _transformers() -> None:
    model: Any = modeling.PreTrainedModel
    model._flash_attn_2_can_dispatch = lambda self, *a, **k: True
    for module in (flash_utils, modeling):
        if hasattr(module, "lazy_import_flash_attention"):
            module.lazy_import_flash_attention = lambda *a, **k: (None,) * 4


def _full_state() -> None:
    """FSDP cannot unshard on a CPU, which 0.0.2 asks of it to save the model.

    Each tensor is gathered on its own instead, as RL2 does to update its engines.
    """
    from RL2.utils import checkpointing

    sharded = checkpointing.get_state_dict

    def gathered(worker: Any, full_state_dict: bool = False) -> dict[str, Any]:
        state: dict[str, Any] = sharded(worker)
        if not full_state_dict:
            return state
        return {name: _whole(tensor) for name, tensor in state.items()}

    checkpointing.get_state_dict = gathered


def _whole(tensor: Any) -> Any:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
