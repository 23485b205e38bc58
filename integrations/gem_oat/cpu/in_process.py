"""Oat's learner and one actor in this process: no launcher, no shared memory, no broadcast.

Importing this installs the CPU backend.
"""

from __future__ import annotations

import atexit
from concurrent.futures import Future
from typing import Any

import torch

from gem_core.training.allocator import keep_freed_memory
from gem_oat.cpu.shims import install

install()

import oat.actors.base  # noqa: E402
import oat.learners.base  # noqa: E402
from oat.utils.launcher import get_free_port  # noqa: E402

from gem_oat.learner import GemLearner  # noqa: E402
from gem_oat.rollout import GemActor  # noqa: E402


def launch(args: Any, learner_cls: type = GemLearner, actor_cls: type = GemActor) -> None:
    """Run Oat's loop here, instead of Oat's ``get_program`` and launchpad's ``launch``.

    Args:
        args: Oat's arguments, with the adapter's ``gem``.
        learner_cls: as for ``get_program``.
        actor_cls: as for ``get_program``.
    """
    keep_freed_memory()
    learner = type(learner_cls.__name__, (InMemoryLearner, learner_cls), {})
    actor = type(actor_cls.__name__, (InMemoryActor, actor_cls), {})
    make(args, learner, actor).run()


class MemoryClient:
    """Hands objects over by reference, in place of Oat's plasma client."""

    kept: dict[bytes, Any] = {}  # noqa: RUF012

    def __init__(self, server: Any) -> None:
        pass

    def serialize_ipc(self, data: Any) -> bytes:
        """Keep ``data``; returns its handle."""
        handle = str(id(data)).encode()
        self.kept[handle] = data
        return handle

    def deserialize_ipc(self, handle: bytes) -> Any:
        """Give back what was kept."""
        return self.kept.pop(handle)


class LocalActor:
    """What a launchpad handle is to the learner, over an object in this process.

    Calls for futures are made at once: loading two transformers models in two threads breaks.
    """

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.actor, name)

    @property
    def futures(self) -> _Futures:
        """The same methods, returning futures."""
        return _Futures(self.actor)


class _Futures:
    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_result(getattr(self.actor, name)(*args, **kwargs))
            return future

        return call


class InMemoryActor:
    """Mixed into an actor: it needs no group to receive weights."""

    llm: Any

    def init_process_group(self, *args: Any, **kwargs: Any) -> None:
        """There is no other process."""

    def load(self, weights: Any) -> None:
        """Copy ``(name, parameter)`` pairs into the engine's model."""
        self.llm.worker.model_runner.model.load_weights(list(weights))


class InMemoryLearner:
    """Mixed into a learner: it hands weights over in memory."""

    actors: list[Any]
    args: Any
    model: Any

    def _broadcast_to_vllm(self) -> None:
        with torch.no_grad():
            for actor in self.actors:
                if self.args.enable_prefix_caching:
                    actor.reset_prefix_cache()  # as Oat's own does
                actor.load(self.model.model.module.named_parameters())


class InProcessActor(InMemoryActor, GemActor):
    """The adapter's actor, in this process."""


class InProcessLearner(InMemoryLearner, GemLearner):
    """The adapter's learner, in this process."""


def make(
    args: Any, learner: Any = InProcessLearner, actor: Any = InProcessActor, *, alone: bool = False
) -> Any:
    """A learner with its actor, or ``alone``; ``.run()`` is Oat's loop.

    Args:
        args: Oat's arguments, with the adapter's ``gem``.
        learner: a class of learners with `InMemoryLearner`.
        actor: a class of actors with `InMemoryActor`.
        alone: without an actor.
    """
    oat.learners.base.init_process_group = lambda **_: None
    oat.learners.base.PlasmaShmClient = MemoryClient
    oat.actors.base.PlasmaShmClient = MemoryClient
    atexit.unregister(_leave_group)
    atexit.register(_leave_group)
    args.local_rank = 0
    args.learner_gpus_per_group = 1
    engine = {
        "model": args.pretrain,
        "dtype": "bfloat16" if args.bf16 else "float32",
        "max_model_len": args.max_model_len,
        "enable_prefix_caching": args.enable_prefix_caching,
    }
    actors = [] if alone else [LocalActor(actor(None, engine, args))]
    return learner(
        world_size=1,
        rank=0,
        local_rank=0,
        master_addr="127.0.0.1",
        master_port=get_free_port(),
        is_master=True,
        args=args,
        actors=actors,
        ipc_server=None,
    )


def _leave_group() -> None:
    """At exit only: DeepSpeed keeps references to the first group, so runs here share it."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
