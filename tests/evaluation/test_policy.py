"""The local sampler: seeded, exact log-probabilities, no influence of padding or of the cache."""

from __future__ import annotations

import pytest
import torch

from gem_core.episodes.data import Completion, FinishReason
from gem_core.episodes.rollout import Request, play_batch
from gem_core.policies.engine.policy import HFPolicy


def requests_of(factory, count, cap=8):
    """First prompts of ``count`` evaluation episodes, every other one some tokens longer."""
    made = []
    for k in range(count):
        machine = factory.evaluation(k)
        prompt = machine.start()
        made.append(Request(prompt + prompt[3:9] if k % 2 else prompt, cap, machine))
    return made


def teacher_forced(model, prompt, ids, temperature=1.0):
    """Log-probabilities of ``ids`` after ``prompt``, in one pass without cache or padding."""
    logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1] / temperature
    return torch.log_softmax(logits, -1)[range(len(ids)), ids]


def test_the_same_seed_gives_the_same_completions(model, factory):
    first, again = (
        HFPolicy(model, [2], seed=3).complete_batch(requests_of(factory, 20)) for _ in range(2)
    )
    other = HFPolicy(model, [2], seed=4).complete_batch(requests_of(factory, 20))
    plain = HFPolicy(model, [2]).complete_batch(requests_of(factory, 20))
    assert first == again
    assert first != other
    assert first != plain


def test_the_order_and_the_number_of_requests_change_nothing(model, factory):
    whole = HFPolicy(model, [2]).complete_batch(requests_of(factory, 20))
    parts = HFPolicy(model, [2], max_batch=3)
    reversed_order = parts.complete_batch(requests_of(factory, 20)[::-1])
    assert reversed_order[::-1] == whole


def test_training_and_evaluation_draw_with_different_seeds(factory):
    """The same machine, turn for turn, but for the split."""
    training, evaluation = factory.train(0), factory.evaluation(0)
    seeds = {training.request_seed, evaluation.request_seed}
    for machine in (training, evaluation):
        machine.start()
        machine.feed(Completion([5], [0.0]))
        seeds.add(machine.request_seed)
    assert len(seeds) == 4
    assert factory.evaluation(0).request_seed == factory.evaluation(0).request_seed


def test_the_global_generator_is_not_touched(model, factory):
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    HFPolicy(model, [2]).complete_batch(requests_of(factory, 4))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_the_sampling_policy(model, factory, temperature):
    requests = requests_of(factory, 16)
    made = HFPolicy(model, [2], temperature=temperature).complete_batch(requests)
    for request, completion in zip(requests, made, strict=True):
        expected = teacher_forced(model, request.prompt_ids, completion.token_ids, temperature)
        assert torch.allclose(torch.tensor(completion.logprobs), expected, atol=1e-4)


def test_temperature_zero_is_greedy_decoding(model, factory):
    requests = requests_of(factory, 6)
    made = HFPolicy(model, [2], temperature=0.0).complete_batch(requests)
    for request, completion in zip(requests, made, strict=True):
        ids = list(request.prompt_ids)
        for token in completion.token_ids:
            assert int(model(torch.tensor([ids])).logits[0, -1].argmax()) == token
            ids.append(token)


def test_a_completion_ends_at_the_stop_token_or_at_its_own_cap(model, factory):
    requests = requests_of(factory, 60, cap=5)
    for number, request in enumerate(requests):
        request.max_tokens = 1 + number % 5
    made = HFPolicy(model, [2], temperature=1.5).complete_batch(requests)
    reasons = set()
    for request, completion in zip(requests, made, strict=True):
        ids = completion.token_ids
        assert 1 <= len(ids) <= request.max_tokens
        assert len(completion.logprobs) == len(ids)
        assert (completion.finish_reason is FinishReason.STOP) == (ids[-1] == 2)
        assert 2 not in ids[:-1]
        if completion.finish_reason is FinishReason.LENGTH:
            assert len(ids) == request.max_tokens
        reasons.add(completion.finish_reason)
    assert reasons == {FinishReason.STOP, FinishReason.LENGTH}


def test_top_k_one_is_greedy(model, factory):
    greedy = HFPolicy(model, [2], temperature=0.0).complete_batch(requests_of(factory, 8))
    narrow = HFPolicy(model, [2], top_k=1).complete_batch(requests_of(factory, 8))
    assert [c.token_ids for c in narrow] == [c.token_ids for c in greedy]


def test_it_plays_whole_episodes(model, factory):
    episodes = play_batch([factory.evaluation(k) for k in range(10)], HFPolicy(model, [2]))
    assert all(e.turns and e.segments[0].logprobs for e in episodes)
