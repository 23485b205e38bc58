"""Oat's learner and one actor in this process: no launcher, no shared memory, no broadcast.

Importing this installs the harness.
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

    Futures are made at once: loading two transformers models in two threads breaks.
    """

    def __init__(self, actor: GemActor) -> None:
        self.actor = actor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.actor, name)

    @property
    def futures(self) -> _Done:
        """The same methods, returning futures."""
        return _Done(self.actor)


class _Done:
    def __init__(self, actor: GemActor) -> None:
        self.actor = actor

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_result(getattr(self.actor, name)(*args, **kwargs))
            return future

        return call


class InProcessActor(GemActor):
    """The adapter's actor, which needs no group to receive weights."""

    def init_process_group(self, *args: Any, **kwargs: Any) -> None:
        """There is no other process."""

    def load(self, weights: Any) -> None:
        """Copy ``(name, parameter)`` pairs into the engine's model."""
        self.llm.worker.model_runner.model.load_weights(list(weights))


class InProcessLearner(GemLearner):
    """The adapter's learner, which hands weights over in memory."""

    def _broadcast_to_vllm(self) -> None:
        with torch.no_grad():
            for actor in self.actors:
                actor.load(self.model.model.module.named_parameters())


def make(
    args: Any, learner: type[GemLearner] = InProcessLearner, *, alone: bool = False
) -> GemLearner:
    """A learner with its actor, or ``alone``; ``.run()`` is Oat's loop."""
    oat.learners.base.init_process_group = lambda **_: None
    atexit.unregister(_leave)
    atexit.register(_leave)
    oat.learners.base.PlasmaShmClient = oat.actors.base.PlasmaShmClient = MemoryClient
    args.local_rank, args.learner_gpus_per_group = 0, 1
    engine = {
        "model": args.pretrain,
        "dtype": "bfloat16" if args.bf16 else "float32",
        "max_model_len": args.max_model_len,
    }
    actor = LocalActor(InProcessActor(None, engine, args))
    actors = [] if alone else [actor]
    return learner(1, 0, 0, "127.0.0.1", get_free_port(), True, args, actors, None)


def _leave() -> None:
    """At exit only: DeepSpeed keeps references to the first group, so runs here share it."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def launch(args: Any) -> None:
    """Run Oat's loop here."""
    keep_freed_memory()
    make(args).run()
