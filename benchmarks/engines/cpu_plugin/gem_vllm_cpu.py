"""A vLLM plugin for tests: what a CPU build of vLLM lacks for training.

vLLM loads the entry points ``vllm.general_plugins`` in each of its processes, so nothing of it has
to be patched from outside. It refuses to load where there is a GPU.

Two changes:

* Linear layers keep their weights as they are. vLLM repacks them for oneDNN, and cannot load others
  into them afterwards.
* Weights travel to a server through a ``TCPStore`` instead of NCCL, in vLLM's own protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import torch

PATIENCE = timedelta(seconds=120)


class StoreGroup:
    """What weight transfer uses of vLLM's NCCL communicator: broadcasts in a fixed order.

    Args:
        host: address of the rank that sends.
        port: of its store.
        rank: of this process; 0 sends.
        world_size: number of ranks.
    """

    def __init__(self, host: str, port: int, rank: int, world_size: int) -> None:
        first = rank == 0
        self.rank = rank
        self.number = 0
        self.store = torch.distributed.TCPStore(
            host, port, world_size, is_master=first, timeout=PATIENCE
        )
        self.group = self  # TRL closes `group.store` and `group.socket`
        self.socket = None

    def broadcast(self, tensor: torch.Tensor, src: int = 0, stream: Any = None) -> None:
        """Send ``tensor``, or receive into it."""
        key = f"tensor{self.number}"
        self.number += 1
        if self.rank == src:
            data = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
            self.store.set(key, data.numpy().tobytes())
            return
        data = torch.frombuffer(bytearray(self.store.get(key)), dtype=torch.uint8)
        tensor.copy_(data.view(tensor.dtype).view(tensor.shape))


def send_all(
    iterator: Iterable[Any],
    group: StoreGroup,
    src: int,
    post_iter_func: Callable[..., Any],
    **_: Any,
) -> None:
    """Send tensors one by one, in place of vLLM's packed broadcast."""
    for item in iterator:
        group.broadcast(post_iter_func(item), src=src)


def receive_all(
    iterator: Iterable[Any],
    group: StoreGroup,
    src: int,
    post_unpack_func: Callable[..., Any],
    **_: Any,
) -> None:
    """Receive what `send_all` sends."""
    for name, (shape, dtype) in iterator:
        tensor = torch.empty(shape, dtype=dtype)
        group.broadcast(tensor, src=src)
        post_unpack_func([(name, tensor)])


def keep_weights() -> None:
    """Have linear layers multiply by the weights as they are."""
    from vllm.model_executor.layers import utils

    def dispatch(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = dispatch


def transfer_by_store() -> None:
    """Have a server's workers join a `StoreGroup`."""
    from vllm.distributed.weight_transfer import nccl_common, nccl_engine

    def join(info: Any, parallel: Any) -> StoreGroup:
        worker = parallel.data_parallel_index * parallel.world_size + parallel.rank
        return StoreGroup(
            info.master_address, info.master_port, worker + info.rank_offset, info.world_size
        )

    nccl_common.worker_init_process_group = join
    nccl_engine.worker_init_process_group = join
    nccl_engine.packed_nccl_broadcast_consumer = receive_all
    torch.accelerator.synchronize = lambda *_, **__: None


def trainer_side(client: Any) -> None:
    """Have TRL's client send to a server through a `StoreGroup`.

    Args:
        client: the module ``trl.generation.vllm_client``.
    """
    join = client.VLLMClient.init_communicator
    # Its client refuses a device that is not CUDA before it opens the group.
    client.VLLMClient.init_communicator = lambda self, device=0: join(self, 0)
    torch.cuda.set_device = lambda *_: None
    client.open_trainer_endpoint = lambda info: StoreGroup(
        info["master_address"], info["master_port"], 0, info["world_size"]
    )
    client.packed_nccl_broadcast_producer = send_all
    client.get_ip = lambda: "127.0.0.1"


def register() -> None:
    """Change this process; the entry point."""
    if torch.cuda.is_available():
        raise RuntimeError("gem_vllm_cpu changes a CPU build of vLLM; here is a GPU.")
    keep_weights()
    transfer_by_store()
