"""``history = "compact"``: when a summary is asked for, what follows it, and what is recorded."""

from __future__ import annotations

import asyncio
import json

import pytest

from gem_core.advantages import compute_advantages
from gem_core.episodes.context import Compact, Context
from gem_core.episodes.data import Episode, FinishReason, StopReason
from gem_core.episodes.machine import Limits
from gem_core.episodes.metrics import episode_metrics
from gem_core.episodes.rollout import play, play_batch
from gem_core.errors import KindError, RecipeError
from gem_core.runs.directory.episode_columns import COLUMNS, columns_of

BUDGET = 24
"""Of the prompts below, the first two fit."""


def compact(**changes):
    return Compact(**{"budget": BUDGET, "prompt": "sum", "max_tokens": 5, **changes})


def text(kit, ids):
    return "".join("^" if i == kit.stop else kit.tokenizer.decode([i]) for i in ids)


def steps(kit, count):
    return [kit.going(f"o{k}", 0.5 * k, suffix=f"b{k}") for k in range(1, count)] + [kit.won()]


def machine_of(kit, count=4, limits=None, **changes):
    made = steps(kit, count)
    return kit.machine(*made, history="compact", compact=compact(**changes), limits=limits)


def played(kit, *texts, **options):
    """The episode in which ``texts`` answer the prompts, and the prompts as text."""
    machine = machine_of(kit, **options)
    prompts = [machine.start()]
    asked = []
    for answer in texts:
        asked.append((machine.asks_summary, machine.max_tokens))
        prompts.append(machine.feed(kit.complete(answer)))
    return machine, [text(kit, prompt) for prompt in prompts if prompt is not None], asked


def test_the_prompts_and_the_caps(kit):
    machine, prompts, asked = played(kit, "x", "y", "S", "z", "w")
    assert prompts == [
        "<go\nboard0>",
        "<go\nboard0>x^[o1\nb1]",
        "<go\nboard0>x^[o1\nb1]y^[sum]",  # with "[o2\nb2]" it would have 29 tokens
        "<go\nS\no2\nb2>",
        "<go\nS\no2\nb2>z^[o3\nb3]",
    ]
    assert asked == [(False, 4096), (False, 4096), (True, 5), (False, 4096), (False, 4096)]
    assert machine.done and machine.env.actions == ["x", "y", "z", "w"]
    assert machine.context.messages[0]["content"] == "go\nS\no2\nb2"


def test_the_budget_is_the_longest_prompt(kit):
    third = len("<go\nboard0>x^[o1\nb1]y^[o2\nb2]")
    for budget, wanted in [(third, False), (third - 1, True)]:
        machine, _, _ = played(kit, "x", "y", budget=budget)
        assert machine.asks_summary is wanted


def test_what_is_recorded(kit):
    machine, _, _ = played(kit, "x", "y", "S", "z", "w")
    episode = machine.episode
    kinds = ["action", "action", "summary", "action", "action"]
    assert [turn.kind for turn in episode.turns] == kinds
    assert [turn.index for turn in episode.turns] == list(range(5))
    assert episode.rewards == [0.5, 1.0, 0.0, 1.5, 1.0]
    assert [turn.observation for turn in episode.turns] == ["go", "o1", "sum", "o2", "o3"]
    assert episode.turns[2].action == "S" and not episode.turns[2].aborted
    assert [[turn for turn, _, _ in s.spans] for s in episode.segments] == [[0, 1, 2], [3, 4]]
    first, second = episode.segments
    assert text(kit, first.token_ids) == "<go\nboard0>x^[o1\nb1]y^[sum]S^"
    assert text(kit, second.token_ids) == "<go\nS\no2\nb2>z^[o3\nb3]w^"
    assert sum(first.loss_mask) == 6 and sum(second.loss_mask) == 4
    assert episode.success and episode.stop_reason is StopReason.TERMINATED


def test_every_turn_has_a_seed_of_its_own(kit):
    machine = machine_of(kit)
    machine.start()
    seeds = [machine.request_seed]
    for answer in "xySz":
        machine.feed(kit.complete(answer))
        seeds.append(machine.request_seed)
    assert len(set(seeds)) == 5


@pytest.mark.parametrize("trained", [True, False])
def test_returns_and_statistics(kit, trained):
    from gem_adapters.turn_batch import turn_batch

    machine, _, _ = played(kit, "x", "y", "S", "z", "w", trained=trained)
    found = compute_advantages("reinforce", turn_batch([machine.episode]), gamma=0.5)
    later = 1.5 + 0.5 * 1.0
    if trained:  # a turn as any other: what follows is discounted by it, too
        expected = [0.5 + 0.5 * (1.0 + 0.25 * later), 1.0 + 0.25 * later, 0.5 * later, later, 1.0]
    else:  # as if it were not there
        expected = [0.5 + 0.5 * (1.0 + 0.5 * later), 1.0 + 0.5 * later, 0.0, later, 1.0]
    assert found.tolist() == expected
    masked = machine.episode.turns[2].aborted
    start, end = machine.episode.segments[0].spans[2][1:]
    assert masked is not trained
    assert machine.episode.segments[0].loss_mask[start:end] == [int(trained)] * 2


def test_a_summary_is_cut_at_its_own_cap_and_used_as_it_is(kit):
    machine = machine_of(kit)
    machine.start()
    for answer in "xy":
        machine.feed(kit.complete(answer))
    with pytest.raises(ValueError, match="1 to 5 were requested"):
        machine.feed(kit.complete("abcdef"))
    prompt = machine.feed(kit.complete("abcde", stop=False))
    assert text(kit, prompt) == "<go\nabcde\no2\nb2>"
    assert machine._episode.turns[2].finish_reason is FinishReason.LENGTH


def test_summaries_are_repeated_and_an_action_stands_between_two(kit):
    texts = ["x", "S", "y", "S", "z"]  # the first prompt alone passes the budget
    machine, prompts, asked = played(kit, *texts, count=3, budget=1)
    assert [wanted for wanted, _ in asked] == [False, True, False, True, False]
    assert prompts[-1] == "<go\nS\no2\nb2>"
    assert machine.env.actions == ["x", "y", "z"]


def test_the_turn_limit_counts_actions(kit):
    machine, _, _ = played(kit, "x", "y", "S", "z", limits=Limits(max_turns=3))
    assert machine.episode.stop_reason is StopReason.TRUNCATED_TURNS
    assert len(machine.episode.acts) == 3 and len(machine.episode.turns) == 4
    assert text(kit, machine.bootstrap_state()) == "<go\nS\no2\nb2>z^[o3\nb3]"


@pytest.mark.parametrize("space", [27, 25])
def test_a_request_that_does_not_fit_the_context_ends_the_episode(kit, space):
    request = "<go\nboard0>x^[o1\nb1]y^[sum]"
    machine, _, _ = played(kit, "x", "y", limits=Limits(max_context_tokens=space))
    episode = machine.episode
    assert episode.stop_reason is StopReason.CONTEXT_OVERFLOW and len(request) == 27
    assert text(kit, episode.segments[-1].token_ids) == "<go\nboard0>x^[o1\nb1]y^"
    assert text(kit, machine.bootstrap_state()) == (request if space == 27 else "")


def test_summary_tokens_count_in_the_episode_and_new_prompts_do_not(kit):
    after_summary = len("x^[o1\nb1]y^[sum]S^")
    limits = Limits(max_episode_tokens=after_summary + 2)
    machine, _, asked = played(kit, "x", "y", "S", limits=limits)
    assert machine.max_tokens == 2 and asked[2] == (True, 4)
    assert machine.feed(kit.complete("z")) is None
    assert machine.episode.stop_reason is StopReason.TRUNCATED_TOKENS


def test_an_aborted_summary_ends_the_episode(kit):
    machine, _, _ = played(kit, "x", "y")
    completion = kit.complete("S")
    completion.finish_reason = FinishReason.ABORT
    assert machine.feed(completion) is None
    assert machine.episode.stop_reason is StopReason.ABORTED and machine.env.closed == 1
    assert not any(any(s.loss_mask) for s in machine.episode.segments)


@pytest.mark.parametrize("trained", [True, False])
def test_episodes_are_stored_and_read_back(kit, trained):
    machine, _, _ = played(kit, "x", "y", "S", "z", "w", trained=trained)
    data = json.loads(json.dumps(machine.episode.to_dict()))
    assert [turn.get("kind") for turn in data["turns"]] == [None, None, "summary", None, None]
    again = Episode.from_dict(data)
    assert again.turns[2].kind == "summary" and again.turns[2].aborted is not trained
    assert again.segments == machine.episode.segments
    line = json.dumps({"step": 1, "split": "train", **data}).encode()
    assert columns_of(line)[COLUMNS.index("turns")] == 4


def test_the_stored_form_of_other_episodes_is_as_before(kit):
    machine = kit.machine(kit.won())
    machine.start()
    machine.feed(kit.complete("x"))
    (turn,) = machine.episode.to_dict()["turns"]
    names = "index observation action reward terminated truncated info finish_reason aborted"
    assert list(turn) == names.split()


@pytest.mark.parametrize("trained", [True, False])
def test_the_metrics(kit, trained):
    machine, _, _ = played(kit, "x", "y", "Sab", "z", "w", trained=trained)
    plain = kit.machine(kit.won())
    plain.start()
    plain.feed(kit.complete("x"))
    metrics = episode_metrics([machine.episode, plain.episode])
    assert metrics["turns/mean"] == 2.5 and metrics["turns/total"] == 5
    assert metrics["reward/turn_mean"] == 5.0 / 5 and metrics["turns/masked"] == 0
    assert metrics["summary/mean"] == 0.5 and metrics["summary/tokens"] == 4
    assert metrics["summary/cut"] == 0
    assert not any(name.startswith("summary/") for name in episode_metrics([plain.episode]))


TEXTS = ["x", "y", "S", "z", "w"]


def shape(episode):
    return [(t.kind, t.observation, t.action, t.reward) for t in episode.turns], episode.segments


def test_all_loops_play_the_same(kit):
    batched = play_batch([machine_of(kit), machine_of(kit, count=2)], kit.Echo(*TEXTS))
    alone = asyncio.run(play(machine_of(kit), kit.Echo(*TEXTS)))
    threaded = machine_of(kit, limits=Limits(turn_deadline_s=60))
    (in_thread,) = play_batch([threaded], kit.Echo(*TEXTS))
    assert [turn.kind for turn in alone.turns].count("summary") == 1
    assert shape(batched[0]) == shape(alone) == shape(in_thread)
    assert len(batched[1].turns) == 2


def test_what_does_not_go_together_is_refused(kit):
    with pytest.raises(RecipeError, match="go together"):
        Context(kit.template, kit.tokenizer, "compact")
    with pytest.raises(RecipeError, match="go together"):
        Context(kit.template, kit.tokenizer, compact=compact())
    with pytest.raises(RecipeError, match="give a tokenizer"):
        Context(kit.template, None, "compact", compact=compact())
    with pytest.raises(KindError, match="budget"):
        Compact(budget=0)
