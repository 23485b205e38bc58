"""What RL2 0.0.2 leaves undone where it divides a model over ranks (``tp_size``).

It divides the linear layers and the embedding. The other weights of a layer are whole on every
rank: Qwen3's norms of queries and keys, of which only the first rank has the values, and each rank
the gradient of its own heads. An embedding that is also the head is divided in two ways, so that
it becomes two weights. RL2 clips by the norm of one rank's gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any


def repair() -> None:
    """Let every rank have all weights that RL2 does not divide, and tied ones stay one weight."""
    from RL2.utils import tensor_parallelism
    from RL2.workers import base

    divide_layer = tensor_parallelism.prepare_llama_tp_layer
    divide_model = base.prepare_tp_model
    divide = tensor_parallelism.parallelize_module

    @functools.wraps(divide_layer)
    def whole_layer(layer: Any, device_mesh: Any) -> None:
        divide_layer(layer, device_mesh)
        _send_whole_weights(layer, device_mesh)

    @functools.wraps(divide)
    def by_vocabulary(module: Any, device_mesh: Any, parallelize_plan: Any) -> Any:
        if _is_tied(module) and _EMBEDDING in parallelize_plan:
            parallelize_plan = {**parallelize_plan, _EMBEDDING: _by_vocabulary()}
        return divide(module, device_mesh, parallelize_plan)

    @functools.wraps(divide_model)
    def tied_again(model: Any, device_mesh: Any) -> None:
        divide_model(model, device_mesh)
        if _is_tied(model):
            _tie(model.lm_head, model.model.embed_tokens)

    tensor_parallelism.prepare_llama_tp_layer = whole_layer
    tensor_parallelism.parallelize_module = by_vocabulary
    base.prepare_tp_model = tied_again


_EMBEDDING = "model.embed_tokens"


def _is_tied(module: Any) -> bool:
    """Whether the module is a model whose head is its embedding."""
    return hasattr(module, "lm_head") and bool(module.config.tie_word_embeddings)


def _tie(head: Any, embedding: Any) -> None:
    """Let the head use the embedding's weight, and have none of its own.

    FSDP does not notice that two modules share a divided weight: it would train two.
    """
    del head.weight

    def borrow(module: Any, _: Any) -> None:
        module.__dict__["weight"] = embedding.weight

    def give_back(module: Any, _: Any, __: Any) -> None:
        del module.__dict__["weight"]

    head.register_forward_pre_hook(borrow)
    head.register_forward_hook(give_back)


def _by_vocabulary() -> Any:
    """Return the division of an embedding that is also that of a head; RL2 takes the other one."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import RowwiseParallel

    return RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))


def _send_whole_weights(layer: Any, device_mesh: Any) -> None:
    """Give every rank the first one's values of the weights of a layer that are not divided."""
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor

    for weight in layer.parameters():
        if not isinstance(weight, DTensor):
            weight.data = weight.data.to(torch.cuda.current_device())
            dist.broadcast(weight.data, group=device_mesh.get_group(), group_src=0)


def clip_grad_norm_(worker: Any, max_norm: float) -> Any:
    """Sum what the ranks have of one gradient, and clip all gradients by their norm.

    Args:
        worker: RL2's actor or critic, divided over ranks.
        max_norm: the largest norm.

    Returns:
        The norm of the whole gradient before it was clipped, a tensor of one number.
    """
    import torch
    import torch.distributed as dist

    divided = worker.model_device_mesh["tp"].get_group()
    squares = torch.zeros(2, device=torch.cuda.current_device())
    for gradient, placement in _gradients(worker.model):
        if placement is None:  # of its own heads only
            dist.all_reduce(gradient, group=divided)
        whole = placement is None or all(part.is_replicate() for part in placement.placements)
        squares[int(whole)] += gradient.float().square().sum()
    dist.all_reduce(squares[:1], group=divided)
    dist.all_reduce(squares, group=worker.model_device_mesh["fsdp"].get_group())
    norm = squares.sum().sqrt()
    scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for handle in worker.model._all_handles:
        if handle.flat_param.grad is not None:
            handle.flat_param.grad.mul_(scale)
    return norm


def _gradients(model: Any) -> Iterator[tuple[Any, Any]]:
    """Yield this rank's part of each weight's gradient, and how the weight is divided.

    The latter is torch's ``DTensorSpec``; ``None`` for a weight that RL2 did not divide.
    """
    for handle in model._all_handles:
        flat = handle.flat_param
        if flat.grad is None:
            continue
        for part, placement in zip(flat._shard_param_infos, flat._param_extensions, strict=True):
            if part.in_shard:
                yield flat.grad.narrow(0, part.offset_in_shard, part.numel_in_shard), placement
