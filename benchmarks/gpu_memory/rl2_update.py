"""RL2's update (`RL2.workers.actor.Actor.update`): its loss, FSDP1, clipping and optimizer.

Not RL2's: the model has no data; sequences are not exchanged between GPUs, as each has whole ones;
flash-attn's kernels make what they make on a GPU, without computing it; numbers of tokens are not
counted and metrics not logged, as that needs data.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from cases import Case, join_group, model_folder, result, tensors_without_data
from live import LiveBytes

from gem_rl2.cpu import attention, enable


def _forward_kernel(q: torch.Tensor, *rest: Any, **keywords: Any) -> tuple[Any, ...]:
    lse = q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)
    return torch.empty_like(q), lse, None, None


attention._flash_attn_varlen_forward = _forward_kernel
attention._flash_attn_varlen_backward = lambda *arguments, **keywords: None


def measure(case: Case) -> dict[str, Any]:
    """Return the peak of the second update, whose gradients RL2 has dropped before."""
    join_group(case.world)
    enable()
    import RL2.workers.actor as native
    from torch.distributed.fsdp import _init_utils

    from gem_rl2.config import native_config
    from gem_rl2.worker import Actor

    native.count_total = lambda batch, names, mesh: (1.0, 1.0)
    native.gather_and_reduce = lambda values, mesh: 0.0
    native.rank0_log = lambda *arguments: None
    _init_utils._sync_module_params_and_buffers = lambda *arguments: None
    recipe = case.recipe()
    actor = Actor.__new__(Actor)
    actor.config = native_config(recipe, {}).actor
    actor.train = True
    actor.prepare_device_mesh()
    actor.scheduler = SimpleNamespace(step=lambda: None, get_last_lr=lambda: [0.0])
    actor.updates = SimpleNamespace(means=SimpleNamespace(end_update=lambda: None))
    with tensors_without_data(), LiveBytes() as live:
        _build(actor, model_folder(case.model))
        live.label("weights", actor.model.parameters())
        _prepare_attention(actor, case.tokens)
        update = partial(_plain(native.Actor.update), actor)
        actor.forward = partial(_plain(native.Actor.forward), actor)
        batch = _row(case.tokens)
        update([[batch]], 0)
        states = actor.optimizer.state.values()
        live.label("optimizer", (tensor for state in states for tensor in state.values()))
        live.reset()
        update([[batch, batch]], 1)
        return result(live)


def _plain(method: Any) -> Any:
    """Return a method without what RL2 wraps around it: sending data, offloading, times."""
    while hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    return method


def _build(actor: Any, folder: Any) -> None:
    """Make the model, its shards and the optimizer as RL2 does."""
    from transformers import AutoConfig, AutoModelForCausalLM

    actor.model = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(folder),
        torch_dtype=torch.float32,
        attn_implementation="flash_attention_2",
    )
    actor.prepare_model_optimizer()
    for group in actor.optimizer.param_groups:
        group["foreach"] = True  # what torch takes on a GPU


def _prepare_attention(actor: Any, tokens: int) -> None:
    """Say that the row is one sequence."""
    from RL2.utils.sequence_parallelism import DATA_PARAMS

    ends = torch.zeros(2, dtype=torch.int32)
    DATA_PARAMS.update(
        group=actor.device_mesh["sp"].get_group(),
        cu_seqlens_q=ends,
        cu_seqlens_k=ends,
        max_seqlen_q=tokens,
        max_seqlen_k=tokens,
        local_k_slice=slice(0, tokens),
    )


def _row(tokens: int) -> dict[str, torch.Tensor]:
    """What RL2's loss gets of one row."""
    whole = {name: torch.zeros(1, tokens, dtype=torch.long) for name in ("states", "actions")}
    real = {name: torch.zeros(1, tokens) for name in ("advantages", "old_logps", "llm_logps")}
    return {
        **whole,
        **real,
        "position_ids": torch.zeros(1, tokens, dtype=torch.long),
        "action_mask": torch.ones(1, tokens, dtype=torch.long),
        "eos_mask": torch.ones(1, tokens, dtype=torch.long),
    }
