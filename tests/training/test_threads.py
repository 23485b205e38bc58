"""The setting for OpenMP, and which processes get it."""

from __future__ import annotations

import os

import pytest

from gem_core.training.threads import limit_openmp_spin


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # so that the change is undone after the test
        monkeypatch.delenv(name)


def test_the_spins_are_set() -> None:
    limit_openmp_spin()
    assert 0 < int(os.environ["GOMP_SPINCOUNT"]) < 300_000


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_the_users_own_setting_wins(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "mine")
    limit_openmp_spin()
    assert os.environ[name] == "mine"
    assert name == "GOMP_SPINCOUNT" or "GOMP_SPINCOUNT" not in os.environ
