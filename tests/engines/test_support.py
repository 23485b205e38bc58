"""Which tokens could be drawn, as the CPU engine reports it, by a definition of its own."""

from __future__ import annotations

import json
import math
import pickle
from array import array

import pytest
import torch
from msgspec.structs import asdict

from gem_core.episodes.data import Completion, Episode, Segment
from gem_core.episodes.endings import trim
from gem_core.episodes.policy import Request
from gem_core.errors import GemError
from gem_core.policies.engine.engine import Engine, EngineRequest
from gem_core.policies.engine.policy import HFPolicy
from gem_core.policies.engine.sampling import Sampling, sample, sample_with_support
from gem_core.runs.recipe.tables import SamplingConfig

RANDOM = torch.randn(40, 300, generator=torch.Generator().manual_seed(0)) * 2
SAMPLINGS = [
    Sampling(top_k=1),
    Sampling(top_k=20),
    Sampling(top_k=299),
    Sampling(top_p=0.8),
    Sampling(temperature=0.6, top_p=0.99),
    Sampling(temperature=1.7, top_k=20, top_p=0.8),
]


def expected(logits, sampling):
    """The ids by the definition, one token at a time, in Python's own numbers."""
    scaled = [value / sampling.temperature for value in logits.tolist()]
    order = sorted(range(len(scaled)), key=lambda token: -scaled[token])
    if 0 < sampling.top_k < len(scaled):
        worst = scaled[order[sampling.top_k - 1]]
        order = [token for token in order if scaled[token] >= worst]  # ties with the last stay
    weights = [math.exp(scaled[token] - scaled[order[0]]) for token in order]
    kept, before = [], 0.0
    for token, weight in zip(order, weights, strict=True):
        if sampling.top_p < 1 and before / sum(weights) >= sampling.top_p:
            break
        kept.append(token)
        before += weight
    return sorted(kept)


def supports(logits, sampling):
    rows = range(len(logits))
    return sample_with_support(logits, sampling, rows, [0] * len(logits))


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_it_is_the_set_by_its_definition(sampling):
    tokens, logprobs, found = supports(RANDOM, sampling)
    assert [list(ids) for ids in found] == [expected(row, sampling) for row in RANDOM]
    drawn, numbers = sample(RANDOM, sampling, range(40), [0] * 40)
    assert torch.equal(tokens, drawn) and torch.equal(logprobs, numbers)
    for row, token, number, ids in zip(RANDOM, tokens.tolist(), logprobs, found, strict=True):
        assert token in ids
        among = (row.double() / sampling.temperature)[list(ids)].softmax(0)
        assert float(among.sum()) == pytest.approx(1.0)
        assert float(among[ids.index(token)].log()) == pytest.approx(float(number), abs=1e-5)


def test_ties_are_in_it_and_the_boundary_of_top_p_is_not_passed():
    tied = torch.tensor([[1.0, 3.0, 1.0, 2.0, 1.0, 0.0]])
    assert list(supports(tied, Sampling(top_k=3))[2][0]) == [0, 1, 2, 3, 4]
    assert list(supports(tied, Sampling(top_k=2))[2][0]) == [1, 3]
    halves = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    assert list(supports(halves, Sampling(top_p=0.5))[2][0]) == [0]
    assert list(supports(halves, Sampling(top_p=0.51))[2][0]) == [0, 1]
    assert list(supports(halves, Sampling(top_p=0.75))[2][0]) == [0, 1]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(top_k=300), Sampling(top_k=9999)])
def test_nothing_is_kept_where_nothing_is_cut_off(sampling):
    impossible = RANDOM.clone()
    impossible[:, 7] = -torch.inf  # the model's own, which is no cut
    assert supports(impossible, sampling)[2] == [None] * 40


def test_the_most_likely_token_is_alone():
    tokens, logprobs, found = supports(RANDOM, Sampling(temperature=0.0))
    assert [list(ids) for ids in found] == [[token] for token in tokens.tolist()]
    assert not logprobs.any()


def test_the_engine_reports_it_where_it_is_asked(model_dir):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    sampling = Sampling(top_k=20, top_p=0.8)
    asked = [
        EngineRequest([3, 4, 5 + n], 4, frozenset({1}), sampling, n, support=n % 2 == 0)
        for n in range(6)
    ]
    for number, completion in enumerate(Engine(model).generate(asked)):
        if number % 2:
            assert completion.support is None
            continue
        ids = [3, 4, 5 + number, *completion.token_ids]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, 2:-1].float()
        wanted = [expected(row, sampling) for row in logits]
        assert [list(found) for found in completion.support] == wanted


def test_a_policy_takes_it_as_a_recipe_says_it(model_dir):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    request = Request([3, 4], 3, None, seed=5)
    sampling = asdict(SamplingConfig(top_k=4))  # as adapters hand it over
    (without,) = HFPolicy(model, [1], **sampling).complete_batch([request])
    (found,) = HFPolicy(model, [1], **sampling | {"support": "drawn"}).complete_batch([request])
    assert without.support is None and found.token_ids == without.token_ids
    assert [len(ids) for ids in found.support] == [4] * len(found.token_ids)
    with pytest.raises(GemError, match="keeps no old weights"):
        HFPolicy(model, [1], **sampling | {"staleness": 1})


def segment_with_support():
    segment = Segment()
    segment.add_context([5, 6])
    segment.add_action(0, Completion([7, 1], [-0.1, -0.2], support=[array("i", [2, 7]), None]))
    segment.add_context([8])
    return segment


def test_an_episode_keeps_it_beside_its_tokens():
    episode = Episode("game:G-v0", 0, segments=[segment_with_support()])
    assert episode.segments[0].support == [None, None, array("i", [2, 7]), None, None]
    trim(episode)
    assert len(episode.segments[0].support) == len(episode.segments[0].token_ids) == 4
    stored = json.loads(json.dumps(episode.to_dict()))
    assert stored["segments"][0]["support"] == [None, None, [2, 7], None]
    assert Episode.from_dict(stored) == pickle.loads(pickle.dumps(episode)) == episode
    del stored["segments"][0]["support"]  # as in files of earlier versions
    assert Episode.from_dict(stored).segments[0].support is None
    assert "support" not in Episode.from_dict(stored).to_dict()["segments"][0]


def test_a_segment_has_it_of_all_actions_or_not_at_all():
    segment = segment_with_support()
    segment.add_action(1, Completion([9], [-0.3]))
    assert segment.support is None
    segment.add_action(2, Completion([9], [-0.3], support=[None]))
    assert segment.support is None
