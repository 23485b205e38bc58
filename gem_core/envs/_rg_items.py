"""Items of reasoning-gym by number, the same in every process; imports reasoning-gym."""

from __future__ import annotations

import ast
import json
import random
import re
import sys
import threading
from collections import OrderedDict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy

from gem_core.envs._rg_tables import (
    EVALS_ANSWER,
    GLOBAL_RANDOM,
    PARSES_ANSWER,
    RESEEDED,
    TOO_GENEROUS,
)
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
_TOKEN = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_FUNCTIONS = frozenset(
    [
        "pi",
        "exp",
        "log",
        "ln",
        "sqrt",
        "sin",
        "cos",
        "tan",
        "sec",
        "csc",
        "cot",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "Abs",
        "erf",
    ]
)
_ATTRIBUTE = re.compile(r"\.\s*[A-Za-z_]")
# A program of codeio with one of these gives another output tomorrow, or in another process.
_CLOCK = re.compile(
    r"\btime\(|perf_counter|monotonic|\bnow\(|utcnow|today\(|localtime|strftime|uuid|urandom|secrets"
    r"|SystemRandom|default_rng\(\)|getpid|os\.environ|\bid\(|\bopen\(|\brequests\b|socket"
)
_EXPRESSION = re.compile(r"[A-Za-z0-9_+\-*/^(). ,]*")


def installed_version() -> str:
    """Return the version of reasoning-gym."""
    try:
        return version("reasoning-gym")
    except PackageNotFoundError:
        return "unknown"


def check_config(name: str, config: dict[str, Any]) -> None:
    """Check the names and values of difficulty options by making a generator with them.

    Raises:
        UnknownNameError: The generator has no such option.
        ValueError: The generator refuses a value.
    """
    from dataclasses import fields

    known = [f.name for f in fields(DATASETS[name][1]) if f.name not in ("seed", "size")]
    for option in config:
        if option not in known:
            listing = f"It takes: {', '.join(known)}."
            raise unknown(f"option of rg:{name}", option, known, listing)
    try:
        _dataset(name, config)
    except AssertionError as error:
        raise ValueError(f"rg:{name} refuses {config}: {error}") from error


def item(name: str, config: dict[str, Any], draw: int) -> Item:
    """Return item ``draw`` of a generator: ``question``, ``answer``, ``metadata``."""
    key = _key(name, config), draw
    with _lock:
        found = _items.get(key)
    if found is None:
        found = _generate(name, config, draw)
        with _lock:
            _items[key] = found
            while len(_items) > _KEPT:
                _items.popitem(last=False)
    return found


def score(name: str, config: dict[str, Any], draw: int, answer: str, strict: bool) -> float:
    """Return the generator's own score of an answer, in [0, 1].

    ``strict`` also asks of ``TOO_GENEROUS`` generators what their question asks.
    Answers that a scorer would evaluate as code are first checked to be arithmetic.

    Raises:
        Exception: Whatever the scorer raises on an odd answer.
    """
    if name in PARSES_ANSWER and not harmless(answer):
        return 0.0
    if name in EVALS_ANSWER:
        # The scorer looks `eval` up in its own module first.
        vars(sys.modules[DATASETS[name][0].__module__])["eval"] = ast.literal_eval
    entry = item(name, config, draw)
    if strict and name in TOO_GENEROUS and not _answers_the_question(answer, entry):
        return 0.0
    dataset = _dataset(name, config)
    return min(1.0, max(0.0, float(dataset.score_answer(answer, entry))))


def _answers_the_question(answer: str, entry: Item) -> bool:
    numbers = entry["metadata"].get("numbers")
    if numbers is None:
        return answer.strip().lower() == str(entry["answer"]).lower()
    return sorted(map(int, re.findall(r"\d+", answer))) == sorted(numbers)


def solution(entry: Item) -> str | None:
    """Return a right answer, wherever the generator keeps it; ``None`` if it keeps none."""
    if entry["answer"] is not None:
        return str(entry["answer"])
    metadata = entry["metadata"]
    for key in ("example_correct_answer", "example_answer"):
        if key in metadata:
            return str(metadata[key])
    if "possible_answer" in metadata:
        return json.dumps(metadata["possible_answer"])
    return None


def harmless(answer: str) -> bool:
    """Return whether a text is an arithmetic expression over single letters and common functions.

    >>> harmless("2*x**2 + sin(x)"), harmless("open(x)"), harmless("x.y")
    (True, False, False)
    """
    if len(answer) > 2000 or not _EXPRESSION.fullmatch(answer) or _ATTRIBUTE.search(answer):
        return False
    return all(len(name) == 1 or name in _FUNCTIONS for name in _TOKEN.findall(answer))


_lock = threading.Lock()
_datasets: dict[str, Any] = {}
_items: OrderedDict[tuple[str, int], Item] = OrderedDict()
_generating: dict[str, threading.Lock] = {}


def _key(name: str, config: dict[str, Any]) -> str:
    return json.dumps([name, config], sort_keys=True)


def _dataset(name: str, config: dict[str, Any], seed: int = 0, **more: Any) -> Any:
    key = _key(name, config)
    with _lock:
        found = _datasets.get(key)
        if found is None:
            found = _datasets[key] = reasoning_gym.create_dataset(name, seed=0, **config)
            if name == "word_ladder":
                found.size = 2**62  # it refuses indices from its size on
            if name == "codeio":
                found.repeatable = [e for e in found._jsonl_data if not _CLOCK.search(str(e))]
            _generating[key] = threading.Lock()
    return found


def _generate(name: str, config: dict[str, Any], draw: int) -> Item:
    dataset = _dataset(name, config)
    with _generating[_key(name, config)]:
        if name in GLOBAL_RANDOM:  # only ever in a worker process
            random.seed(draw)
            numpy.random.seed(draw % 2**32)
        if name == "codeio":  # reasoning-gym keeps these on the class, whatever the config
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
            except IndexError:  # word_ladder found no path, and shrank
                dataset.size = size
                continue
            return entry
    raise ValueError(f"rg:{name} generated nothing near item {draw} with {config}.")
