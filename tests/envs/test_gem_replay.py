"""``compat="gem-0.1.0"`` judges actions as GEM 0.1.0 does: GEM's verdicts, recorded and replayed.

``gem_replay.json`` is written by ``benchmarks/compat/run.py``, which asks GEM itself.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import gem_core

HERE = Path(__file__).resolve().parent
STATES = json.loads((HERE / "gem_replay.json").read_text(encoding="ascii"))
RESULT = json.loads((HERE.parents[1] / "benchmarks" / "compat" / "result.json").read_text())
GAMES = sorted({state["env"].split(":")[1].split("-")[0] for state in STATES})
BOARDS = {"Minesweeper", "Game2048"}
"""Games that draw from the generator after `reset`: their episodes keep the seed's own state."""


def start(state: dict[str, Any]) -> Any:
    env: Any = gem_core.make(state["env"], compat="gem-0.1.0").unwrapped
    env.reset(seed=state["seed"])
    fields = {name: getattr(env, name) for name in env._state_fields}
    if type(env).__name__ in BOARDS:
        assert json.loads(json.dumps(fields)) == state["fields"], "the seeds have changed"
        return env
    for name, value in state["fields"].items():
        setattr(env, name, deepcopy(value))
    env._restored()
    return env


@pytest.mark.parametrize("game", GAMES)
def test_actions_are_judged_as_gem_judged_them(game: str) -> None:
    states = [state for state in STATES if state["env"].startswith(f"game:{game}-")]
    assert sum(len(state["episodes"]) for state in states) > 150
    for state in states:
        for actions, verdicts in state["episodes"]:
            replay(start(state), actions, verdicts)


def replay(env: Any, actions: list[str], verdicts: list[Any]) -> None:
    for turn, (action, verdict) in enumerate(zip(actions, verdicts, strict=True), 1):
        _, reward, terminated, truncated, info = env.step(action)
        if isinstance(verdict, dict):  # GEM raised
            assert info["error"] == "invalid_format"
            continue
        assert reward == pytest.approx(verdict[0]), (turn, action)
        # At the turn limit GEM sets both flags.
        flags = [True, False] if verdict[2] and turn == env._budget else verdict[1:]
        assert [terminated, truncated] == flags, (turn, action)


def test_the_record_has_all_kinds_of_verdicts() -> None:
    episodes = [episode for state in STATES for episode in state["episodes"]]
    verdicts = [v for _, gem in episodes for v in gem if not isinstance(v, dict)]
    assert len(GAMES) == 12 and len(verdicts) > 2000
    rewards = [reward for reward, _, _ in verdicts]
    assert rewards.count(-0.1) > 50 and rewards.count(0.0) > 500
    assert sum(reward > 0 for reward in rewards) > 300


def test_the_full_comparison_found_no_other_difference() -> None:
    assert sorted(RESULT["games"]) == GAMES
    for game, figures in RESULT["games"].items():
        assert figures["actions"] >= 5000 and figures["other_differences"] == 0, game
        assert min(figures["errors"].values()) >= 20 and len(figures["errors"]) == 3, game
    named = {name for figures in RESULT["games"].values() for name in figures["named_differences"]}
    assert named == {
        "turn limit: GEM reports terminated and truncated, we report terminated",
        "GEM raises, we report a format error",
    }
