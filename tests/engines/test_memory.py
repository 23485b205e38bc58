"""How many sequences fit: the estimate is that of the tensors that the engine makes."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from gem_core.errors import GemError
from gem_core.evaluation import local
from gem_core.policies.engine.engine import Engine, EngineRequest
from gem_core.policies.engine.memory import GROWTH, SHARE, sequences_that_fit, token_bytes
from gem_core.policies.gpu import release_memory, wait_for_memory
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


@pytest.fixture
def gpu(monkeypatch):
    """The calls on a GPU that this process seems to use."""
    calls = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("emptied"))
    free = (80 * GIB, 80 * GIB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: calls.append("counted") or free)
    return calls


def test_what_a_trainer_left_is_collected_before_memory_is_counted(model, gpu):
    class Trainer:
        """As TRL's: its callbacks have it."""

    trainer = Trainer()
    trainer.callbacks = [trainer]
    left = weakref.ref(trainer)
    del trainer
    recipe = load_recipe("guess-the-number-easy", "tiny", ["limits.max_context_tokens=512"])
    assert local._gpu_batch(recipe, model) == local.GPU_BATCH
    assert gpu == ["emptied", "counted"]
    assert left() is None


def test_without_a_gpu_nothing_is_collected(monkeypatch):
    monkeypatch.setattr(gc, "collect", lambda: pytest.fail("collected"))
    release_memory()


@pytest.mark.parametrize(
    ("free", "polls"),
    [
        ([5], 6),  # quiet from the beginning
        ([5, 5, 9, 9, 20], 10),  # given back in two parts
        ([9, 5], 6),  # another process takes some: that is not waited for
        (range(1000), 120),  # no end of it
    ],
)
def test_processes_that_end_are_waited_for(free, polls):
    seen = iter(free)
    last = [0]

    def count():
        last[0] = next(seen, last[0])
        return last[0]

    slept = []
    wait_for_memory(count, slept.append)
    assert len(slept) == polls


def test_the_evaluator_asks_for_the_memory_beside_the_model(model, monkeypatch):
    recipe = load_recipe("guess-the-number-easy", "tiny", ["limits.max_context_tokens=512"])
    each = GROWTH * 512 * token_bytes(model.config, 4)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (int(17 * each / SHARE), 80 * GIB))
    assert recipe.model.dtype == "float32"
    assert local._gpu_batch(recipe, model) == 16
