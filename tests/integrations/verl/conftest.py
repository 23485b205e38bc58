"""The CPU backend comes first: it chooses verl's CPU platform before verl is imported anywhere."""

from __future__ import annotations

import asyncio

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import gem_verl.cpu.local  # noqa: F401
from gem_adapters.support import SUPPORT
from gem_core.runs.recipe.load import load_recipe
from gem_core.training.tiny import model_path
from gem_verl.config import payload
from gem_verl.cpu.engine import engine_request


@pytest.fixture(scope="session")
def tiny():
    """``tiny(*overrides)``: the tiny recipe of the first baseline, hardly warm-started."""

    def load(*overrides):
        fast = ["train.steps=2", "batch.episodes=8"]
        if not any(text.startswith("model.path=") for text in overrides):
            fast.append("model.tiny.warm_start_steps=60")
        return load_recipe("guess-the-number-easy", "tiny", [*fast, *overrides])

    return load


@pytest.fixture(scope="session")
def model_dir(tiny):
    """The tiny model that the tests share."""
    return model_path(tiny())


@pytest.fixture(scope="session")
def tokenizer(model_dir):
    """Its tokenizer."""
    return AutoTokenizer.from_pretrained(model_dir)


class StubClient:
    """verl's server client with a function in place of the servers; keeps the requests."""

    def __init__(self, answer):
        self.answer = answer
        self.requests = []

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        self.requests.append((request_id, list(prompt_ids), dict(sampling_params)))
        await asyncio.sleep(0)
        return self.answer(prompt_ids, sampling_params)


@pytest.fixture
def make_loop(tokenizer, model_dir):
    """``make_loop(recipe, client)``: verl's agent loop as its worker makes it."""
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap

    from gem_verl.cpu.local import configuration
    from gem_verl.rollout import GemAgentLoop, TaskDataset

    def make(recipe, client):
        config = configuration(recipe, model_dir)
        assert OmegaConf.select(config, "data.gem_recipe") == payload(recipe)
        return GemAgentLoop(
            trainer_config=DictConfigWrap(config),
            server_manager=client,
            tokenizer=tokenizer,
            processor=None,
            dataset_cls=TaskDataset,
            data_config=DictConfigWrap(config.data),
            hf_model_type="qwen3",
        )

    return make


@pytest.fixture
def play_task(make_loop):
    """``play_task(recipe, answer, index)``: ``(samples, client)`` of one task."""

    def run(recipe, answer, index=0, **changes):
        client = StubClient(answer)
        fields = {
            "index": index,
            "data_source": "gem:train",
            "global_steps": index // recipe.batch.episodes + 1,
            **changes,
        }
        sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "logprobs": True}

        async def play():
            return await make_loop(recipe, client).run(sampling, **fields)

        return asyncio.run(play()), client

    return run


@pytest.fixture
def sample_from(model_dir):
    """``sample_from(model)``: answers of a real model, as verl's servers return them.

    ``seed`` draws other answers to the same requests.
    """
    from verl.workers.rollout.replica import TokenOutput

    from gem_core.policies.engine.engine import Engine

    def make(model=None, seed=0):
        model = model or AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
        engine = Engine(model)

        def answer(prompt_ids, sampling_params):
            params = {**sampling_params, "seed": sampling_params["seed"] ^ seed}
            (completion,) = engine.generate([engine_request(prompt_ids, params)])
            return TokenOutput(
                token_ids=completion.token_ids,
                log_probs=completion.logprobs,
                extra_fields={SUPPORT: completion.support},
            )

        return answer

    return make
