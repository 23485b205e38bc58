"""Sessions: an interpreter that is kept, and its copies."""

from __future__ import annotations

import gc
import os
import signal
import socket
import textwrap
import time

import pytest

from gem_core.execution.sandbox import SandboxError, SandboxLimits
from gem_sandbox import Sandbox
from gem_sandbox.processes import members


def test_a_session_keeps_variables_and_files(sandbox: Sandbox) -> None:
    with sandbox.session() as session:
        assert session.run("x = 5\nopen('f', 'w').write('text')").ok
        assert session.run("print(x, open('f').read())").output == "5 text\n"
        assert session.run("print(input())", stdin="typed").output == "typed\n"
    with sandbox.session() as other:
        assert other.run("print('x' in globals())").output == "False\n"


def test_an_exception_keeps_the_state(sandbox: Sandbox) -> None:
    with sandbox.session() as session:
        assert session.run("x = 1\nraise ValueError").error == "error"
        assert not session.over and session.run("print(x)").output == "1\n"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("while True: pass", "timeout"),
        ("import os; os._exit(0)", None),
        ("import os; os.kill(os.getpid(), 9)", "killed"),
        ("while True: print('x' * 1000)", "output_limit"),
    ],
)
def test_the_end_of_an_interpreter_is_the_end_of_the_session(
    sandbox: Sandbox, code: str, error: str | None
) -> None:
    with sandbox.session(limits=SandboxLimits(seconds=0.5)) as session:
        session.run("x = 1")
        assert session.run(code).error == error
        assert session.run("print(x)").error == "session_over" and session.over


def test_cpu_time_of_earlier_calls_does_not_count(sandbox: Sandbox) -> None:
    loop = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    with sandbox.session(limits=SandboxLimits(seconds=30, cpu_s=1)) as session:
        assert all(session.run(loop).ok for _ in range(6))


def test_sessions_do_not_hold_each_other_up(sandbox: Sandbox) -> None:
    sessions = [sandbox.session() for _ in range(8)]
    for number, session in enumerate(sessions):
        session.run(f"x = {number}")
    assert [s.run("print(x)").output for s in sessions] == [f"{n}\n" for n in range(8)]
    for session in sessions:
        session.close()


def test_a_forgotten_session_gives_its_slot_back() -> None:
    with Sandbox(slots=2, spares=0) as sandbox:
        for _ in range(6):
            session = sandbox.session()
            session.run("x = 1")
            del session
            gc.collect()
        assert sandbox.run("print(1)").ok


def test_when_sessions_take_every_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gem_sandbox.sandbox._WAIT", 0.05)
    with Sandbox(slots=1, spares=0) as sandbox, sandbox.session() as session:
        assert session.run("x = 1").ok
        assert sandbox.run("print(1)").error == "unavailable"
        with pytest.raises(SandboxError, match="close sessions"):
            sandbox.session()


def test_spares_come_back_after_every_slot_was_taken() -> None:
    with Sandbox("confined", slots=3, spares=2) as sandbox:
        sessions = [sandbox.session() for _ in range(3)]
        assert all(session.run("x = 1").ok for session in sessions)
        server = sandbox._servers[0]
        assert server is not None
        before = set(members(server.pid))
        for session in sessions:
            session.close()
        until = time.monotonic() + 20
        spares: set[int] = set()
        while len(spares) < 2 and time.monotonic() < until:
            time.sleep(0.02)
            spares = set(members(server.pid)) - before
        assert len(spares) == 2


def test_branches_have_their_own_state_and_files(sandbox: Sandbox) -> None:
    with sandbox.session(branches=True) as session:
        session.run("x = [0]\nopen('f', 'w').write('old')")
        branches = [session.branch() for _ in range(8)]
        for number, branch in enumerate(branches):
            branch.run(f"x.append({number}); open('f', 'w').write('{number}')")
        twice = branches[3].branch()
        twice.run("x.append('twice')")
        shown = "print(x, open('f').read())"
        assert session.run(shown).output == "[0] old\n"
        for number, branch in enumerate(branches):
            assert branch.run(shown).output == f"[0, {number}] {number}\n"
        assert twice.run(shown).output == "[0, 3, 'twice'] 3\n"


def test_a_branch_lives_on_without_its_parent_and_hangs_alone(sandbox: Sandbox) -> None:
    session = sandbox.session(branches=True, limits=SandboxLimits(seconds=1))
    session.run("x = 1")
    first = session.branch()
    second = session.branch()
    session.close()
    assert first.run("while True: pass").error == "timeout"
    assert first.run("print(x)").error == "session_over"
    assert second.run("print(x)").output == "1\n"
    second.close()


def test_a_fork_bomb_in_a_session_that_may_branch_is_held() -> None:
    """Only in a process namespace of its own."""
    with Sandbox() as sandbox:
        if sandbox.level != "strict" or not sandbox.own_user:
            return
        bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
        with sandbox.session(
            branches=True, limits=SandboxLimits(seconds=0.5, threads=16)
        ) as session:
            assert session.run(bomb).error == "timeout"
        started = time.monotonic()
        assert sandbox.run("print(1)").ok
        assert time.monotonic() - started < 20


def test_a_session_that_cannot_branch_says_so(sandbox: Sandbox) -> None:
    with (
        sandbox.session() as session,
        pytest.raises(SandboxError, match="branches=True"),
    ):
        session.branch()
    with sandbox.session(branches=True, limits=SandboxLimits(threads=1)) as session:
        if sandbox.own_user:
            with pytest.raises(SandboxError, match="could not be copied"):
                session.branch()
        assert session.run("print(1)").output == "1\n"


def test_nothing_runs_on_between_two_calls(sandbox: Sandbox) -> None:
    """A thread that a call left behind runs only while another call of the session does."""
    spin = """
        import os, threading, time
        def work():
            while True:
                counted[0] += 1
                os.write(1, b"x" * 1000)
                time.sleep(0)
        counted = [0]
        threading.Thread(target=work, daemon=True).start()
    """
    with sandbox.session(limits=SandboxLimits(output_kb=10_000)) as session:
        assert session.run(textwrap.dedent(spin)).ok
        first = int(session.run("print(f'\\n{counted[0]}')").output.split("\n")[1].strip("x"))
        time.sleep(0.5)
        result = session.run("print(f'\\n{counted[0]}')")
        second = int(result.output.split("\n")[1].strip("x"))
        assert second - first < 5_000
        assert sandbox.run("print(1)").ok


def test_a_server_that_has_ended_is_not_asked() -> None:
    """Its children may hold the socket a moment longer, and would take the connection with them."""
    with Sandbox("confined") as sandbox:
        server = sandbox._servers[0]
        assert server is not None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        os.kill(server.pid, signal.SIGKILL)
        server._process.wait()
        server._control.close()
        server._control = ours  # one whose other end is still held
        with theirs, pytest.raises(SandboxError, match="has ended"):
            server.connect()
        assert sandbox.run("print(1)").output == "1\n"


def test_a_session_of_a_server_that_died_is_over_and_the_next_one_works() -> None:
    with Sandbox("confined") as sandbox:
        session = sandbox.session()
        session.run("x = 1")
        server = sandbox._servers[0]
        assert server is not None
        os.kill(server.pid, signal.SIGKILL)
        assert session.run("print(x)").error == "sandbox_died" and session.over
        with sandbox.session() as another:
            assert another.run("print(1)").output == "1\n"
            server = sandbox._servers[0]
            assert server is not None
            os.kill(server.pid, signal.SIGKILL)
            server._process.wait()
            with sandbox.session() as third:
                assert third.run("print(1)").output == "1\n"
