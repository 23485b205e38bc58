"""The episode machine: what is trained on is what was sampled, and every end has a typed reason."""

from __future__ import annotations

import re
import threading

import pytest

from gem_core.episodes.context import Context
from gem_core.episodes.data import Completion, Episode, FinishReason, StopReason
from gem_core.episodes.machine import EpisodeMachine, Limits
from gem_core.episodes.machine_calls import CloseCall, StartCall
from gem_core.errors import EpisodeStateError


def text(kit, ids):
    return "".join("^" if i == kit.stop else kit.tokenizer.decode([i]) for i in ids)


def test_append_only_history_token_by_token(kit):
    machine = kit.machine(kit.going("obs", 0.25, suffix="b1"), kit.won())
    first = machine.start()
    assert text(kit, first) == "<go\nboard0>"
    second = machine.feed(kit.complete("ab"))
    assert text(kit, second) == "<go\nboard0>ab^[obs\nb1]"
    assert machine.feed(kit.complete("c")) is None
    episode = machine.episode
    (segment,) = episode.segments
    assert text(kit, segment.token_ids) == "<go\nboard0>ab^[obs\nb1]c^"
    masked = [i if m else -1 for i, m in zip(segment.token_ids, segment.loss_mask, strict=True)]
    assert text(kit, [i for i in masked if i >= 0]) == "ab^c^"
    assert [segment.token_ids[s:e] for _, s, e in segment.spans] == [
        kit.complete("ab").token_ids,
        kit.complete("c").token_ids,
    ]
    assert [lp for lp in segment.logprobs if lp] == [-0.5] * 5
    assert episode.rewards == [0.25, 1.0] and episode.total_reward == 1.25
    assert episode.stop_reason is StopReason.TERMINATED and episode.success
    assert (episode.seed, episode.group, episode.index) == (3, 5, 7)
    assert episode.final_observation == "won"
    assert segment.prompt_length == len(first) and episode.action_tokens == 5


@pytest.mark.parametrize("history", ["last", "concat", "concat_with_action", "window"])
def test_rewriting_histories_begin_a_segment_per_turn(kit, history):
    window = 1 if history == "window" else None
    machine = kit.machine(
        kit.going("o1", suffix="b1"),
        kit.going("o2", suffix="b2"),
        kit.won(),
        history=history,
        window=window,
    )
    prompts = [machine.start()]
    for action in "xyz":
        prompts.append(machine.feed(kit.complete(action)))
    expected = {
        "last": ["<go\no1\nb1>", "<go\no2\nb2>"],
        "concat": ["<go\no1\nb1>", "<go\no1\no2\nb2>"],
        "concat_with_action": ["<go\nx\no1\nb1>", "<go\nx\no1\ny\no2\nb2>"],
        "window": ["<go\nx\no1\nb1>", "<go\nx\no1\ny\no2\nb2>"],
    }[history]
    assert [text(kit, p) for p in prompts[:3]] == ["<go\nboard0>", *expected]
    assert prompts[3] is None
    segments = machine.episode.segments
    assert len(segments) == 3
    for prompt, action, segment in zip(prompts, "xyz", segments, strict=False):
        assert segment.token_ids == prompt + kit.complete(action).token_ids
        assert segment.prompt_length == len(prompt)


def test_window_keeps_the_instructions_and_drops_the_oldest_turns(kit):
    machine = kit.machine(
        *[kit.going(f"o{k}") for k in range(1, 5)], kit.won(), history="window", window=1
    )
    machine.start()
    prompts = [text(kit, machine.feed(kit.complete(a))) for a in "wxyz"]
    assert prompts[-1] == "<go\no3\nz\no4>"


def test_cut_action_is_closed_by_the_template_and_hidden_from_the_environment(kit):
    machine = kit.machine(kit.going("o1"), kit.won(), limits=Limits(max_tokens_per_turn=2))
    machine.start()
    second = machine.feed(kit.complete("ab", stop=False))
    assert text(kit, second) == "<go\nboard0>ab![o1]"
    machine.feed(kit.complete("c"))
    assert machine.env.actions == ["", "c"]
    assert machine.episode.turns[0].action == "ab"
    assert machine.episode.turns[0].finish_reason is FinishReason.LENGTH
    assert sum(machine.episode.segments[0].loss_mask) == 4  # the closing "!" is not trained on


def test_cut_action_can_be_passed_on(kit):
    limits = Limits(max_tokens_per_turn=2, cut_action="pass")
    machine = kit.machine(kit.won(), limits=limits)
    machine.start()
    machine.feed(kit.complete("ab", stop=False))
    assert machine.env.actions == ["ab"]


@pytest.mark.parametrize(
    ("limits", "reason", "turns"),
    [
        (Limits(max_turns=2), StopReason.TRUNCATED_TURNS, 2),
        (Limits(max_context_tokens=20), StopReason.CONTEXT_OVERFLOW, 2),
        (Limits(max_episode_tokens=9), StopReason.TRUNCATED_TOKENS, 2),
    ],
)
def test_limits_end_the_episode_with_their_reason(kit, limits, reason, turns):
    machine = kit.machine(*[kit.going("o", 0.5)] * 9, limits=limits)
    prompt = machine.start()
    while prompt is not None:
        assert 1 <= machine.max_tokens <= limits.max_tokens_per_turn
        prompt = machine.feed(kit.complete("a"))
    episode = machine.episode
    assert episode.stop_reason is reason and reason.truncated and not reason.failed
    assert len(episode.turns) == turns and episode.turns[-1].truncated
    (segment,) = episode.segments
    assert segment.spans[-1][2] == len(segment.token_ids)
    assert not episode.success
    assert all(segment.loss_mask[start] for _, start, _ in segment.spans)


@pytest.mark.parametrize(
    "limits",
    [Limits(max_turns=3), Limits(max_context_tokens=24), Limits(max_episode_tokens=14), None],
)
def test_every_turn_keeps_its_own_reward_however_the_episode_ends(kit, limits):
    steps = [kit.going("o", 1.0), kit.going("o", 2.0)]
    third = kit.going("o", 3.0) if limits else ("o", 3.0, False, True, {})
    machine = kit.machine(*steps, third, limits=limits)
    prompt = machine.start()
    while prompt is not None:
        prompt = machine.feed(kit.complete("a"))
    assert machine.episode.stop_reason.truncated
    assert machine.episode.rewards == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("history", ["append", "concat_with_action"])
@pytest.mark.parametrize(
    "limits",
    [
        Limits(max_turns=2),
        Limits(max_turns=2, max_context_tokens=22),  # what follows the second turn does not fit
        Limits(max_episode_tokens=10),
        Limits(max_context_tokens=20),
    ],
)
def test_the_state_at_a_cut_is_the_next_prompt(kit, limits, history):
    steps = [kit.going("o", 0.5, suffix="s")] * 9
    machine = kit.machine(*steps, limits=limits, history=history)
    unlimited = kit.machine(*steps, history=history)
    prompt = machine.start()
    following = unlimited.start()
    while prompt is not None:
        assert prompt == following
        prompt = machine.feed(kit.complete("a"))
        following = unlimited.feed(kit.complete("a"))
    fits = len(following) <= (limits.max_context_tokens or 1000)
    assert machine.episode.stop_reason.truncated
    assert machine.bootstrap_state() == (following if fits else [])


def test_only_a_cut_has_a_state_to_value(kit):
    for step in (kit.won(), ValueError("broken")):
        machine = kit.machine(step)
        machine.start()
        machine.feed(kit.complete("a"))
        assert machine.bootstrap_state() == []
    machine = kit.machine(kit.won(), limits=Limits(max_context_tokens=3))
    machine.start()
    assert machine.bootstrap_state() == []  # the prompt did not fit: no turn to learn from


def test_prompt_too_long_for_the_context_is_an_episode_without_turns(kit):
    machine = kit.machine(kit.won(), limits=Limits(max_context_tokens=3))
    assert machine.start() is None
    assert machine.episode.stop_reason is StopReason.CONTEXT_OVERFLOW
    assert machine.episode.turns == [] and machine.episode.rewards == []


def test_truncation_by_the_environment_and_wrong_format(kit):
    machine = kit.machine(("o", 0.0, False, True, {}))
    machine.start()
    machine.feed(kit.complete("a"))
    assert machine.episode.stop_reason is StopReason.TRUNCATED_TURNS
    machine = kit.machine(("o", -0.1, True, False, {"error": "invalid_format", "success": False}))
    machine.start()
    machine.feed(kit.complete("a"))
    assert machine.episode.stop_reason is StopReason.INVALID_FORMAT
    assert machine.episode.rewards == [-0.1]


def test_environment_fault_keeps_the_episode_and_trains_on_none_of_it(kit):
    machine = kit.machine(kit.going("o", 1.0), RuntimeError("boom"))
    machine.start()
    machine.feed(kit.complete("a"))
    assert machine.feed(kit.complete("b")) is None
    episode = machine.episode
    assert episode.stop_reason is StopReason.ENV_ERROR and episode.stop_reason.failed
    assert re.fullmatch(r"Script, seed 3: RuntimeError: boom \(conftest.py:\d+\)", episode.error)
    assert [t.action for t in episode.turns] == ["a", "b"]
    assert all(t.aborted for t in episode.turns) and not any(episode.segments[0].loss_mask)
    assert machine.env.closed == 1


def test_train_on_failed_excludes_only_the_turn_that_was_never_judged(kit):
    limits = Limits(train_on_failed=True)
    machine = kit.machine(kit.going("o", 1.0), RuntimeError("boom"), limits=limits)
    machine.start()
    machine.feed(kit.complete("a"))
    machine.feed(kit.complete("b"))
    episode = machine.episode
    assert [t.aborted for t in episode.turns] == [False, True]
    (_, s0, e0), (_, s1, e1) = episode.segments[0].spans
    assert all(episode.segments[0].loss_mask[s0:e0])
    assert not any(episode.segments[0].loss_mask[s1:e1])


def test_reset_fault(kit):
    machine = kit.machine(reset_error=ValueError("no data"))
    assert machine.start() is None
    assert machine.episode.stop_reason is StopReason.ENV_ERROR
    assert machine.episode.segments == [] and machine.env.closed == 1


def test_engine_contract_is_checked(kit):
    machine = kit.machine(kit.won(), limits=Limits(max_tokens_per_turn=2))
    machine.start()
    with pytest.raises(ValueError, match="1 to 2"):
        machine.feed(Completion([]))
    with pytest.raises(ValueError, match="3 tokens"):
        machine.feed(kit.complete("ab"))
    with pytest.raises(ValueError, match="1 logprobs for 2 tokens"):
        machine.feed(Completion([5, kit.stop], [-1.0]))
    assert machine.feed(kit.complete("a")) is None  # a refused completion leaves no trace
    assert machine.episode.action_tokens == 2


def test_engine_abort(kit):
    machine = kit.machine(kit.won())
    machine.start()
    assert machine.feed(Completion([], finish_reason=FinishReason.ABORT)) is None
    assert machine.episode.stop_reason is StopReason.ABORTED


def test_calls_in_the_wrong_state(kit):
    machine = kit.machine(kit.won())
    with pytest.raises(EpisodeStateError):
        machine.feed(kit.complete("a"))
    machine.start()
    with pytest.raises(EpisodeStateError):
        machine.start()
    with pytest.raises(EpisodeStateError):
        _ = machine.episode
    machine.feed(kit.complete("a"))
    with pytest.raises(EpisodeStateError):
        machine.feed(kit.complete("a"))


def test_late_answer_after_an_abort_is_dropped(kit):
    machine = kit.machine(30.0, slow=True)
    machine.start()
    thread = threading.Thread(target=machine.feed, args=(kit.complete("a"),))
    thread.start()
    while not machine.env.actions:
        pass
    machine.abort(StopReason.DEADLINE, "too slow")
    assert machine.env.closed == 0  # still inside step
    machine.env.release.set()
    thread.join(10)
    episode = machine.episode
    assert episode.stop_reason is StopReason.DEADLINE and episode.error == "too slow"
    assert episode.rewards == [0.0] and not episode.success and machine.env.closed == 1


def test_missing_logprobs_stay_missing(kit):
    machine = kit.machine(kit.going(), kit.won())
    machine.start()
    machine.feed(kit.complete("a"))
    machine.feed(Completion([5, kit.stop]))
    assert machine.episode.segments[0].logprobs is None


def test_text_and_messages_without_a_tokenizer(kit):
    env = kit.Script(kit.going("o1", suffix="b1"), kit.won())
    machine = EpisodeMachine(env, Context(kit.template), Limits())
    assert machine.start() == []
    assert machine.prompt_text == "<go\nboard0>"
    assert machine.messages == [{"role": "user", "content": "go\nboard0"}]
    machine.feed(Completion([], text="act"))
    assert machine.prompt_text == "<go\nboard0>act[o1\nb1]"
    assert machine.messages[1:] == [
        {"role": "assistant", "content": "act"},
        {"role": "user", "content": "o1\nb1"},
    ]
    assert env.actions == ["act"]


def test_text_mode_and_token_mode_show_the_same_prompt(kit):
    steps = [kit.going("o1"), kit.going("o2"), kit.won()]
    tokens, plain = (
        EpisodeMachine(kit.Script(*steps), Context(kit.template, tok), Limits())
        for tok in (kit.tokenizer, None)
    )
    prompt = tokens.start()
    plain.start()
    for action in ("x", "y"):
        assert kit.tokenizer.decode(prompt) == plain.prompt_text == tokens.prompt_text
        prompt = tokens.feed(kit.complete(action))
        plain.feed(Completion([], text=action))


def test_episode_json_round_trip(kit):
    machine = kit.machine(kit.going("o", 0.5), kit.won())
    machine.start()
    machine.feed(kit.complete("a"))
    machine.feed(kit.complete("b"))
    assert Episode.from_dict(machine.episode.to_dict()) == machine.episode


@pytest.mark.parametrize("history", ["append", "last"])
@pytest.mark.parametrize("limits", [Limits(max_turns=2), Limits(max_episode_tokens=8)])
def test_the_state_where_an_episode_was_cut_off(kit, history, limits):
    steps = [kit.going(f"o{k}") for k in range(9)]
    machine = kit.machine(*steps, history=history, limits=limits)
    unlimited = kit.machine(*steps, history=history)
    prompt = machine.start()
    unlimited.start()
    while prompt is not None:
        prompt = machine.feed(kit.complete("a"))
        next_prompt = unlimited.feed(kit.complete("a"))
    with pytest.raises(EpisodeStateError):
        unlimited.bootstrap_state()
    assert machine.episode.stop_reason.truncated
    assert machine.bootstrap_state() == machine.bootstrap_state() == next_prompt


def test_there_is_no_such_state_after_other_ends_or_outside_the_context(kit):
    ended = kit.machine(kit.won())
    ended.start()
    ended.feed(kit.complete("a"))
    assert ended.bootstrap_state() == []
    full = kit.machine(kit.going("long observation"), limits=Limits(max_context_tokens=14))
    full.start()
    full.feed(kit.complete("a"))
    assert full.episode.stop_reason is StopReason.CONTEXT_OVERFLOW
    assert full.bootstrap_state() == []


def test_a_machine_in_this_process_has_nothing_to_submit(kit):
    machine = kit.machine(kit.won())
    with pytest.raises(EpisodeStateError, match=r"lives in this process: call start\(\)"):
        StartCall(machine).submit()
    with pytest.raises(EpisodeStateError, match="lives in this process"):
        CloseCall(machine).submit()
    assert machine.start() is not None  # it has not begun
