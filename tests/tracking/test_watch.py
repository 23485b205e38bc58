"""Files are followed while they grow, to their end, and not while nothing changes."""

from __future__ import annotations

import time

import pytest

from gem_core.runs.tracking.watch import watched


def test_every_growth_is_seen_and_what_is_written_last_too(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("a")
    seen = []

    def read():
        seen.append(first.read_text() + (second.read_text() if second.exists() else ""))

    def wait_for(text):
        until = time.monotonic() + 20
        while text not in seen:
            assert time.monotonic() < until
            time.sleep(0.001)

    with watched([first, second], read, 0.002):
        wait_for("a")
        second.write_text("b")
        wait_for("ab")
        count = len(seen)
        time.sleep(0.05)
        assert len(seen) == count
        first.write_text("aaa")
    assert seen[-1] == "aaab"


def test_what_a_failed_training_wrote_is_still_read(tmp_path):
    seen = []
    with (
        pytest.raises(ZeroDivisionError),
        watched([tmp_path / "file"], lambda: seen.append(1), 60),
    ):
        (tmp_path / "file").write_text("x")
        raise ZeroDivisionError
    assert seen == [1]
