"""Items of reasoning-gym by number, the same in every process. It imports reasoning-gym."""

from __future__ import annotations

import json
import random
import re
import threading
from collections import OrderedDict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy

from gem_core.envs._rg_tables import GLOBAL_RANDOM, RESEEDED
from gem_core.errors import MissingDependencyError, unknown

try:
    import reasoning_gym
    from reasoning_gym.factory import DATASETS as DATASETS
except ImportError as _error:
    raise MissingDependencyError(
        "rg:* environments need reasoning-gym: pip install 'gem-core[rg]'."
    ) from _error

Item = dict[str, Any]

_TRIES = 50
_KEPT = 256
# A program of codeio with one of these gives other output at another time or in another process.
_CLOCK = re.compile(
    r"\btime\(|perf_counter|monotonic|\bnow\(|utcnow|today\(|localtime|strftime|uuid|urandom|secrets"
    r"|SystemRandom|default_rng\(\)|getpid|os\.environ|\bid\(|\bopen\(|\brequests\b|socket"
)


def find_version() -> str:
    """Return the version of reasoning-gym."""
    try:
        return version("reasoning-gym")
    except PackageNotFoundError:
        return "unknown"


def check_config(name: str, config: dict[str, Any]) -> None:
    """Check the difficulty options of a generator by making one with them.

    Raises:
        UnknownNameError: the generator has no such option.
        ValueError: the generator rejects a value.
    """
    from dataclasses import fields

    known = [f.name for f in fields(DATASETS[name][1]) if f.name not in ("seed", "size")]
    known += ["tasks"] * (name == "arc_1d")
    for option in config:
        if option not in known:
            listing = f"It takes: {', '.join(known)}."
            raise unknown(f"option of rg:{name}", option, known, listing)
    try:
        generator(name, config)
    except AssertionError as error:
        raise ValueError(f"rg:{name} rejects {config}: {error}") from error


def item(name: str, config: dict[str, Any], draw: int) -> Item:
    """Return item ``draw`` of a generator: ``question``, ``answer``, ``metadata``."""
    key = _key(name, config), draw
    with _lock:
        entry = _items.get(key)
    if entry is None:
        entry = _generate(name, config, draw)
        with _lock:
            _items[key] = entry
            while len(_items) > _KEPT:
                _items.popitem(last=False)
    return entry


def solution(entry: Item) -> str | None:
    """Return a right answer of an item; ``None`` if the generator provides none."""
    if entry["answer"] is not None:
        return str(entry["answer"])
    metadata = entry["metadata"]
    for key in ("example_correct_answer", "example_answer"):
        if key in metadata:
            return str(metadata[key])
    if "possible_answer" in metadata:
        return json.dumps(metadata["possible_answer"])
    return None


_lock = threading.Lock()
_datasets: dict[str, Any] = {}
_items: OrderedDict[tuple[str, int], Item] = OrderedDict()
_generating: dict[str, threading.Lock] = {}


def _key(name: str, config: dict[str, Any]) -> str:
    return json.dumps([name, config], sort_keys=True)


def generator(name: str, config: dict[str, Any]) -> Any:
    """Return the (cached) generator of reasoning-gym with a config."""
    key = _key(name, config)
    with _lock:
        dataset = _datasets.get(key)
        if dataset is None:
            options = dict(config)
            tasks = options.pop("tasks", None) if name == "arc_1d" else None
            dataset = reasoning_gym.create_dataset(name, seed=0, **options)
            if tasks is not None:
                dataset.task_names = _arc_tasks(tasks, dataset.task_names)
            if name == "word_ladder":
                dataset.size = 2**62  # it rejects indices from its size on
            if name == "codeio":
                dataset.repeatable = [e for e in dataset._jsonl_data if not _CLOCK.search(str(e))]
            _datasets[key] = dataset
            _generating[key] = threading.Lock()
    return dataset


def _arc_tasks(tasks: Any, known: list[str]) -> list[str]:
    """Return the chosen rules of ``arc_1d``; reasoning-gym has no option for them."""
    if not isinstance(tasks, list | tuple) or not tasks:
        raise ValueError(f"tasks must be a list of at least one rule of arc_1d, not {tasks!r}.")
    for task in tasks:
        if task not in known:
            raise unknown("rule of rg:arc_1d", task, known, f"There are: {', '.join(known)}.")
    return list(tasks)


def _generate(name: str, config: dict[str, Any], draw: int) -> Item:
    dataset = generator(name, config)
    with _generating[_key(name, config)]:
        if name in GLOBAL_RANDOM:  # only ever in a worker process
            random.seed(draw)
            numpy.random.seed(draw % 2**32)
        if name == "codeio":  # reasoning-gym keeps these on the class, for all configurations
            type(dataset)._jsonl_data = dataset.repeatable
        if name in RESEEDED:
            size = RESEEDED[name]
            dataset = reasoning_gym.create_dataset(name, seed=draw, size=size, **config)
            entry: Item = dataset[draw % size]
            return entry
        size = dataset.size
        for attempt in range(_TRIES):
            try:
                entry = dataset[draw + attempt]
            except IndexError:  # word_ladder found no path and reduced its size
                dataset.size = size
                continue
            return entry
    raise ValueError(f"rg:{name} generated nothing near item {draw} with {config}.")
