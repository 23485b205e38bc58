"""A sandbox whose programs may execute others: what it allows, and that all else is held."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attempts import ATTEMPTS, PREAMBLE
from targets import LIMITS, SECRET, escaped, run_attempt, targets

from gem_core.execution.sandbox import SandboxLimits, SandboxUnavailable
from gem_core.execution.sandbox.shell import Shell, ShellLimits
from gem_sandbox import Sandbox
from gem_sandbox.processes import members


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[Callable[[str], Sandbox]]:
    made: dict[str, Sandbox] = {}

    def get(level: str) -> Sandbox:
        if level not in made:
            try:
                made[level] = Sandbox(level, programs=True, preload=("subprocess",))
            except SandboxUnavailable as refusal:
                assert "cannot run here" in str(refusal)
                made[level] = made.get("confined") or Sandbox("confined", programs=True)
        return made[level]

    yield get
    for sandbox in made.values():
        sandbox.close()


@pytest.fixture(params=["strict", "confined", "limited"])
def sandbox(request: pytest.FixtureRequest, sandboxes: Callable[[str], Sandbox]) -> Sandbox:
    return sandboxes(request.param)


@pytest.fixture
def names(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.setenv(SECRET, "1")
    with targets(sandbox) as made:
        yield made


def shell(sandbox: Sandbox, command: str, names: dict[str, Any]) -> str:
    code = textwrap.dedent(
        """
        import subprocess
        done = subprocess.run(
            ["/bin/bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        print(done.stdout.decode(errors="replace"))
        """
    )
    command = command.format(**names)
    return sandbox.run(code, names={"command": command}, limits=LIMITS).output


@pytest.mark.parametrize("sandbox", ["strict", "confined"], indirect=True)
def test_the_escape_suite_is_held_by_programs_too(sandbox: Sandbox, names: dict[str, Any]) -> None:
    promised = [a for a in ATTEMPTS if sandbox.level in a.levels and not a.starts_processes]
    assert len(promised) >= 60
    reached = [a.name for a in promised if escaped(run_attempt(sandbox, a, PREAMBLE, names))]
    assert reached == []


ESCAPES = [
    "cat {private_file} && echo ESCAPED",
    "echo x > {private_file} && echo ESCAPED",
    "cat /etc/shadow && echo ESCAPED",
    "cat {other_folder}/secret && echo ESCAPED",
    "rm -rf {other_folder} 2>/dev/null; ls {other_folder} && echo ESCAPED",
    "ln -s {private_file} link; cat link && echo ESCAPED",
    "ln {private_file} hard; cat hard && echo ESCAPED",
    "chmod 777 {private_file} && [ -w {private_file} ] && echo ESCAPED",
    "touch /usr/bin/new && echo ESCAPED",
    "echo x > /tmp/gem-core-escape-programs && echo ESCAPED",
    "(echo > /dev/tcp/127.0.0.1/{port}) && echo ESCAPED",
    "kill -0 {client_pid} && echo ESCAPED",
    "kill -9 {server_pid} && echo ESCAPED",
    "kill -0 -1 && echo ESCAPED",
    "kill -0 0 && echo ESCAPED",
    "setsid true && echo ESCAPED",
    "nohup setsid sleep 30 > /dev/null 2>&1 && echo ESCAPED",
    "unshare -r true && echo ESCAPED",
    "mount -t tmpfs none . && echo ESCAPED",
    "su -c true root < /dev/null && echo ESCAPED",
    "cp /bin/bash root-shell; chmod u+s root-shell; ./root-shell -p -c 'cat {private_file}' "
    "&& echo ESCAPED",
    "mknod device c 1 8 && echo ESCAPED",
    "env | grep {secret} && echo ESCAPED",
    "ls /proc/{client_pid}/fd && echo ESCAPED",
]
"""What a shell could try."""
ONLY_WITH_LANDLOCK = ("/tmp/gem-core-escape-programs",)


@pytest.mark.parametrize("command", ESCAPES)
def test_a_shell_reaches_nothing(sandbox: Sandbox, names: dict[str, Any], command: str) -> None:
    if sandbox.level == "limited" and any(path in command for path in ONLY_WITH_LANDLOCK):
        command = "touch /usr/lib/new && echo ESCAPED"
    output = shell(sandbox, command, {**names, "secret": SECRET})
    assert "ESCAPED" not in output, output
    server = sandbox._servers[0]
    assert server is not None and server._process.poll() is None


def test_it_executes_programs_of_the_system_and_its_own(sandbox: Sandbox) -> None:
    command = (
        "echo b a | tr ' ' '\\n' | sort; echo 'echo own' > s; sh s; sleep 9 & kill $!; echo $?"
    )
    assert shell(sandbox, command, {}) == "a\nb\nown\n0\n\n"
    if sandbox.own_user:
        assert shell(sandbox, "echo 'echo own' > s; chmod +x s; ./s", {}) == "own\n\n"


def test_without_the_profile_nothing_is_executed() -> None:
    with Sandbox("confined") as plain:
        assert "EPERM" in plain.run(
            "import errno, os\ntry: os.execv('/bin/true', ['true'])\n"
            "except OSError as error: print(errno.errorcode[error.errno])"
        ).output.replace("EACCES", "EPERM")


def test_a_tree_of_processes_ends_with_its_command(sandbox: Sandbox) -> None:
    server = sandbox._servers[0]
    assert server is not None
    before = set(members(server.pid))
    tree = "for i in 1 2 3; do (trap '' TERM HUP INT; sleep 60 & sleep 60 & wait) & done; wait"
    limits = SandboxLimits(seconds=0.4, threads=32)
    code = "import subprocess; subprocess.run(['/bin/bash', '-c', command])"
    started = time.monotonic()
    result = sandbox.run(code, names={"command": tree}, limits=limits)
    assert result.error == "timeout" and time.monotonic() - started < 30  # not 60 s
    bomb = "f() { f | f & }; f; sleep 60"
    assert sandbox.run(code, names={"command": bomb}, limits=limits).error is not None
    until = time.monotonic() + 10
    while len(set(members(server.pid)) - before) > 2 and time.monotonic() < until:
        time.sleep(0.05)
    names = [os.path.basename(name) for name in map(program, members(server.pid)) if name]
    assert not {"sleep", "bash"} & set(names), names


def program(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:  # it has ended meanwhile
        return ""


def test_a_shell_keeps_files_variables_and_functions_but_no_process() -> None:
    one = Shell({"a.txt": "x\n", "b.bin": b"\xff"}, limits=ShellLimits(seconds=1))
    assert one.run("mkdir d; cd d; V='1\n2'; f() { echo f; }; sleep 60 & echo hi").output == "hi\n"
    result = one.run('pwd; echo "$V"; f; cat /home/agent/a.txt; wc -c < ../b.bin; exit 3')
    assert result.output == "/home/agent/d\n1\n2\nf\nx\n1\n" and result.status == 3
    other = one.copy()
    assert other.run("rm ../a.txt; f").output == "f\n"
    assert one.files == {"a.txt": "x\n"} and other.files == {}
    assert one.copy(keep_variables=False).run("pwd; f").output.startswith("/home/agent\n")
    late = one.run("echo x > kept; trap '' TERM; sleep 60")
    assert (late.status, late.error) == (None, "timeout") and "d/kept" in one.paths
    flood = one.run("head -c 300000 /dev/zero | tr '\\0' a")
    assert flood.truncated and len(flood.output) == 64 * 1024 and flood.error is None
    assert one.run("echo \0").status == 1


@pytest.mark.parametrize("answer", ["", "[]", "{}", '{"status": 0}', "[" * 100_000])
def test_a_destroyed_answer_of_a_shell_is_the_commands_error(
    monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """Not a fault of the sandbox, which would take the episode out of the training."""
    monkeypatch.setattr("gem_core.execution.sandbox.shell._PROGRAM", f"print({answer!r})")
    one = Shell({"a": "x"})
    result = one.run("true")
    assert (result.status, result.error) == (None, "error") and one.files == {"a": "x"}


def test_links_and_rights_survive_a_command() -> None:
    one = Shell()
    one.run("echo 'echo own' > s; chmod +x s; ln -s s link; mkfifo pipe; mkdir -p x/y")
    assert one.paths == ["link", "s", "x/", "x/y/"]
    assert one.run("readlink link; sh link").output == "s\nown\n"
