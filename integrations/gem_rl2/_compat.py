"""The RL2 that this adapter was written against, and what has to be repaired in it.

RL2 has two APIs, and the version number of both is 0.0.2: the release on the package index, and the
newer source, whose environments are a coroutine ``generate``. They are told apart by the module
that the newer one talks to its engine with. Everything below can go when 0.0.2 is not supported
any more, unless its docstring says otherwise.
"""

from __future__ import annotations

import functools
import multiprocessing
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gem_core.runs.trainers import require
from gem_rl2 import TRAINER, tensor_parallel

require(TRAINER)

NEWER = find_spec("RL2.utils.communication") is not None
"""True where the newer API (source) is installed, not the released 0.0.2."""
MODEL = "latest/actor" if NEWER else "latest"
"""Where in the checkpoints RL2 leaves the trained model."""


def patch_rl2(dtype: str) -> None:
    """Repair 0.0.2 in this process.

    * FSDP computes in ``dtype``; 0.0.2 hard-codes bfloat16.
    * A copy of the weights on every GPU sums the gradients, see `_fsdp`.
    * A divided model has all its weights and one gradient, see `gem_rl2.tensor_parallel`.
    * Checkpoints hold the optimizer, see `_worker_state`.
    * A model of text alone is wrapped layer by layer, see `_own_layers`.
    * Sliding attention sees as many tokens as the model says, see `_exact_window`.
    * Averages over sequences work; 0.0.2 asks for the epsilon of a mask of booleans.
    """
    import torch
    from RL2.utils import checkpointing, data_parallelism, sequence_parallelism
    from RL2.utils.functions import aggregate_values
    from RL2.utils.offloading import model_offloading_manager
    from RL2.workers import actor, base, critic
    from torch.distributed.fsdp import MixedPrecision

    precision = getattr(torch, dtype)
    policy = MixedPrecision(param_dtype=precision, reduce_dtype=precision, buffer_dtype=precision)
    data_parallelism.MixedPrecision = lambda **_: policy
    data_parallelism.FSDP = _fsdp
    base.prepare_dp_model = _own_layers(base.prepare_dp_model)
    attend = sequence_parallelism.llama3_flash_attn_varlen_func
    sequence_parallelism.llama3_flash_attn_varlen_func = _exact_window(attend)
    tensor_parallel.repair()
    checkpointing.get_worker_ckpt = model_offloading_manager(_worker_state)
    checkpointing.load_worker_ckpt = model_offloading_manager(_load_worker_state)

    @functools.wraps(aggregate_values)
    def of_numbers(tensors: Any, *rest: Any) -> Any:
        return aggregate_values(tuple(tensor.float() for tensor in tensors), *rest)

    actor.aggregate_values = of_numbers
    critic.aggregate_values = of_numbers


def _own_layers(prepare: Any) -> Any:
    """Let RL2 look up only those classes of layers that a model has.

    Gemma 3's list also names those of its vision model, which a text model lacks: 0.0.2 then gives
    torch None for a class.
    """

    @functools.wraps(prepare)
    def of_model(model: Any, device_mesh: Any) -> Any:
        present = {type(module).__name__ for module in model.modules()}
        model._no_split_modules = [n for n in model._no_split_modules if n in present]
        return prepare(model, device_mesh)

    return of_model


def _exact_window(attend: Any) -> Any:
    """Make a window of ``n`` tokens one of the query's own and ``n - 1`` before it.

    So it is in transformers and in engines; 0.0.2 asks flash-attn for ``n`` before it.
    """

    @functools.wraps(attend)
    def of_size(*tensors: Any, window_size: tuple[int, int] = (-1, -1), **options: Any) -> Any:
        window = tuple(size - 1 if size > 0 else size for size in window_size)
        return attend(*tensors, window_size=window, **options)

    return of_size


def _fsdp(model: Any, *, device_mesh: Any, **options: Any) -> Any:
    """Return the model in torch's FSDP.

    With groups of one rank (``ddp_size`` = all ranks), torch stops sharding and then sums gradients
    over that rank only; the copies are told to it as what they are.
    """
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    if device_mesh["fsdp"].size() == 1 and device_mesh["ddp"].size() > 1:
        device_mesh = device_mesh["ddp"]
        options["sharding_strategy"] = ShardingStrategy.NO_SHARD
    return FullyShardedDataParallel(model, device_mesh=device_mesh, **options)


def _worker_state(worker: Any) -> dict[str, Any]:
    """A worker's checkpoint.

    0.0.2 saves ``optimizer.state_dict()``, of which torch keeps one rank's shards, and loads into
    the state of a fresh optimizer, which has no moments to be filled: a resumed run would start
    with Adam at zero.
    """
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    from torch.distributed.checkpoint.state_dict import get_model_state_dict as get_model

    options = StateDictOptions(cpu_offload=True)
    scheduler = worker.scheduler.state_dict()
    if _has_copies(worker):
        return {
            "model": get_model(worker.model, options=options),
            **_own_moments(worker),
            "scheduler": scheduler,
        }
    model, optimizer = get_state_dict(worker.model, worker.optimizer, options=options)
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def _has_copies(worker: Any) -> bool:
    """Whether not all ranks are in one group of shards (``ddp_size`` or ``tp_size`` above 1).

    torch gathers FSDP's optimizer states from global rank 0, which is in the first group only.
    """
    return bool(worker.config.ddp_size * worker.config.tp_size > 1)


def _own_moments(worker: Any) -> dict[str, Any]:
    """Each rank's part of the optimizer under a key of its own, with moments to be filled.

    Such a checkpoint is resumed on the same number of ranks.
    """
    import torch.distributed as dist

    if not worker.optimizer.state:
        _make_moments(worker.optimizer)
    return {f"optimizer of rank {dist.get_rank()}": worker.optimizer.state_dict()}


def _make_moments(optimizer: Any) -> None:
    """Let AdamW make its moments, all zero, without a change of the weights."""
    import torch

    groups = optimizer.param_groups
    rates = [group["lr"] for group in groups]
    for group in groups:
        group["lr"] = 0.0
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate
    for state in optimizer.state.values():
        state["step"].zero_()


def _load_worker_state(worker: Any, state: dict[str, Any]) -> None:
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_state_dict

    if _has_copies(worker):
        set_model_state_dict(worker.model, state["model"])
        worker.optimizer.load_state_dict(state[f"optimizer of rank {dist.get_rank()}"])
    else:
        set_state_dict(
            worker.model,
            worker.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
    worker.scheduler.load_state_dict(state["scheduler"])


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Delete checkpoints of either API that a kill left half written, and all but the newest.

    RL2 keeps every one, and continues at the newest even where its last file, torch's ``.metadata``
    (newer API: of its last part), was never written.
    """
    checkpoints = {int(path.name.removeprefix("step")): path for path in folder.glob("step*")}
    last = "trainer/.metadata" if NEWER else ".metadata"
    whole = sorted(step for step, path in checkpoints.items() if (path / last).exists())
    kept = whole[-max(keep, 1) :]
    for step in checkpoints.keys() - set(kept):
        shutil.rmtree(checkpoints[step])


def end_children() -> None:
    """Terminate the engine and router processes, for which 0.0.2 waits forever at its exit."""
    for process in multiprocessing.active_children():
        process.terminate()
        process.join(5)
        if process.is_alive():
            process.kill()
