"""An engine that takes turns with training: what it may be asked in which state."""

from __future__ import annotations

import pytest

from gem_adapters.engine_state import EngineState
from gem_core.errors import GemError


def asked() -> EngineState:
    """An engine that was asked once, so that its cache has something."""
    state = EngineState()
    state.ask()
    return state


@pytest.mark.parametrize("level", [1, 2])
def test_a_step_in_the_right_order(level: int) -> None:
    state = asked()
    for _ in range(2):
        state.sleep(level)
        assert state.is_sleeping
        state.wake_up(["weights"])
        state.load()
        state.wake_up(["kv_cache"])
        assert not state.is_sleeping
        state.ask()
    assert state.counts == {"ask": 3, "sleep": 2, "wake_up": 4, "load": 2}


def test_what_sleeps_is_not_asked() -> None:
    state = asked()
    state.sleep()
    with pytest.raises(GemError, match="while its weights and kv_cache slept"):
        state.ask()
    with pytest.raises(GemError, match="got weights while it slept"):
        state.load()
    state.wake_up(["weights"])
    state.load()
    with pytest.raises(GemError, match="while its kv_cache slept"):
        state.ask()
    state.wake_up()
    state.ask()
    state.release_cache()
    with pytest.raises(GemError, match="while its kv_cache slept"):
        state.ask()


def test_weights_that_were_discarded_must_be_loaded() -> None:
    kept, lost = asked(), asked()
    kept.sleep(1)
    kept.wake_up()
    kept.ask()
    lost.sleep(2)
    lost.wake_up()
    with pytest.raises(GemError, match="lost its weights in its sleep"):
        lost.ask()


def test_a_cache_of_weights_before_is_not_used() -> None:
    state = asked()
    state.load()
    with pytest.raises(GemError, match="cache is of weights before"):
        state.ask()
    state.reset_cache()
    state.ask()
    state.reset_cache()  # before the weights come, as OpenRLHF and Oat do
    state.load()
    state.ask()
    without = EngineState(caches=False)
    without.ask()
    without.load()
    without.ask()


def test_an_unknown_part_is_named() -> None:
    with pytest.raises(GemError, match=r"wake \['scheduling'\]"):
        EngineState().wake_up(["scheduling"])
