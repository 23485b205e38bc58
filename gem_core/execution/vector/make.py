"""`make_vec`: many environments in this thread, in threads, or in workers, here or on Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

from gem_core.env.registration import make, spec
from gem_core.env.spec import EnvSpec
from gem_core.execution.vector.asynchronous import AsyncVectorEnv
from gem_core.execution.vector.env import Autoreset, VectorEnv
from gem_core.execution.vector.slots import (
    EnvSlot,
    ProcessSlot,
    Threads,
    ThreadSlot,
    worker_builder,
)
from gem_core.execution.vector.sync import SyncVectorEnv
from gem_core.execution.workers import WorkerPool
from gem_core.execution.workers.ray_process import RayProcess, join_cluster, leave_cluster

Backend: TypeAlias = Literal["sync", "thread", "process", "ray"]
"""Where environments are called, see docs/workers.md."""
MAX_THREADS = 256


def make_vec(
    ids: str | EnvSpec | Sequence[str | EnvSpec],
    num_envs: int | None = None,
    *,
    backend: Backend = "sync",
    weights: Sequence[float] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    autoreset: Autoreset = "next_step",
    workers: int | None = None,
    deadline_s: float = 60.0,
    address: str | None = None,
) -> VectorEnv:
    """Make many environments behind one `reset` and one `step`.

    The same seeds and actions give the same episodes in every backend.

    Args:
        ids: one id or spec, or several that are mixed.
        num_envs: number of environments; ``None``: one of each id.
        backend: ``"sync"``: one after another in the caller's thread, without deadlines;
            ``"thread"``: environments that may block in threads; ``"process"``: in worker
            processes, which may crash and use other CPUs; ``"ray"``: in such processes on the nodes
            of a Ray cluster (``pip install 'gem-core[ray]'``).
        weights: share of each id, relative to the others; equal shares without.
        kwargs: keyword arguments of every environment.
        autoreset: when an environment whose episode is over is reset, as in Gymnasium:
            ``"next_step"``: by the next step, whose action is not used; ``"same_step"``: at once,
            and ``info`` has ``final_obs`` and ``final_info``; ``"disabled"``: by the caller.
        workers: number of threads or processes; ``None``: as many threads as environments, up to
            256; as many processes as CPUs, up to 8.
        deadline_s: wall seconds of one call in a thread or process. A thread cannot be ended: it is
            given up, and its environment is made anew.
        address: of the Ray cluster (``"host:6379"``, ``"auto"``); ``None``: the one that this
            process belongs to, that of ``RAY_ADDRESS``, or a new one, which `close` ends.

    Raises:
        UnknownNameError: an id is not registered.
        ValueError: the numbers do not fit together, or an address is given without Ray.
        MissingDependencyError: Ray is not installed.
        GemError: there is no cluster at the address.

    Example:
        >>> with make_vec("game:GuessTheNumber-v0-easy", 4) as envs:
        ...     obs, infos = envs.reset(seed=7)
        ...     steps = envs.step(["guess"] * 4)
        >>> steps.rewards.shape
        (4,)
    """
    if backend not in get_args(Backend):
        raise ValueError(f"backend is one of {', '.join(get_args(Backend))}, not {backend!r}.")
    if address is not None and backend != "ray":
        raise ValueError(f"address is that of a Ray cluster: backend='ray', not {backend!r}.")
    chosen = [ids] if isinstance(ids, (str, EnvSpec)) else list(ids)
    specs = [spec(one) if isinstance(one, str) else one for one in chosen]
    mixed = mix(specs, len(specs) if num_envs is None else num_envs, weights)
    options = dict(kwargs or {})
    if backend == "sync":
        envs = [make(one, **options) for one in mixed]
        return SyncVectorEnv(envs, [one.id for one in mixed], autoreset)
    return _asynchronous(backend, mixed, options, autoreset, workers, deadline_s, address)


def _asynchronous(
    backend: Backend,
    specs: Sequence[EnvSpec],
    options: dict[str, Any],
    autoreset: Autoreset,
    workers: int | None,
    deadline_s: float,
    address: str | None,
) -> VectorEnv:
    """Return environments that are called in threads or in worker processes, see `make_vec`."""
    names = [one.id for one in specs]
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}.")
    if backend == "thread":
        slots, end = _thread_slots(specs, options, workers, deadline_s)
        return AsyncVectorEnv(slots, names, autoreset, end)
    pool, end = _new_pool(backend, workers, address)
    slots = _process_slots(pool, specs, options, deadline_s)
    return AsyncVectorEnv(slots, names, autoreset, end, pool.together)


def mix(
    specs: Sequence[EnvSpec], count: int, weights: Sequence[float] | None = None
) -> list[EnvSpec]:
    """Return ``count`` specs in the proportions of ``weights``, spread evenly.

    Each next one is that which is furthest behind its share, so that every beginning of the list is
    mixed, too.

    Raises:
        ValueError: there are no specs, or the weights do not fit them.
    """
    shares = [1.0] * len(specs) if weights is None else list(weights)
    if not specs or count < 1:
        raise ValueError("A vector needs at least one id and one environment.")
    if len(shares) != len(specs) or min(shares) < 0 or not sum(shares) > 0:
        raise ValueError(f"{len(specs)} ids need as many weights, none negative, one positive.")
    made = [0] * len(specs)
    mixed: list[EnvSpec] = []
    for number in range(1, count + 1):
        behind = [number * s / sum(shares) - n for s, n in zip(shares, made, strict=True)]
        position = behind.index(max(behind))
        made[position] += 1
        mixed.append(specs[position])
    return mixed


def _thread_slots(
    specs: Sequence[EnvSpec], options: dict[str, Any], workers: int | None, deadline_s: float
) -> tuple[list[EnvSlot], Callable[[], None]]:
    """Return a slot per environment and what ends their threads."""
    threads = Threads(workers or min(MAX_THREADS, len(specs)))
    builders = [partial(make, one, **options) for one in specs]
    return [ThreadSlot(build, threads, deadline_s) for build in builders], threads.close


def _new_pool(
    backend: Backend, workers: int | None, address: str | None
) -> tuple[WorkerPool, Callable[[], None]]:
    """Return worker processes, of this machine or of a Ray cluster, and what ends them."""
    if backend != "ray":
        pool = WorkerPool(workers)
        return pool, pool.close
    join_cluster(address)
    pool = WorkerPool(workers, new_process=RayProcess)

    def end() -> None:
        pool.close()
        leave_cluster()

    return pool, end


def _process_slots(
    pool: WorkerPool, specs: Sequence[EnvSpec], options: dict[str, Any], deadline_s: float
) -> list[EnvSlot]:
    """Return a slot per environment, in the workers of a pool."""
    builders = {id(one): worker_builder(one, options) for one in specs}
    return [ProcessSlot(pool, builders[id(one)], deadline_s) for one in specs]
