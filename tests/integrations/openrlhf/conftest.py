"""OpenRLHF on a CPU: the harness first, then plain imports of the released package."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gem_openrlhf.cpu import harness

harness.apply()

MODEL = {
    "model.tiny.warm_start_steps": 0,  # random weights: enough for plumbing, ready in a second
}


@pytest.fixture
def tiny():
    """``tiny(*overrides)``: the tiny recipe of the first baseline."""
    from gem_core.runs.recipe.load import load_recipe

    return lambda *overrides: load_recipe("guess-the-number-easy", "tiny", overrides)


@pytest.fixture(scope="session")
def untrained(tmp_path_factory):
    """Directory of the tiny model without a warm start, tokenizer included."""
    from gem_core.runs.recipe.load import load_recipe
    from gem_core.training.tiny import model_path

    overrides = [f"{key}={value}" for key, value in MODEL.items()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEM_CORE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield model_path(load_recipe("guess-the-number-easy", "tiny", overrides))


@pytest.fixture(scope="session")
def tokenizer(untrained):
    """Tokenizer of the tiny model."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(untrained)


@pytest.fixture
def engine(tokenizer):
    """A scripted engine with the surface of OpenRLHF's rollout actor."""
    return ScriptedEngine(tokenizer)


class ScriptedEngine:
    """Answers every request with the next scripted action, cut at the request's cap."""

    def __init__(self, tokenizer) -> None:
        self.tokenizer = tokenizer
        self.requests = []
        self.script = ["\\boxed{1}", "\\boxed{2}", "\\boxed{3}", "\\boxed{4}"]
        self.seconds = 0.0

    async def generate(self, prompt_ids, params, multi_modal_data=None):
        from vllm import CompletionOutput, Logprob, RequestOutput

        self.requests.append((list(prompt_ids), params))
        await asyncio.sleep(self.seconds)
        text = self.script[len(self.requests) % len(self.script)]
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        ids.append(self.tokenizer.eos_token_id)
        cut = len(ids) > params.max_tokens
        ids = ids[: params.max_tokens]
        tables = None
        if params.logprobs is not None:
            tables = [{token: Logprob(-0.25)} for token in ids]
        reason = "length" if cut else "stop"
        return RequestOutput("", [CompletionOutput(text, ids, tables, reason)])


@pytest.fixture
def no_leftovers():
    """Fail if a test leaves Ray running."""
    yield
    import ray

    assert not ray.is_initialized()
    assert not list(Path("/tmp").glob("gemray*/session_latest/sockets/raylet*"))
