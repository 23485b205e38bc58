"""Parts of the server that are tested better by themselves."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gem_core.execution.sandbox.results import SandboxUnavailable
from gem_sandbox.launch import Options, command, ways
from gem_sandbox.server import folders, landlock, library, seccomp, syscalls

ROOT = Path(__file__).resolve().parents[2]


def test_a_folder_is_emptied_whatever_is_in_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "closed").mkdir(mode=0)
    os.chdir(folder)
    for _ in range(1500):  # deeper than any path may be long
        os.mkdir("a" * 20)
        Path("b").symlink_to("/")
        os.chdir("a" * 20)
    os.chdir(ROOT)
    assert folders.usage(str(folder)) is None
    folders.empty(str(folder))
    assert os.listdir(folder) == [] and os.listdir(outside) == ["kept"]
    assert folders.usage(str(folder)) == 0


def test_usage_counts_blocks_and_bounds_the_number_of_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_bytes(bytes(1 << 20))
    used = folders.usage(str(tmp_path))
    assert used is not None and used >= 1 << 20
    for number in range(folders.MOST_FILES):
        (tmp_path / str(number)).touch()
    assert folders.usage(str(tmp_path)) is None


def test_a_private_library_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(library, "_original", str(tmp_path / "os.py"))
    before = list(sys.path)
    with pytest.raises(OSError, match="make it readable for all"):
        library.open_folders()
    assert sys.path == before


def test_every_listed_system_call_has_a_number() -> None:
    """The tables name what the filter names, for both architectures."""
    own = {"fcntl", "ioctl", "prctl", "kill", "tgkill", "prlimit64", "clone", "socketpair"}
    own |= {"close_range", "fallocate", "mmap"}
    named = {*seccomp.ALLOWED, *seccomp.REFUSED, *seccomp.PRETENDED, *seccomp.UNSUPPORTED, *own}
    x86 = syscalls._read(syscalls._X86_64)
    arm = syscalls._read(syscalls._AARCH64)
    assert named <= set(x86)
    only_x86 = named - set(arm)
    assert only_x86 == {
        "access", "alarm", "arch_prctl", "chmod", "chown", "creat", "dup2", "epoll_create",
        "epoll_wait", "eventfd", "fork", "futimesat", "getdents", "getpgrp", "link", "lstat",
        "mkdir", "mknod", "open", "pause", "pipe", "poll", "readlink", "rename", "rmdir", "select",
        "stat", "symlink", "time", "unlink", "utime", "utimes", "vfork",
    }  # fmt: skip


def test_no_system_call_is_on_two_lists() -> None:
    lists = [seccomp.ALLOWED, seccomp.REFUSED, seccomp.PRETENDED, seccomp.UNSUPPORTED]
    names = [name for one in lists for name in one]
    assert len(names) == len(set(names))


def run_filter(code: bytes, number: int, arguments: tuple[int, ...] = (), arch: int = 0) -> int:
    """Run a filter as the kernel does; return its answer."""
    program = list(struct.iter_unpack("HBBI", code))
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("iIQ6Q", number, arch, 0, *padded)
    accumulator = position = 0
    while True:
        operation, true, false, operand = program[position]
        position += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("I", data, operand)[0]
        elif operation == 0x54:
            accumulator &= operand
        elif operation == 0x05:
            position += operand
        elif operation == 0x06:
            return operand
        else:
            tests = {
                0x15: accumulator == operand,
                0x35: accumulator >= operand,
                0x45: bool(accumulator & operand),
            }
            position += true if tests[operation] else false


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("processes", [False, True])
def test_the_filter_answers_every_call_as_the_lists_say(
    machine: str, processes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = syscalls._X86_64 if machine == "x86_64" else syscalls._AARCH64
    numbers = syscalls._read(table)
    monkeypatch.setattr(seccomp, "NUMBERS", numbers)
    monkeypatch.setattr(seccomp, "MACHINE", machine)
    arch = syscalls.AUDIT_ARCHITECTURE[machine]
    pid = 1234
    code = struct.pack("I", pid).join(seccomp.Filter(processes=processes)._parts)
    allow, kill, errno = 0x7FFF0000, 0x80000000, 0x50000

    def answer(name: str, *arguments: int) -> int:
        return run_filter(code, numbers[name], arguments, arch)

    known = set(numbers)
    assert all(answer(name) == allow for name in known & set(seccomp.ALLOWED))
    refused = known & set(seccomp.REFUSED) - ({"fork"} if processes else set())
    assert all(answer(name) == errno | 1 for name in refused)
    assert all(answer(name) == errno for name in known & set(seccomp.PRETENDED))
    listed = {number for name, number in numbers.items()}
    for number in set(range(600)) - listed:
        assert run_filter(code, number, (), arch) == errno | 38
    assert run_filter(code, 0, (), 0x40000003) == kill
    assert run_filter(code, 0x40000000 | numbers["read"], (), arch) == kill
    assert answer("kill", pid) == allow and answer("kill", 1) == errno | 1
    assert answer("kill", 0xFFFFFFFF) == errno | 1 and answer("kill", 0) == errno | 1
    assert answer("clone", 0x3D0F00) == allow  # a thread
    assert answer("clone", 0x3D0F00 & ~0x400) == errno | 1  # one with open files of its own
    assert answer("close_range", 3, 9, 0) == allow and answer("close_range", 3, 9, 2) == errno | 1
    assert answer("fallocate", 3, 0) == allow and answer("fallocate", 3, 1) == errno | 95
    assert answer("mmap", 0, 4096, 3, 0x22) == allow and answer("mmap", 0, 4096, 3, 1) == allow
    assert answer("mmap", 0, 4096, 3, 0x21) == answer("mmap", 0, 4096, 3, 0x23) == errno | 1
    assert answer("clone", 17) == (allow if processes else errno | 1)
    assert answer("clone", 17 | 0x10000000) == errno | 1  # a user namespace
    assert answer("socketpair", 1, 1) == allow and answer("socketpair", 2, 1) == errno | 1
    assert answer("socketpair", 1, 2) == errno | 1
    assert answer("sendto", 3, 0, 0, 0, 0) == allow
    assert answer("sendto", 3, 0, 0, 0, 1 << 40) == errno | 1
    assert answer("prctl", 15) == allow and answer("prctl", 1) == errno | 1
    assert answer("prlimit64", 0) == allow and answer("prlimit64", 1) == errno | 1
    assert answer("ioctl", 0, 0x5412) == errno | 25 and answer("fcntl", 0, 8) == errno | 1


def test_capabilities_are_given_up() -> None:
    code = """
        from gem_sandbox.server import libc
        libc.drop_capabilities()
        status = open("/proc/self/status").read()
        lines = [line.split() for line in status.splitlines() if line.startswith("Cap")]
        sets = [value for name, value in lines if name in ("CapEff:", "CapPrm:")]
        assert {int(value, 16) for value in sets} == {0}, sets
    """
    command_line = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command_line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("version", "bits"), [(1, 13), (2, 14), (3, 15), (4, 15), (5, 16), (7, 16)]
)
def test_older_kernels_handle_fewer_rights(version: int, bits: int) -> None:
    assert landlock.rights_of_version(version) == (1 << bits) - 1


def test_bubblewrap_is_used_where_the_server_cannot_make_namespaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert ways("strict") == ["unshare", "bwrap"] and ways("container") == ["docker", "podman"]
    arguments = command(Options("strict", "bwrap"), "/unused", None)
    assert {"--unshare-net", "--unshare-pid", "--die-with-parent"} <= set(arguments)
    writable = [arguments[i + 1] for i, word in enumerate(arguments) if word == "--tmpfs"]
    volumes = [f"/work/call-{number}" for number in range(Options("strict", "").slots)]
    assert writable == ["/work", *volumes] and "--bind" not in arguments
    container = command(Options("container", "docker"), "/folder", "/folder/control")
    assert container[container.index("--network") + 1] == "none" and "--read-only" in container
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert ways("strict") == ["unshare"]
    with pytest.raises(SandboxUnavailable, match="docker or podman"):
        ways("container")


def test_other_systems_have_no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxUnavailable, match="needs Linux"):
        ways("confined")


def test_the_client_does_not_import_what_only_linux_has() -> None:
    """The level 'guarded' works on other systems."""
    code = (
        "import sys, gem_core.execution.sandbox\n"
        "assert 'gem_sandbox.server.libc' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
