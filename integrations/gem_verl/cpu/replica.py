"""verl's two ends of a rollout engine for `gem_verl.cpu.engine`: launcher and weight sender."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica

from gem_verl.cpu.engine import HFServer


def _name(replica: int) -> str:
    return f"gem_hf_server_{replica}"


class HFReplica(RolloutReplica):
    """Starts the server actor of one replica."""

    async def launch_servers(self) -> None:
        """Start one named actor; it shares the machine's CPUs."""
        name = _name(self.replica_rank)
        actor = ray.remote(HFServer).options(name=name, max_concurrency=1024, num_cpus=0)
        server = actor.remote(self.model_config.path, self.config.free_cache_engine)
        self.servers = [server]
        self._server_handle = server
        self._server_address = name


class HFWeights(BaseRollout):
    """The worker's side: sends the actor's weights to its replica."""

    def __init__(
        self, config: Any, model_config: Any, device_mesh: Any, *_: Any, **__: Any
    ) -> None:
        super().__init__(config, model_config, device_mesh)
        size = self.config.tensor_model_parallel_size * self.config.data_parallel_size
        rank = int(os.environ.get("RANK", "0"))
        self.replica = rank // size
        self.leads = rank % size == 0

    async def resume(self, tags: list[str]) -> None:
        """Have the replica take the memory of ``tags``."""
        if self.leads:
            await ray.get_actor(_name(self.replica)).wake_up.remote(tags)

    async def release(self) -> None: ...

    async def update_weights(
        self,
        weights: Iterable[tuple[str, torch.Tensor]],
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **_: Any,
    ) -> None:
        """Copy all weights (every rank takes part in gathering them) and send them from one."""
        if wire_format != "named_tensors":
            raise ValueError(f"Only named tensors can be sent, not {wire_format!r}.")
        state = {name: tensor.detach().to("cpu", torch.float32).clone() for name, tensor in weights}
        if self.leads:
            await ray.get_actor(_name(self.replica)).load_weights.remote(state, global_steps)
