"""Speed of the CPU engine per generated token, beside the five engines that it replaced.

    .venvs/trl/bin/python benchmarks/engine/run.py

The old engines are read from git (commit `BEFORE`) and run in this process, in turns with the new
one, so that noise of the machine affects all of them. All play whole episodes with the tiny model.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import transformers

from gem_core.episodes.data import Completion, Episode, FinishReason
from gem_core.episodes.rollout import MicroBatcher, Request, play_batch, play_many
from gem_core.policies.engine.asynchronous import AsyncEngine
from gem_core.policies.engine.engine import Engine, EngineRequest
from gem_core.results import markdown_table
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.tasks import MachineFactory
from gem_core.training.tiny import model_path

BEFORE = "5c8cc3f"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BASELINES = ("guess-the-number-easy", "tower-of-hanoi-easy")
EPISODES = (32, 128)
OLD_FILES = {
    "hf": "gem_core/policies/engine/policy.py",
    "verl": "integrations/gem_verl/cpu/engine.py",
    "oat": "integrations/gem_oat/cpu/vllm_standin.py",
}
WAITS = {"openrlhf": 0.004, "rl2": 0.002, "verl": 0.03}
"""Seconds for which an old asynchronous engine waited for more requests."""
Player = Callable[[list[Any]], list[Episode]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="(default: %(default)s)")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    cells = [
        {"baseline": baseline, "episodes": count, **measure(baseline, count, rounds)}
        for baseline in BASELINES
        for count in EPISODES
    ]
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    results = {"before": BEFORE, "rounds": rounds, **versions, "cells": cells}
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    write_page(results)
    good = all(cell["fastest / new"] >= 1 and cell["slowest / new"] >= 2 for cell in cells)
    return 0 if good else 1


def measure(baseline: str, count: int, rounds: int) -> dict[str, float]:
    """Return microseconds per generated token of each engine, medians over the rounds."""
    recipe = load_recipe(baseline, "tiny")
    folder = model_path(recipe)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).float().eval()
    factory = MachineFactory(recipe, transformers.AutoTokenizer.from_pretrained(folder))
    players = {**old_players(model, factory.stop_ids), **new_players(model, factory.stop_ids)}
    spent: dict[str, list[float]] = {name: [] for name in players}
    for number in range(rounds + 1):
        with torch.no_grad():
            model.model.norm.weight.mul_(1.0001)  # a training step: no cache is still valid
        for name, play in players.items():
            machines = [factory.train(number * count + k) for k in range(count)]
            began = time.perf_counter()
            episodes = play(machines)
            seconds = time.perf_counter() - began
            if number:  # the first round warms up
                spent[name].append(1e6 * seconds / sum(e.action_tokens for e in episodes))
    result = {name: round(median(times), 1) for name, times in spent.items()}
    old = [value for name, value in result.items() if not name.startswith("new")]
    new = max(value for name, value in result.items() if name.startswith("new"))
    result["fastest / new"] = round(min(old) / new, 2)
    result["slowest / new"] = round(max(old) / new, 2)
    return result


# -- the new engine -------------------------------------------------------------------------------


def new_players(model: Any, stop_ids: Sequence[int]) -> dict[str, Player]:
    """Return the engine for batches (TRL, Oat) and for an event loop (the others)."""
    stops = frozenset(stop_ids)
    batch, concurrent = Engine(model), AsyncEngine(Engine(model))

    def asked(request: Request) -> EngineRequest:
        return EngineRequest(request.prompt_ids, request.max_tokens, stops, seed=request.seed)

    class Batch:
        def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
            return batch.generate([asked(request) for request in requests])

    class Concurrent:
        async def complete(self, request: Request) -> Completion:
            return await concurrent.complete(asked(request))

    return {
        "new, batches": lambda machines: play_batch(machines, Batch()),
        "new, event loop": lambda machines: asyncio.run(play_many(machines, Concurrent())),
    }


# -- the old engines ------------------------------------------------------------------------------


def old_players(model: Any, stop_ids: Sequence[int]) -> dict[str, Player]:
    """Return the old engines, each driven as its adapter drove it."""
    old = {name: old_module(name, path) for name, path in OLD_FILES.items()}
    sampling = {"temperature": 1.0, "stop_token_ids": list(stop_ids)}
    policies = {
        "openrlhf": old["hf"].HFPolicy(model, stop_ids),
        "rl2": old["hf"].HFPolicy(model, stop_ids),
        "verl": old["verl"].HFPolicy(model, sampling, torch.Generator().manual_seed(0)),
    }
    players = {name: concurrently(policy, WAITS[name]) for name, policy in policies.items()}
    players["oat"] = lambda machines: play_batch(machines, OldOat(old["oat"], model, stop_ids))
    players["trl"] = lambda machines: play_batch(machines, OldTrl(model, stop_ids))
    return players


def old_module(name: str, path: str) -> ModuleType:
    """Run a file of the old commit as a module."""
    command = ["git", "show", f"{BEFORE}:{path}"]
    source = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    module = ModuleType(f"old_{name}")
    sys.modules[module.__name__] = module  # dataclasses look it up
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def concurrently(policy: Any, wait_s: float) -> Player:
    """Return a player whose requests are gathered, as three of the adapters did."""

    async def play(machines: list[Any]) -> list[Episode]:
        async with MicroBatcher(policy, max_wait_s=wait_s) as batcher:
            return await play_many(machines, batcher)

    return lambda machines: asyncio.run(play(machines))


class OldOat:
    """The stand-in of vLLM in Oat's adapter."""

    def __init__(self, module: Any, model: Any, stop_ids: Sequence[int]) -> None:
        self.engine = module.LLM.__new__(module.LLM)
        self.engine.model = model
        self.engine.tokenizer = SimpleNamespace(decode=lambda *_, **__: "")
        self.parameters = lambda request: module.SamplingParams(
            stop_token_ids=list(stop_ids), max_tokens=request.max_tokens, seed=request.seed
        )

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        prompts = [request.prompt_ids for request in requests]
        outputs = self.engine.generate(prompts, [self.parameters(r) for r in requests])
        answers = [output.outputs[0] for output in outputs]
        return [Completion(list(a.token_ids), None, FinishReason(a.finish_reason)) for a in answers]


class OldTrl:
    """transformers' generate, as ``GRPOTrainer._generate_single_turn`` calls it."""

    def __init__(self, model: Any, stop_ids: Sequence[int]) -> None:
        self.model = model
        self.stop_ids = set(stop_ids)

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        width = max(len(request.prompt_ids) for request in requests)
        pads = [width - len(request.prompt_ids) for request in requests]
        ids = [[0] * pad + r.prompt_ids for pad, r in zip(pads, requests, strict=True)]
        mask = [[0] * pad + [1] * (width - pad) for pad in pads]
        config = transformers.GenerationConfig(
            max_new_tokens=max(request.max_tokens for request in requests),
            do_sample=True,
            top_k=0,
            pad_token_id=0,
            eos_token_id=sorted(self.stop_ids),
        )
        with torch.no_grad():
            whole = self.model.generate(
                input_ids=torch.tensor(ids),
                attention_mask=torch.tensor(mask),
                generation_config=config,
            )
        return [self._cut(*row) for row in zip(whole[:, width:].tolist(), requests, strict=True)]

    def _cut(self, ids: list[int], request: Request) -> Completion:
        stops = [place for place, token in enumerate(ids, start=1) if token in self.stop_ids]
        end = min([request.max_tokens, len(ids), *stops[:1]])
        stopped = ids[end - 1] in self.stop_ids
        return Completion(ids[:end], None, FinishReason.STOP if stopped else FinishReason.LENGTH)


# -- the page -------------------------------------------------------------------------------------


def write_page(results: dict[str, Any]) -> None:
    """Write README.md from the results."""
    names = [name for name in results["cells"][0] if name not in ("baseline", "episodes")]
    header = ["baseline", "episodes", *names]
    rows = [[str(cell[name]) for name in header] for cell in results["cells"]]
    text = f"""# Speed of the CPU engine

Generated by `python benchmarks/engine/run.py`; do not edit.

Microseconds per generated token, medians of {results["rounds"]} rounds in one process on one
thread; the weights change before every round. The engines of the five adapters are those of commit
{results["before"]}, each driven as its adapter drove it (openrlhf, rl2 and verl by concurrent
requests, oat and trl by batches). `fastest / new` and `slowest / new` compare the old engines with
the slower of the two ways in which the new one is driven: at least 1 and 2.

{markdown_table(header, rows)}

torch {results["torch"]}, transformers {results["transformers"]}.
"""
    (HERE / "README.md").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
