"""How many sequences fit: the estimate is that of the tensors that the engine makes."""

from __future__ import annotations

import pytest
import torch

from gem_core.errors import GemError
from gem_core.evaluation import local
from gem_core.policies.engine.engine import Engine, EngineRequest
from gem_core.policies.engine.memory import GROWTH, SHARE, sequences_that_fit, token_bytes
from gem_core.runs.recipe.load import load_recipe

GIB = 2**30


class Qwen3:
    """The sizes of Qwen3-1.7B, as its model card on the Hub has them."""

    num_hidden_layers = 28
    num_attention_heads = 16
    num_key_value_heads = 8
    head_dim = 128
    hidden_size = 2048
    max_position_embeddings = 40960

    def get_text_config(self):
        return self


def test_a_token_takes_what_the_store_allocates(model):
    engine = Engine(model, max_batch=8)
    requests = [
        EngineRequest(list(range(3, 150 + number)), 4, frozenset({2}), seed=number)
        for number in range(8)
    ]
    engine.generate(requests)
    store = engine._store
    tensors = [*store.keys, *store.values]
    allocated = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    each = token_bytes(model.config, tensors[0].element_size())
    assert allocated == each * store.slots * store.columns
    longest = max(len(request.prompt_ids) for request in requests) + 4
    # The least free memory with which the estimate allows eight holds what they took.
    least = next(
        size
        for size in range(0, 4 * allocated, 4096)
        if _fits(model.config, longest, tensors[0].element_size(), size)
    )
    assert allocated <= least


def _fits(config, tokens, element, free):
    try:
        return sequences_that_fit(config, tokens, element, free, at_most=8) == 8
    except GemError:
        return False


def test_long_contexts_get_fewer_sequences():
    assert token_bytes(Qwen3(), 2) == 28 * 2 * 8 * 128 * 2
    options = {"element_bytes": 2, "free_bytes": 70 * GIB, "at_most": 128}
    assert sequences_that_fit(Qwen3(), 1024, **options) == 128
    few = sequences_that_fit(Qwen3(), 12_800, **options)
    assert few % 8 == 0 and 8 <= few < 128
    assert few * 12_800 * GROWTH * token_bytes(Qwen3(), 2) <= SHARE * 70 * GIB
    assert sequences_that_fit(Qwen3(), None, **options) == 8  # the model's own context


def test_what_cannot_fit_is_refused_with_what_to_do():
    with pytest.raises(GemError, match=r"12.3 GiB.*Lower limits.max_context_tokens"):
        sequences_that_fit(Qwen3(), 9_600, 2, 4 * GIB, at_most=128)


def test_the_evaluator_asks_for_the_memory_beside_the_model(model, monkeypatch):
    recipe = load_recipe("guess-the-number-easy", "tiny", ["limits.max_context_tokens=512"])
    each = GROWTH * 512 * token_bytes(model.config, 4)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (int(17 * each / SHARE), 80 * GIB))
    assert recipe.model.dtype == "float32"
    assert local._gpu_batch(recipe, model) == 16
