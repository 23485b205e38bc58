"""The pages of the environments agree with the output of scripts/make_env_pages.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import gem_core

ROOT = Path(__file__).resolve().parents[2]


def test_pages_are_not_stale() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "make_env_pages.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run python scripts/make_env_pages.py\n{done.stdout}{done.stderr}"


SCORES = json.loads((ROOT / "docs" / "environments" / "scores.json").read_text())


@pytest.mark.parametrize("env_id", gem_core.list_envs())
def test_the_expert_of_every_page_beats_the_random_player(env_id: str) -> None:
    scores = SCORES[gem_core.spec(env_id).fingerprint()]
    assert scores["id"] == env_id
    assert scores["expert"]["reward"] > scores["random"]["reward"]
    if not env_id.startswith("game:"):  # those of the games: tests/players/test_players.py
        assert scores["expert"]["success"] >= 0.95
