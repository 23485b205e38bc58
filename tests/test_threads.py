"""Idle threads sleep, as OpenMP itself reports it."""

from __future__ import annotations

import os

import pytest

from gem_core.threads import wait_passively


def test_the_policy_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    del os.environ["OMP_WAIT_POLICY"]


def test_the_users_own_policy_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
