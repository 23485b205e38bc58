"""The server's event loop, where a number becomes another descriptor's between look and handler."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess

import pytest

from gem_sandbox.server.interpreter import Family, Interpreter
from gem_sandbox.server.loop import Loop


def test_no_event_of_a_closed_descriptor_reaches_the_next_one_with_its_number() -> None:
    loop = Loop()
    first, second, quiet = os.pipe(), os.pipe(), os.pipe()
    seen: list[str] = []

    def close_second(event: int) -> None:
        os.read(first[0], 1)
        loop.forget(second[0])
        os.dup2(quiet[0], second[0])  # closes it, and its number is another pipe's
        loop.watch(second[0], select.POLLIN, lambda event: seen.append("quiet"))

    loop.watch(first[0], select.POLLIN, close_second)
    loop.watch(second[0], select.POLLIN, lambda event: seen.append("second"))
    os.write(first[1], b"1")
    os.write(second[1], b"2")
    assert loop.turn(0) and seen == []
    assert not loop.turn(0)
    os.write(quiet[1], b"3")  # its own events do reach it
    assert loop.turn(0) and seen == ["quiet"]
    for descriptor in (*first, *second, *quiet):
        os.close(descriptor)


def test_watching_for_more_events_loses_none_of_this_turn() -> None:
    loop = Loop()
    first, second = os.pipe(), os.pipe()
    seen: list[str] = []

    def watch_again(event: int) -> None:
        loop.watch(second[0], select.POLLIN | select.POLLHUP, lambda event: seen.append("again"))

    loop.watch(first[0], select.POLLIN, watch_again)
    loop.watch(second[0], select.POLLIN, lambda event: seen.append("second"))
    os.write(first[1], b"1")
    os.write(second[1], b"2")
    assert loop.turn(0) and seen == ["again"]
    for descriptor in (*first, *second):
        os.close(descriptor)


def test_a_process_is_not_taken_for_ended_by_what_another_one_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its end is watched by a descriptor whose number had an event of another one a moment ago.

    The server ended such a process, and its call was "killed" before its program had begun.
    """
    loop = Loop()
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    ours, theirs = socket.socketpair()
    output, printed = os.pipe()
    interpreter = Interpreter(loop, Family(0), ours, output, forks=False)
    ends: list[str] = []
    interpreter.on_end = lambda: ends.append("end")
    earlier, written = os.pipe()
    loop.watch(earlier, select.POLLIN, lambda event: None)
    os.write(written, b"1")
    pidfd_open = os.pidfd_open

    def close_earlier_and_open(pid: int) -> int:
        loop.forget(earlier)
        os.close(earlier)
        return pidfd_open(pid)

    monkeypatch.setattr(os, "pidfd_open", close_earlier_and_open)
    theirs.sendall(process.pid.to_bytes(4, "little") + b"r")
    try:
        assert loop.turn(0)
        assert interpreter._exit == earlier and ends == [] and not interpreter.ended
        os.killpg(process.pid, signal.SIGKILL)
        assert loop.turn(60) and ends == ["end"]
    finally:
        process.kill()
        process.wait()
        interpreter.close()
        theirs.close()
        os.close(written)
        os.close(printed)
