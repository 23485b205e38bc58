"""What a sandbox promises about one call: its result, its limits, and what is left afterwards."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from attempts import ATTEMPTS

from gem_core.execution.sandbox import (
    KINDS,
    LEVELS,
    SandboxError,
    SandboxLimits,
    SandboxUnavailable,
)
from gem_sandbox import Sandbox, connection
from gem_sandbox.launch import Options
from gem_sandbox.process import ServerProcess, sweep
from gem_sandbox.processes import members

ROOT = Path(__file__).resolve().parents[2]
QUICK = SandboxLimits(seconds=0.5, cpu_s=2, memory_mb=256, output_kb=16)
SLOW = 20.0  # more than a busy machine needs


def pid_of(sandbox: Sandbox) -> int:
    server = sandbox._servers[0]
    assert server is not None
    return server.pid


@pytest.mark.parametrize(
    ("code", "error", "output"),
    [
        ("print(6 * 7)", None, "42\n"),
        ("import sys; print('no', file=sys.stderr)", None, "no\n"),
        ("import sys; sys.exit(0)", None, ""),
        ("import sys; sys.exit('because')", "error", "because\n"),
        ("import os; os._exit(0)", None, ""),
        ("import os; os._exit(3)", "error", ""),
        ("import os; os.kill(os.getpid(), 9)", "killed", ""),
        ("import ctypes; ctypes.string_at(0)", "killed", ""),
        ("import os; os.close(3)\nwhile True: pass", "killed", ""),
        ("while True: pass", "timeout", ""),
        ("import time; print('before', flush=True); time.sleep(60)", "timeout", "before\n"),
        ("import sys; sys.stdout.close()", "error", ""),
        ("import threading\nthreading.Thread(target=print, args=('a',)).start()", None, "a\n"),
        ("def f(:", "error", None),
        ("\x00", "error", None),
        ("(" * 5_000, "error", None),
        ("print('\ud800')", "error", None),
        ("class E(Exception):\n    def __str__(self): raise self\nraise E", "error", None),
        ("def f(n): return f(n + 1)\nf(0)", "error", None),
    ],
)  # fmt: skip
def test_what_a_program_does_is_named(
    sandbox: Sandbox, code: str, error: str | None, output: str | None
) -> None:
    result = sandbox.run(code, limits=QUICK)
    assert result.error == error and (error is None or error in KINDS), result
    assert result.ok is (error is None) and not result.truncated
    assert output is None or result.output == output
    assert result.level == sandbox.level


def test_a_traceback_shows_the_programs_own_lines(sandbox: Sandbox) -> None:
    output = sandbox.run("def f():\n    return 1 / 0\nf()").output
    assert 'File "program.py", line 2, in f' in output and "return 1 / 0" in output
    assert output.endswith("ZeroDivisionError: division by zero\n")
    assert "child.py" not in output


def test_input_and_variables(sandbox: Sandbox) -> None:
    result = sandbox.run(
        "import os, sys\nprint(sys.stdin.buffer.read(), data['a'], os.listdir('.'))",
        stdin="two é\n",
        names={"data": {"a": [1, None]}},
    )
    assert result.output == "b'two \\xc3\\xa9\\n' [1, None] []\n"
    assert sandbox.run("print(repr(open(0).read()))").output == "''\n"
    long = "x" * 3_000_000
    assert sandbox.run("print(len(input()))", stdin=long).output == "3000000\n"


def test_the_standard_library_can_be_imported(sandbox: Sandbox) -> None:
    modules = (
        "asyncio, csv, ctypes, decimal, hashlib, json, sqlite3, ssl, unittest, xml.dom.minidom"
    )
    result = sandbox.run(f"import {modules}\nasyncio.run(asyncio.sleep(0)); print('ok')")
    assert result.output == "ok\n", result.output


def test_files_work_in_the_folder(sandbox: Sandbox) -> None:
    code = """
        import os, shutil, sqlite3, tempfile, zipfile
        os.makedirs("a/b")
        open("a/b/c", "w").write("text")
        shutil.copytree("a", "copy")
        with zipfile.ZipFile("z.zip", "w") as z: z.write("copy/b/c")
        zipfile.ZipFile("z.zip").extractall("out")
        base = sqlite3.connect("data.db"); base.execute("create table t (x)"); base.commit()
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as t:
            os.chdir(t)
            open(t + "/x", "w").close()
            os.chdir(here)
        shutil.rmtree("a"); os.rename("copy", "d")
        print(open("out/copy/b/c").read(), sorted(os.listdir(".")))
    """
    result = sandbox.run(textwrap.dedent(code))
    assert result.output == "text ['d', 'data.db', 'out', 'z.zip']\n", result.output


def test_nothing_is_left_for_the_next_program(sandbox: Sandbox) -> None:
    leave = "import os, builtins\nos.makedirs('d/e')\nos.chmod('d', 0)\nbuiltins.print = None\n"
    for _ in range(70):  # every slot has been used
        assert sandbox.run(leave).ok
        assert sandbox.run("import os; print(os.listdir('.'), os.listdir('..'))").output == (
            "[] ['main']\n"
        )


def test_random_numbers_differ_from_call_to_call(sandbox: Sandbox) -> None:
    drawn = {sandbox.run("import random; print(random.random())").output for _ in range(5)}
    assert len(drawn) == 5


def test_too_much_output_ends_the_call(sandbox: Sandbox) -> None:
    result = sandbox.run("while True: print('x' * 100)", limits=QUICK)
    assert result.error == "output_limit" and result.truncated
    assert len(result.output) == 16 * 1024


def test_cpu_time_is_limited(sandbox: Sandbox) -> None:
    result = sandbox.run("while True: pass", limits=SandboxLimits(seconds=SLOW, cpu_s=0.5))
    assert result.error == "cpu_limit" and result.seconds < SLOW


def test_the_deadline_is_held(sandbox: Sandbox) -> None:
    programs = ["while True: pass", "import time\nwhile True: time.sleep(9)"]
    results = [sandbox.run(code, limits=QUICK) for code in programs * 3]
    assert {result.error for result in results} == {"timeout"}
    assert min(result.seconds for result in results) >= 0.5
    assert max(result.seconds for result in results) < SLOW


def test_many_threads_share_a_sandbox_and_wait_only_for_themselves(sandbox: Sandbox) -> None:
    answers: list[str] = []
    assert sandbox.run("print(0)").ok  # what only the first run waits for
    begun = time.monotonic()
    assert sandbox.run("print(0)").ok
    deadline = max(3.0, 100 * (time.monotonic() - begun))  # of the others all end before

    def ask(number: int) -> None:
        code = f"print({number})" if number % 4 else "import time; time.sleep(10**6)"
        result = sandbox.run(code, limits=SandboxLimits(seconds=deadline))
        answers.append(result.output.strip() if result.ok else str(result.error))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [str(n) if n % 4 else "timeout" for n in range(40)]
    assert sorted(answers) == sorted(expected)
    assert answers.index("timeout") == 30  # none waited for a program that sleeps


RUNAWAYS = [
    "while True: pass",
    "import signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(60)",
    "while True: print('x' * 1000)",
    "import os\nos.fork()",
    "open('f', 'w').write('x' * 1000)\nwhile True: pass",
    "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
]


def test_runaway_programs_leave_no_process_and_no_file(
    at_level: Callable[[str], Sandbox | str],
) -> None:
    with Sandbox("confined", spares=0) as sandbox:
        server = sandbox._servers[0]
        assert server is not None
        folder = server._folder
        own = list(members(server.pid))  # itself, and the process that forks children
        assert len(own) == 2
        for code in RUNAWAYS * 3:
            assert not sandbox.run(code, limits=QUICK._replace(seconds=0.1)).ok
        until = time.monotonic() + SLOW
        while list(members(server.pid)) != own and time.monotonic() < until:
            time.sleep(0.01)
        assert list(members(server.pid)) == own
        left = [str(path) for path in Path(folder).rglob("*") if path.name not in ("main", "lock")]
        assert all(path.rpartition("/")[2].startswith("call-") for path in left)
    assert list(members(server.pid)) == [] and not Path(folder).exists()


def test_a_server_that_dies_in_a_call_is_started_again() -> None:
    code = "open('running', 'w').close()\nwhile True: pass"
    with Sandbox("confined") as sandbox, ThreadPoolExecutor(1) as thread:
        server = sandbox._servers[0]
        assert server is not None
        first = server.pid
        call = thread.submit(sandbox.run, code, limits=SandboxLimits(seconds=60, cpu_s=60))
        until = time.monotonic() + SLOW
        while not list(Path(server._folder).rglob("running")):
            assert time.monotonic() < until, "the program does not run"
            time.sleep(0.01)
        os.kill(first, signal.SIGKILL)
        result = call.result()
        assert result.error == "sandbox_died" and result.level == sandbox.level
        assert sandbox.run("print(1)").output == "1\n"
        assert pid_of(sandbox) != first and list(members(first)) == []


def test_the_end_of_the_first_process_is_the_end_of_its_namespaces() -> None:
    with Sandbox() as sandbox:
        session = sandbox.session()
        assert session.run("x = 1").ok
        os.kill(pid_of(sandbox), signal.SIGKILL)
        until = time.monotonic() + SLOW
        while not session.over and time.monotonic() < until:
            session.run("x = 1")
        assert session.over and sandbox.run("print(1)").ok


def test_a_server_that_does_not_answer_is_ended_by_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second deadline: the server is stopped while a program runs."""
    monkeypatch.setattr(connection, "GRACE", 1.0)
    with Sandbox("confined") as sandbox:
        server = pid_of(sandbox)
        os.kill(server, signal.SIGSTOP)
        started = time.monotonic()
        result = sandbox.run("print(1)", limits=QUICK)
        assert result.error == "sandbox_died" and time.monotonic() - started < SLOW
        assert list(members(server)) == []
        assert sandbox.run("print(1)").ok


def test_a_client_that_is_killed_leaves_nothing() -> None:
    code = """
        import sys, threading, time
        from gem_core.execution.sandbox import SandboxLimits
        from gem_sandbox import Sandbox
        sandbox = Sandbox("confined")
        run = lambda: sandbox.run("while True: pass", limits=SandboxLimits(seconds=60, cpu_s=60))
        threading.Thread(target=run, daemon=True).start()
        time.sleep(0.5)
        print(sandbox._servers[0].pid, sandbox._servers[0]._folder, flush=True)
        time.sleep(60)
    """
    client = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert client.stdout is not None
    server, folder = client.stdout.readline().split()
    assert len(list(members(int(server)))) >= 2
    client.kill()
    client.communicate()
    until = time.monotonic() + SLOW
    while list(members(int(server))) and time.monotonic() < until:
        time.sleep(0.05)
    assert list(members(int(server))) == []
    sweep(str(Path(folder).parent))
    assert not Path(folder).exists()


def test_a_sweep_leaves_folders_in_use_alone(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "gem-core-sandbox-old" / "call-0").mkdir(parents=True)
    (tmp_path / "gem-core-sandbox-old" / "lock").touch()
    (tmp_path / "gem-core-sandbox-starting").mkdir()
    (tmp_path / "other").mkdir()
    assert sweep(str(tmp_path)) == 1
    assert sorted(os.listdir(tmp_path)) == ["gem-core-sandbox-starting", "other"]
    server = sandbox._servers[0]
    assert server is not None and sweep(str(Path(server._folder).parent)) == 0
    assert sandbox.run("print(1)").ok


def test_a_fork_of_the_process_starts_its_own_server() -> None:
    with Sandbox() as sandbox:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                good = sandbox.run("print(1)").ok and pid_of(sandbox)
                sandbox.close()
                code = 0 if good else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert sandbox.run("print(2)").output == "2\n"


def test_a_level_is_never_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    from gem_sandbox import sandbox as module

    def refuse(options: object) -> object:
        raise SandboxUnavailable(f"no {options.level}.")  # type: ignore[attr-defined]

    monkeypatch.setattr(module, "ServerProcess", refuse)
    with pytest.raises(SandboxUnavailable, match=r"no strict\. .*SECURITY.md"):
        Sandbox("strict")
    with pytest.raises(SandboxUnavailable, match=r"no confined.*'guarded' by name"):
        Sandbox()


def test_a_level_whose_programs_cannot_be_confined_is_not_offered() -> None:
    """Every child fails before it runs a program; here, because its folder cannot be entered."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "broken.py").write_text(
            "import os\n"
            "def refuse(folder): raise PermissionError('no such folder for you')\n"
            "os.chdir = refuse\n"
        )
        options = Options("confined", "plain", packages=(folder,), preload=("broken",))
        with pytest.raises(SandboxUnavailable, match="no program runs: PermissionError: no such"):
            ServerProcess(options)


def test_packages_can_be_imported_and_preloaded() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "helper.py").write_text("value = 42\n")
        for level in ("strict", "confined"):
            with Sandbox(level, packages=(folder,), preload=("helper",)) as sandbox:
                assert sandbox.run("import helper; print(helper.value)").output == "42\n"


def test_numpy_works_where_it_is_offered() -> None:
    """Its folder may lie below a private one; its random numbers differ from call to call."""
    numpy = importlib.util.find_spec("numpy")
    assert numpy is not None and numpy.origin is not None
    folder = str(Path(numpy.origin).parents[1])
    limits = SandboxLimits(seconds=SLOW, cpu_s=SLOW, memory_mb=2048)
    code = "import numpy as np; print(np.eye(2).sum(), np.linalg.det(np.eye(2)), np.random.rand())"
    for level in ("strict", "confined"):
        options = {"packages": (folder,), "preload": ("numpy.random",), "limits": limits}
        with Sandbox(level, **options) as sandbox:  # type: ignore[arg-type]
            outputs = [sandbox.run(code).output.split() for _ in range(2)]
        assert [words[:2] for words in outputs] == [["2.0", "1.0"]] * 2, outputs
        assert outputs[0] != outputs[1]


def test_the_variable_names_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEM_CORE_SANDBOX", "guarded")
    assert Sandbox().level == "guarded"
    with Sandbox("confined") as sandbox:
        assert sandbox.level == "confined"
    monkeypatch.setenv("GEM_CORE_SANDBOX", "strikt")
    with pytest.raises(SandboxError, match=r"from GEM_CORE_SANDBOX.*Did you mean 'strict'"):
        Sandbox()


def test_guarded_runs_programs_but_has_no_sessions() -> None:
    sandbox = Sandbox("guarded")
    result = sandbox.run("print(input(), data)", stdin="a", names={"data": 1})
    assert result.output == "a 1\n" and result.level == "guarded" and result.ok
    assert sandbox.run("while True: pass", limits=QUICK).error == "timeout"
    assert sandbox.run("1 / 0").error == "error"
    with pytest.raises(SandboxError, match="no sessions"):
        sandbox.session()


def test_container_needs_an_engine(at_level: Callable[[str], Sandbox | str]) -> None:
    offered = at_level("container")
    if isinstance(offered, Sandbox):
        result = offered.run("print(6 * 7)")
        assert result.output == "42\n" and result.level == "container"
    else:
        assert "'container'" in offered and ("docker" in offered or "podman" in offered)


def test_every_level_is_described() -> None:
    assert list(LEVELS) == ["strict", "confined", "limited", "container", "guarded"]
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert all(f"**{level}**" in text for level in LEVELS)
    assert f"an escape suite of {len(ATTEMPTS)} attempts" in text


def test_a_closed_sandbox_refuses_calls() -> None:
    sandbox = Sandbox()
    sandbox.close()
    sandbox.close()
    assert sandbox.run("print(1)").error == "sandbox_died"
