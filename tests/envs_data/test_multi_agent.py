"""Two-player games, scripted opponents, and the simulated user."""

from __future__ import annotations

import json
from random import Random
from statistics import mean

import pytest

import gem_core
from gem_core.envs.multi_agent import MultiAgentEnv, Nim, ScriptedUser, TicTacToe
from gem_core.envs.multi_agent.games import _value
from gem_core.envs.players import get_player, play_episode
from gem_core.errors import UnknownNameError

IDS = gem_core.list_envs("multi:*")


@pytest.mark.parametrize("env_id", IDS)
def test_experts_reach_what_can_be_forced_and_random_players_do_not(env_id: str) -> None:
    env = gem_core.make(env_id)
    expert = get_player("expert", env_id, 0)
    chance = get_player("random", env_id, 0, env=env)
    best = [play_episode(env, expert, seed=s) for s in range(60)]
    worse = [play_episode(env, chance, seed=s) for s in range(60)]
    assert mean(r.success for r in best) >= 0.95
    assert mean(r.reward for r in worse) < mean(r.reward for r in best)


@pytest.mark.parametrize("game", [TicTacToe, Nim])
def test_turns_alternate_and_everybody_is_paid(game: type[MultiAgentEnv]) -> None:
    env = game()
    rng = Random(0)
    for seed in range(50):
        env.reset(seed=seed)
        turn = 0
        over = False
        while not over:
            assert env.agent == env.agents[turn % 2]
            actor = env.agent
            _, reward, over, _, info = env.step(env.random_action(rng))
            assert reward == info["rewards"][actor]
            turn += 1
        assert sum(info["rewards"].values()) == 1.0
        assert info["success"] == (info["rewards"][actor] == 1.0)


@pytest.mark.parametrize("game", [TicTacToe, Nim])
def test_the_games_themselves_pass_the_checks(game: type[MultiAgentEnv]) -> None:
    gem_core.check_env(game, steps=12, seeds=(0, 1))


def test_a_refused_move_changes_nothing_until_there_are_too_many() -> None:
    env = TicTacToe()
    env.reset(seed=0)
    board = env._board()
    for number, (action, error, cost) in enumerate(
        [("hm", "invalid_format", -0.1), ("\\boxed{10}", "invalid_action", 0.0)] * 2
    ):
        _, reward, over, _, info = env.step(action)
        assert (reward, over, info["error"], env._board()) == (cost, False, error, board), number
        assert info["agent"] == "first"
    _, reward, over, _, info = env.step("\\boxed{0}")
    assert over and info["rewards"] == {"first": 0.0, "second": 1.0} and reward == 0.0


@pytest.mark.parametrize("env_id", [i for i in IDS if "Desk" not in i])
def test_five_errors_lose_and_each_missing_answer_costs(env_id: str) -> None:
    env = gem_core.make(env_id)
    env.reset(seed=0)
    rewards = []
    for _ in range(5):
        _, reward, over, truncated, info = env.step("no answer here")
        rewards.append(reward)
        assert info["error"] == "invalid_format" and not truncated
    assert rewards == [-0.1] * 5
    assert over and info["success"] is False and info["end"] == "too_many_errors"


def test_all_of_an_answer_is_read() -> None:
    env = TicTacToe()
    for tail in ("x", " 6", " " * 10_000 + "6"):
        env.reset(seed=0)
        assert env.step(f"\\boxed{{5{tail}}}")[4]["error"] == "invalid_action"
    env.reset(seed=0)
    assert "error" not in env.step("\\boxed{  5\n}")[4]
    desk = gem_core.make("multi:ReturnsDesk-v0")
    desk.reset(seed=0)
    filing = desk.peek()[:-2] + " " * 1000 + "x]}"
    assert not desk.step(filing)[4]["success"]


@pytest.mark.parametrize("digit", ["٣", "\uff13", "²", "3.0", "0x3", "3\x00"])
def test_other_digits_are_not_moves(digit: str) -> None:
    env = TicTacToe()
    env.reset(seed=0)
    assert env.step(f"\\boxed{{{digit}}}")[4]["error"] == "invalid_action"


def test_the_value_of_the_empty_board_is_a_draw() -> None:
    assert _value("." * 9) == 0


def test_perfect_nim_always_wins_from_a_drawn_start() -> None:
    for seed in range(100):
        env = Nim(heaps=4, largest=9)
        env.reset(seed=seed)
        rng = Random(seed)
        over = False
        while not over:
            move = env.perfect_move(rng) if env.agent == "first" else rng.choice(env.legal_moves())
            _, _, over, _, info = env.step(env.write(move))
        assert info["rewards"]["first"] == 1.0


def test_seats() -> None:
    env_id = "multi:TicTacToe-v0-easy"
    seats = {gem_core.make(env_id).reset(seed=s)[1]["seat"] for s in range(20)}
    assert seats == {"first", "second"}
    second = gem_core.make(env_id, seat="second").reset(seed=0)[0]
    assert "You are the second player." in second and "The first player played" in second


def worst(game: MultiAgentEnv, rng: Random) -> str:
    """An opponent that plays its first legal move."""
    return game.legal_moves()[0]


def test_an_opponent_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from gem_core.envs.multi_agent import base

    monkeypatch.setattr(base, "worst_opponent", worst, raising=False)
    opponent = "gem_core.envs.multi_agent.base:worst_opponent"
    env = gem_core.make("multi:TicTacToe-v0-easy", opponent=opponent, seat="second")
    assert "played 1." in env.reset(seed=0)[0]
    with pytest.raises(UnknownNameError, match="Did you mean 'perfect'"):
        gem_core.make("multi:TicTacToe-v0-easy", opponent="perfct")
    with pytest.raises(UnknownNameError, match="seat"):
        gem_core.make("multi:TicTacToe-v0-easy", seat="third")


def test_the_scripted_user_answers_what_is_asked_and_loses_patience() -> None:
    user = ScriptedUser(patience=2)
    rng = Random(0)
    opening = user.start({"order": "R1234", "item": "kettle", "wish": "refund"}, rng)
    assert not any(fact in opening for fact in ("R1234", "kettle", "refund"))
    assert "R1234" in user.reply("What is your order number?", rng).text
    assert "kettle" in user.reply("Which item is it?", rng).text
    state = json.loads(json.dumps(user.get_state()))
    assert not user.reply("Lovely weather.", rng).leaves
    assert user.reply("Indeed.", rng).leaves
    user.set_state(state)
    assert not user.reply("Lovely weather.", rng).leaves


def test_a_filing_is_paid_by_its_right_fields() -> None:
    env = gem_core.make("multi:ReturnsDesk-v0")
    env.reset(seed=0)
    _, _, over, _, info = env.step("\\boxed{file[only one]}")
    assert not over and info["error"] == "invalid_action"
    order, item, _ = env._facts.values()
    _, reward, over, _, info = env.step(f"\\boxed{{file[{order.lower()}; {item}; neither]}}")
    assert reward == pytest.approx(2 / 3) and over and not info["success"]
    env.reset(seed=1)
    for _ in range(3):
        _, _, over, _, info = env.step("\\boxed{say[Good day.]}")
    assert over and info["end"] == "user_left"


def test_the_user_can_be_exchanged() -> None:
    user = "gem_core.envs.multi_agent.dialogue:ScriptedUser"
    gem_core.make("multi:ReturnsDesk-v0", user=user).reset(seed=0)
    with pytest.raises(UnknownNameError, match="user"):
        gem_core.make("multi:ReturnsDesk-v0", user="llm")
