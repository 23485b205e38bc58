"""A trainer in a separate program: its log, its errors, its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from gem_core.errors import GemError
from gem_core.runs.program import Program, run_process, run_program, run_programs

CHILD = "import sys, time; print('ready', flush=True); time.sleep(60)"
PARENT = (
    "import sys, os; from pathlib import Path; from gem_core.runs.program import run_program; "
    "run_program('child', [sys.executable, '-c', sys.argv[2]], os.environ, Path(sys.argv[1]))"
)


def test_output_is_appended_and_the_environment_is_the_given_one(tmp_path):
    log = tmp_path / "out.log"
    log.write_text("before\n")
    code = "import os, sys; print(os.environ['MINE']); print('warning', file=sys.stderr)"
    run_program("child", [sys.executable, "-c", code], {"MINE": "yes"}, log)
    assert sorted(log.read_text().splitlines()) == ["before", "warning", "yes"]


def test_an_error_shows_the_end_of_the_log(tmp_path):
    code = "for i in range(100): print(f'line {i}')\nraise SystemExit(3)"
    log = tmp_path / "out.log"
    with pytest.raises(GemError, match="child ended with exit code 3; the end of") as error:
        run_program("child", [sys.executable, "-c", code], {}, log)
    shown = str(error.value).splitlines()
    assert shown[1] == "line 60" and shown[-1] == "line 99"


def test_it_ends_with_its_parent(tmp_path):
    log = tmp_path / "out.log"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(log), CHILD])
    deadline = time.monotonic() + 30
    while not (log.exists() and "ready" in log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (child,) = _children(parent.pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while os.path.exists(f"/proc/{child}") and _state(child) != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_process_too_large_to_be_copied_starts_it():
    code = (
        "import mmap, os, sys; from gem_core.runs.program import run_process; "
        "memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'); "
        "parts = [mmap.mmap(-1, memory * 9 // 10, flags=mmap.MAP_PRIVATE) for _ in range(2)]; "
        "sys.exit(run_process([sys.executable, '-c', 'raise SystemExit(5)']))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 5


def test_a_missing_program_is_named():
    with pytest.raises(GemError, match="there is no program 'no-such-trainer'"):
        run_process(["no-such-trainer"])


def programs(tmp_path, *codes):
    """Programs that run this code; ``SIGN`` in it is the path of the program's sign."""
    made = []
    for number, code in enumerate(codes):
        log, sign = tmp_path / f"{number}.log", tmp_path / f"{number}.sign"
        code = code.replace("SIGN", repr(str(sign)))
        made.append(Program(f"part {number}", [sys.executable, "-c", code], {}, log, sign))
    return made


STUBBORN = (
    "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print(os.getpid(), flush=True); open(SIGN, 'w').close(); time.sleep(60); print('over')"
)


def ended(log):
    """Whether `STUBBORN` is there no more, and was killed: by itself it says that it is over."""
    text = log.read_text()
    return _state(int(text.split()[0])) == "Z" and "over" not in text


def test_programs_run_side_by_side(tmp_path):
    """Each waits for what the other one writes."""
    path = str(tmp_path / "met")
    code = f"import os, time; open({path!r} + '%d', 'w').close()\n"
    code += f"while not os.path.exists({path!r} + '%d'): time.sleep(0.01)"
    run_programs(programs(tmp_path, code % (0, 1), code % (1, 0)), silence_s=60)


def test_the_first_program_that_fails_ends_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr("gem_core.runs.program._PATIENCE_S", 0.5)
    fails = (
        "import os, time\n"
        f"while not os.path.exists({str(tmp_path / '0.sign')!r}): time.sleep(0.01)\n"
        "print('why'); raise SystemExit(3)"
    )
    with pytest.raises(GemError, match=r"(?s)^part 1 ended with exit code 3; .*1.log:\nwhy$"):
        run_programs(programs(tmp_path, STUBBORN, fails), silence_s=60)
    assert ended(tmp_path / "0.log")


def test_a_program_without_a_sign_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("gem_core.runs.program._PATIENCE_S", 0.5)
    with pytest.raises(
        GemError, match=r"^part 0 has not got on for 1 s; the end of .*0.log:\n\d+$"
    ):
        run_programs(programs(tmp_path, STUBBORN), silence_s=1)
    assert ended(tmp_path / "0.log")


def test_a_slow_program_that_gives_signs_is_waited_for(tmp_path):
    code = "import time\nfor _ in range(12): open(SIGN, 'w').close(); time.sleep(0.25)"
    run_programs(programs(tmp_path, code), silence_s=2)


def _children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def _state(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"
