"""The engine: a completion depends on weights, prompt and seed; vLLM's rules at every limit."""

from __future__ import annotations

import inspect
import random
from dataclasses import replace
from itertools import chain

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gem_core.episodes.data import FinishReason
from gem_core.policies.engine import attention
from gem_core.policies.engine.attention import NAME, attend
from gem_core.policies.engine.engine import Engine, EngineRequest
from gem_core.policies.engine.sampling import Sampling

STOPS = frozenset({2, 7})


def request(number, **changes):
    """A request with a prompt of 5 to 80 tokens."""
    draws = random.Random(number)
    fields = {
        "prompt_ids": [draws.randrange(3, 300) for _ in range(draws.randint(5, 80))],
        "max_tokens": draws.randint(1, 12),
        "stop_ids": STOPS,
        "seed": 977 * number + 1,
    }
    return EngineRequest(**(fields | changes))


def next_turn(asked, completion, *fresh):
    """The request of the following turn: all earlier tokens, then the ``fresh`` ones."""
    prompt = [*asked.prompt_ids, *completion.token_ids, *fresh]
    return EngineRequest(prompt, 9, STOPS, seed=asked.seed + 1)


def teacher_forced(model, prompt, ids, temperature=1.0):
    with torch.no_grad():
        logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1] / temperature
    return torch.log_softmax(logits, -1)[range(len(ids)), ids]


def run_to_end(engine, into):
    while engine.unfinished:
        into.update(engine.advance())


# -- what a completion depends on -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["past_key_values", "cache"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_store_goes_by_the_name_that_the_model_gives_it(make, monkeypatch, name, wrapped):
    """transformers 5.24 renamed it; both names work whatever the installed version."""
    model = make()
    expected = Engine(model).generate([request(0)])
    forward = model.forward
    real = "cache" if "cache" in inspect.signature(forward).parameters else "past_key_values"
    given = []

    def renamed(**inputs):
        given.append(inputs.pop(name))
        return forward(**{real: given[-1]}, **inputs)

    names = ["input_ids", "attention_mask", "position_ids", name, "use_cache", "logits_to_keep"]
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    renamed.__signature__ = inspect.Signature(
        [inspect.Parameter(parameter, keyword_only) for parameter in names]
    )
    monkeypatch.setattr(model, "forward", renamed)
    asked = _Wrapped(model) if wrapped else model
    assert Engine(asked).generate([request(0)]) == expected
    assert given


class _Wrapped(torch.nn.Module):
    """As peft's models: its own forward names no argument."""

    def __init__(self, model):
        super().__init__()
        self.model, self.config = model, model.config
        self.dtype, self.device = model.dtype, model.device

    def get_base_model(self):
        return self.model

    def forward(self, *args, **inputs):
        return self.model(*args, **inputs)


def test_a_completion_does_not_depend_on_the_other_requests(model):
    """Equal to the last bit, log-probabilities included."""
    asked = [request(number) for number in range(40)]
    together = Engine(model).generate(asked)
    alone = Engine(model)
    assert [alone.generate([one])[0] for one in asked] == together
    few = Engine(model, max_batch=3)
    assert few.generate(asked) == together
    assert max(few.batches) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("more", [90, 130, 250, 520])
def test_a_long_completion_does_not_depend_on_the_other_requests(make, more, dtype):
    """Prompts of other lengths give other paddings; torch's attention differs from 177 keys on."""
    model = make(max_position_embeddings=1024).to(dtype)
    tail = [3 + number % 290 for number in range(more)]
    short = [request(number, max_tokens=6) for number in range(12)]
    asked = [replace(item, prompt_ids=[*item.prompt_ids, *tail]) for item in short]
    together = Engine(model).generate(asked)
    assert together == [Engine(model).generate([item])[0] for item in asked]
    turns = [next_turn(item, done, 11, 12, 13) for item, done in zip(asked, together, strict=True)]
    warm = Engine(model)
    warm.generate(asked)
    assert warm.generate(turns) == Engine(model).generate(turns)


def test_requests_join_and_leave_at_any_step(model):
    asked = [request(number) for number in range(40)]
    together = Engine(model).generate(asked)
    order = random.Random(1).sample(range(40), 40)
    engine, numbers, ended = Engine(model), {}, {}
    for first in range(0, 40, 7):
        for index in order[first : first + 7]:
            numbers[engine.add(asked[index])] = index
        ended.update(engine.advance())
    run_to_end(engine, ended)
    assert {numbers[number]: done for number, done in ended.items()} == dict(enumerate(together))


def test_log_probabilities_are_those_of_a_plain_forward_pass(model):
    for temperature in (1.0, 0.7):
        asked = [request(n, sampling=Sampling(temperature)) for n in range(16)]
        for one, done in zip(asked, Engine(model).generate(asked), strict=True):
            wanted = teacher_forced(model, one.prompt_ids, done.token_ids, temperature)
            assert torch.allclose(torch.tensor(done.logprobs), wanted, atol=1e-5)


def test_greedy_completions_are_those_of_a_plain_forward_pass(model):
    asked = [request(n, sampling=Sampling(temperature=0.0)) for n in range(8)]
    for one, done in zip(asked, Engine(model).generate(asked), strict=True):
        ids = list(one.prompt_ids)
        for token in done.token_ids:
            assert int(model(torch.tensor([ids])).logits[0, -1].argmax()) == token
            ids.append(token)


def test_the_seed_decides(model):
    asked = [request(n, max_tokens=12) for n in range(20)]
    others = [request(n, max_tokens=12, seed=n) for n in range(20)]
    first = Engine(model).generate(asked)
    assert Engine(model).generate(asked) == first
    assert Engine(model).generate(others) != first


def test_requests_without_a_seed_draw_different_tokens(model):
    asked = [request(1, seed=None, max_tokens=12, stop_ids=frozenset())] * 10
    engine = Engine(model)
    drawn = {tuple(done.token_ids) for done in engine.generate(asked) + engine.generate(asked)}
    assert len(drawn) == 20


def test_requests_with_different_sampling_run_together(model):
    kinds = [Sampling(), Sampling(0.0), Sampling(0.5, top_k=3), Sampling(top_p=0.5)]
    asked = [request(n, sampling=kinds[n % 4]) for n in range(24)]
    alone = [Engine(model).generate([one])[0] for one in asked]
    assert Engine(model).generate(asked) == alone


# -- the cache ------------------------------------------------------------------------------------


def test_the_next_turn_computes_its_new_tokens_alone(model):
    asked = [request(number) for number in range(12)]
    engine = Engine(model)
    first = engine.generate(asked)
    turns = [next_turn(one, done, 9, 10, 11) for one, done in zip(asked, first, strict=True)]
    before = engine.computed
    second = engine.generate(turns)
    sampled = sum(len(done.token_ids) for done in second)
    assert engine.computed - before == 12 * 4 + sampled - 12  # 3 new, 1 sampled last
    assert second == Engine(model).generate(turns)  # the same bits without a cache


def test_a_turn_of_a_long_episode_computes_its_new_tokens_alone(model):
    short = [request(number) for number in range(12)]
    asked = [replace(one, prompt_ids=[*one.prompt_ids, *range(3, 153)]) for one in short]
    engine = Engine(model)
    first = engine.generate(asked)
    before = engine.computed
    second = engine.generate(
        [next_turn(one, done, 9, 10, 11) for one, done in zip(asked, first, strict=True)]
    )
    assert engine.computed - before == 12 * 3 + sum(len(done.token_ids) for done in second)


def test_equal_prompts_are_computed_once(model):
    same = request(3).prompt_ids
    asked = [request(n, prompt_ids=same, max_tokens=1) for n in range(30)]
    engine = Engine(model)
    done = engine.generate(asked)
    assert engine.computed == len(same)
    again = engine.generate(asked)
    assert engine.computed == len(same) + 30
    assert again == done == [Engine(model).generate([one])[0] for one in asked]


def test_a_prompt_that_shares_only_a_beginning_is_computed_from_there(model):
    first = request(3)
    engine = Engine(model)
    (done,) = engine.generate([first])
    kept = [*first.prompt_ids, *done.token_ids]
    branches = [EngineRequest([*kept, 20 + n], 5, STOPS, seed=n) for n in range(4)]
    before = engine.computed
    answers = engine.generate(branches)
    sampled = sum(len(answer.token_ids) for answer in answers)
    assert engine.computed - before == 4 * 2 + sampled - 4
    assert answers == Engine(model).generate(branches)


def test_blocks_of_a_common_beginning_are_not_computed_again(model):
    common = request(4, prompt_ids=list(range(10, 50))).prompt_ids
    first, second = (request(n, prompt_ids=[*common, 60 + n, 70 + n], max_tokens=1) for n in (1, 2))
    engine = Engine(model)
    engine.generate([first])
    before = engine.computed
    done = engine.generate([second])
    assert engine.computed - before == 42 - 32  # two blocks of 16
    assert done == Engine(model).generate([second])


def test_common_beginnings_while_slots_change_hands(model):
    draws = random.Random(5)
    pieces = [[draws.randrange(3, 300) for _ in range(draws.randint(3, 40))] for _ in range(5)]
    engine = Engine(model, max_batch=4, cache_bytes=1)  # four slots
    given = 0
    for number in range(5):
        prompts = [[*chain(*draws.choices(pieces, k=draws.randint(1, 4)))] for _ in range(9)]
        asked = [request(20 * number + n, prompt_ids=p) for n, p in enumerate(prompts)]
        given += sum(map(len, prompts))
        done = engine.generate(asked)
        assert done == [Engine(model).generate([one])[0] for one in asked]
    assert engine.computed < given


@pytest.mark.parametrize("how", ["in place", "by data", "as a load"])
def test_new_weights_drop_the_caches(make, how):
    model = make()
    asked = [request(number) for number in range(6)]
    engine = Engine(model)
    first = engine.generate(asked)
    turns = [next_turn(one, done, 9) for one, done in zip(asked, first, strict=True)]
    with torch.no_grad():
        if how == "in place":
            model.model.layers[0].mlp.up_proj.weight.mul_(1.01)
        elif how == "by data":
            weight = model.model.layers[0].input_layernorm.weight
            weight.data.copy_(weight * 1.01)
        else:
            state = model.state_dict()
            key = "model.layers.1.self_attn.k_proj.weight"
            model.load_state_dict(state | {key: state[key] + 0.01})
    assert engine.generate(turns) == Engine(model).generate(turns)


def test_a_request_that_runs_while_the_weights_change_is_read_again(make):
    model = make()
    engine = Engine(model)
    one = request(5, max_tokens=10, stop_ids=frozenset())
    number = engine.add(one)
    engine.advance(lambda: True)
    with torch.no_grad():
        model.model.layers[0].input_layernorm.weight[:32].mul_(1.5)
    engine.drop_caches()
    ended = {}
    run_to_end(engine, ended)
    ids = ended[number].token_ids
    later = teacher_forced(model, one.prompt_ids, ids)[1:]
    assert torch.allclose(torch.tensor(ended[number].logprobs[1:]), later, atol=1e-5)


def test_old_sequences_make_room_for_new_ones(model):
    engine = Engine(model, max_batch=4, cache_bytes=1)
    for round_number in range(5):
        asked = [request(100 * round_number + n) for n in range(10)]
        assert engine.generate(asked) == Engine(model).generate(asked)
    assert len(engine._table) <= 8


# -- limits, stops, aborts ------------------------------------------------------------------------


def test_a_completion_ends_at_any_stop_token_or_at_its_cap(model):
    asked = [request(n, sampling=Sampling(1.5), max_tokens=1 + n % 9) for n in range(200)]
    last = set()
    for one, done in zip(asked, Engine(model).generate(asked), strict=True):
        ids = done.token_ids
        assert 1 <= len(ids) <= one.max_tokens and len(done.logprobs) == len(ids)
        assert not STOPS & set(ids[:-1])
        stopped = ids[-1] in STOPS
        assert (done.finish_reason is FinishReason.STOP) == stopped
        assert stopped or len(ids) == one.max_tokens
        last.add(ids[-1] if stopped else None)
    assert last == {2, 7, None}


def test_the_context_limit_cuts_a_completion_and_refuses_a_prompt(model):
    engine = Engine(model, max_model_len=20)
    prompt = request(1, max_tokens=None).prompt_ids[:15]
    free = frozenset()
    for cap in (None, 100):
        (done,) = engine.generate([EngineRequest(prompt, cap, free, seed=1)])
        assert (len(done.token_ids), done.finish_reason) == (5, FinishReason.LENGTH)
    for wrong in ([], list(range(3, 23)), list(range(3, 100))):
        with pytest.raises(ValueError, match="context limit"):
            engine.add(EngineRequest(wrong, 1, free))
    with pytest.raises(ValueError, match="max_tokens"):
        engine.add(EngineRequest(prompt, 0, free))
    (done,) = engine.generate([EngineRequest(list(range(3, 22)), 8, free, seed=1)])
    assert len(done.token_ids) == 1
    assert Engine(model).max_model_len == model.config.max_position_embeddings


def test_log_probabilities_are_reported_only_when_asked_for(model):
    with_them = Engine(model).generate([request(1)])[0]
    without = Engine(model).generate([request(1, logprobs=False)])[0]
    assert without.logprobs is None
    assert without.token_ids == with_them.token_ids


def test_an_aborted_request_leaves_and_the_others_stay(model):
    asked = [request(n, max_tokens=8, stop_ids=frozenset()) for n in range(10)]
    engine = Engine(model, max_batch=6)
    numbers = [engine.add(one) for one in asked]
    engine.advance(lambda: True)
    assert engine.abort(numbers[2])  # it runs
    assert engine.abort(numbers[9])  # it waits
    assert not engine.abort(12345)
    ended = {}
    run_to_end(engine, ended)
    assert set(ended) == set(numbers) - {numbers[2], numbers[9]}
    assert not engine.abort(numbers[0])  # it has ended
    whole = Engine(model).generate(asked)
    assert all(ended[number] == whole[numbers.index(number)] for number in ended)


# -- models ---------------------------------------------------------------------------------------


def test_the_model_is_as_before_afterwards(make):
    model = make().train()
    model.model.layers[1].eval()
    kind = model.config._attn_implementation
    before = torch.random.get_rng_state()
    training = [module.training for module in model.modules()]
    Engine(model).generate([request(1)])
    assert [module.training for module in model.modules()] == training
    assert model.config._attn_implementation == kind != NAME
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model(torch.tensor([[3, 4]])).logits.requires_grad


def test_a_model_in_training_samples_without_dropout_and_stays_in_training(make):
    model = make().train()
    model.model.norm.register_forward_hook(
        lambda norm, inputs, output: torch.nn.functional.dropout(output, 0.9, norm.training)
    )
    first, second = (Engine(model).generate([request(1)])[0] for _ in range(2))
    assert first.logprobs == second.logprobs
    plain = Engine(model.eval()).generate([request(1)])[0]
    assert first.logprobs == plain.logprobs, "the engine samples with dropout"
    model.train()
    Engine(model).generate([request(1)])
    assert all(module.training for module in model.modules())


def test_fewer_key_heads_than_heads(make):
    model = make(num_key_value_heads=2)
    asked = [request(n) for n in range(12)]
    done = Engine(model).generate(asked)
    assert done == [Engine(model).generate([one])[0] for one in asked]
    wanted = teacher_forced(model, asked[0].prompt_ids, done[0].token_ids)
    assert torch.allclose(torch.tensor(done[0].logprobs), wanted, atol=1e-5)


@pytest.mark.parametrize("queries", [1, 2, 7, 300])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_grouped_heads_have_the_bits_of_copied_keys(queries, groups):
    """A group's heads share keys: reading them in place changes nothing, also for one query."""
    generator = torch.Generator().manual_seed(groups)
    query = torch.randn(3, 4, queries, 16, generator=generator)
    keys, values = torch.randn(2, 3, 4 // groups, 32, 16, generator=generator)
    mask = torch.zeros(3, 1, queries, 32)
    mask[1, :, :, 20:] = -torch.inf
    copies = (tensor.repeat_interleave(groups, dim=1) for tensor in (keys, values))
    expected = attend(None, query, *copies, mask)[0]
    assert expected.shape == (3, queries, 4, 16)
    assert torch.equal(attend(None, query, keys, values, mask)[0], expected)


def test_queries_in_parts_have_the_same_bits(monkeypatch):
    """A long prompt is computed in parts, so that its weights fit the memory."""
    generator = torch.Generator().manual_seed(8)
    query, keys, values = torch.randn(3, 2, 4, 304, 16, generator=generator)
    mask = torch.full((304, 304), -torch.inf).triu(1).expand(2, 1, 304, 304)
    expected = attend(None, query, keys, values, mask)[0]
    monkeypatch.setattr(attention, "_WEIGHTS_AT_ONCE", 1)
    assert torch.equal(attend(None, query, keys, values, mask)[0], expected)
    plain = torch.nn.functional.scaled_dot_product_attention(query, keys, values, mask)
    assert torch.allclose(expected, plain.transpose(1, 2), atol=1e-6)


def test_a_sliding_window(make):
    sliding = {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 0}
    model = make(**sliding)
    plain = make()
    asked = [request(n, max_tokens=12) for n in range(12)]
    done = Engine(model).generate(asked)
    for one, answer in zip(asked, done, strict=True):
        wanted = teacher_forced(model, one.prompt_ids, answer.token_ids)
        assert torch.allclose(torch.tensor(answer.logprobs), wanted, atol=1e-5)
    assert done != Engine(plain).generate(asked)


class Calls(TorchDispatchMode):
    """Notes how many numbers each call of a cosine has."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, function, types, arguments=(), kwargs=None):
        if function is torch.ops.aten.cos.default:
            self.sizes.append(arguments[0].numel())
        return function(*arguments, **(kwargs or {}))


def test_one_thread_makes_the_first_call_of_a_function(model):
    """Several threads at once got cosines that were wrong by 1e-4, in the first forward pass."""
    with Calls() as calls:
        Engine(model).generate([request(number) for number in range(8)])
    assert calls.sizes[0] == 1 < max(calls.sizes)
