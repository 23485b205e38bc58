"""The seccomp filter of a program: a list of the system calls that it may make.

A call that is not on the list fails with ``ENOSYS``, as on a kernel that does not have it, so that
libraries use an older one. Calls that programs try on purpose (sockets, processes, ptrace) fail
with ``EPERM``. The filter is a binary search over the call's number, so that a call costs about
ten instructions.
"""

from __future__ import annotations

import ctypes
import struct

from . import libc
from .syscalls import AUDIT_ARCHITECTURE, MACHINE, NUMBERS


def _names(text: str) -> list[str]:
    return text.split()


ALLOWED = _names(
    """
access alarm arch_prctl brk chdir clock_getres clock_gettime clock_nanosleep close
copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_wait
eventfd eventfd2 exit exit_group faccessat faccessat2 fchdir fdatasync flock fstat
fstatfs fsync ftruncate futex get_robust_list getcpu getcwd getdents getdents64 getegid geteuid
getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getrandom getresgid
getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid link linkat
lseek lstat madvise membarrier mincore mkdir mkdirat mlock mprotect mremap msync munlock
munmap nanosleep newfstatat open openat pause pipe pipe2 poll ppoll pread64 preadv pselect6
pwrite64 pwritev read readlink readlinkat readv recvfrom recvmsg rename renameat renameat2
restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend
rt_sigtimedwait sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getparam
sched_getscheduler sched_yield select sendfile set_robust_list set_tid_address setitimer setrlimit
setsockopt shutdown sigaltstack splice stat statfs statx symlink symlinkat sysinfo tee time
timer_create timer_delete timer_gettime timer_settime timerfd_create timerfd_gettime
timerfd_settime times umask uname unlink unlinkat wait4 waitid write writev
"""
)
"""Calls that are allowed with any arguments."""

REFUSED = _names(
    """
accept accept4 bind bpf capset chown connect execve execveat fork kcmp listen memfd_create mknod
mknodat mount pidfd_open pivot_root ptrace rt_sigqueueinfo seccomp setgid setgroups setns setpgid
setregid setresgid setresuid setreuid setsid setuid socket tkill umount2 unshare vfork
"""
)
"""Calls that fail with ``EPERM`` instead of ``ENOSYS``."""

PRETENDED = _names(
    """
chmod fchmod fchmodat fchmodat2 futimesat utime utimensat utimes
"""
)
"""Calls that succeed without doing anything.

Landlock does not restrict them, so a program without a uid of its own could change the user's
files; `shutil.copy2` and `zipfile` call them and need no effect.
"""

UNSUPPORTED = _names(
    """
fgetxattr flistxattr fremovexattr fsetxattr getxattr lgetxattr listxattr llistxattr lremovexattr
lsetxattr removexattr setxattr
"""
)
"""Calls that fail with ``ENOTSUP``, which `shutil.copy2` expects of a file system without them."""

_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIO*
_FCNTL_REFUSED = (8, 10, 15, 1024, 1026, 1031)  # F_SETOWN F_SETSIG F_SETOWN_EX F_SETLEASE ...
_PRCTL = (15, 16)  # PR_SET_NAME, PR_GET_NAME
_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}  # where their mode is
_CLONE_THREAD = 0x10000
_CLONE_FILES = 0x400
_CLOSE_RANGE_UNSHARE = 2
_MAP_SHARED = 0x01  # also a bit of MAP_SHARED_VALIDATE
_MAP_ANONYMOUS = 0x20
_CLONE_REFUSED = 0x7E020080 | 0x8000 | 0x2000  # namespaces, CLONE_PARENT, CLONE_PTRACE

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x50000
_EPERM = _ERRNO | 1
_ENODEV = _ERRNO | 19
_ENOTTY = _ERRNO | 25
_ENOSYS = _ERRNO | 38
_ENOTSUP = _ERRNO | 95

_LOAD = 0x20
_RETURN = 0x06
_JUMP = 0x05
_IF_EQUAL = 0x15
_IF_AT_LEAST = 0x35
_IF_ANY_BIT = 0x45
_AND = 0x54
_X32 = 0x40000000
_PID_MARK = 0x5A5A5A5A
"""Stands for the process id in a filter that is built before the process exists."""

Instruction = tuple[int, int, int, int]
"""``(code, jump if true, jump if false, operand)``."""


class Filter:
    """The filter of a program, built once; `install` puts the process id in.

    Args:
        processes: whether it may fork.
        programs: whether it may execute other programs, which have the same filter.
        zero_device: whether it can open ``/dev/zero`` for writing, which maps as shared memory.
        own_user: whether no other process has its uid: then it may change the rights of files, and
            with ``programs`` send signals to processes by their id.
        own_signals: whether something else keeps its signals inside, as Landlock does.
    """

    def __init__(
        self,
        *,
        processes: bool,
        programs: bool = False,
        zero_device: bool = False,
        own_user: bool = False,
        own_signals: bool = False,
    ):
        rules = _rules(processes)
        if programs:
            rules.update(_rules_of_programs(own_user, own_user or own_signals))
        if zero_device:
            rules[NUMBERS["mmap"]] = _no_bit(3, _MAP_SHARED, _ENODEV)
        self._parts = _assemble(rules).split(struct.pack("I", _PID_MARK))

    def install(self, pid: int) -> None:
        """Confine this process, whose id is ``pid``, for ever. `libc.no_new_privs` comes first."""
        code = struct.pack("I", pid).join(self._parts)
        program = _Program(len(code) // 8, code)
        set_mode_filter = 1
        libc.call("seccomp", NUMBERS["seccomp"], set_mode_filter, 0, ctypes.byref(program))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _rules(processes: bool) -> dict[int, list[Instruction]]:
    """Return the instructions for each system call that has its own."""
    by_name = {name: _answer(_ALLOW) for name in ALLOWED}
    by_name.update({name: _answer(_EPERM) for name in REFUSED})
    by_name.update({name: _answer(_ERRNO) for name in PRETENDED})
    by_name.update({name: _answer(_ENOTSUP) for name in UNSUPPORTED})
    by_name["ioctl"] = _one_of(1, _IOCTL, _ALLOW, _ENOTTY)
    by_name["fcntl"] = _one_of(1, _FCNTL_REFUSED, _EPERM, _ALLOW)
    by_name["prctl"] = _one_of(0, _PRCTL, _ALLOW, _EPERM)
    by_name["kill"] = _one_of(0, (_PID_MARK,), _ALLOW, _EPERM)
    by_name["tgkill"] = _one_of(0, (_PID_MARK,), _ALLOW, _EPERM)
    by_name["prlimit64"] = _one_of(0, (0, _PID_MARK), _ALLOW, _EPERM)
    by_name["clone"] = _clone(processes)
    by_name["close_range"] = _no_bit(2, _CLOSE_RANGE_UNSHARE, _EPERM)
    by_name["fallocate"] = _one_of(1, (0,), _ALLOW, _ENOTSUP)  # else beyond the limit of a file
    by_name["mmap"] = _mmap()
    by_name["socketpair"] = _socketpair()
    by_name["sendto"] = _sendto()
    if processes:
        by_name["fork"] = _answer(_ALLOW)
    return {NUMBERS[name]: code for name, code in by_name.items() if name in NUMBERS}


def _rules_of_programs(own_user: bool, own_signals: bool) -> dict[int, list[Instruction]]:
    """Return the rules that differ where other programs may be executed.

    Process groups and sessions stay refused, so that the server ends all processes by their group.
    """
    by_name = {name: _answer(_ALLOW) for name in ("execve", "fork", "vfork")}
    by_name["clone"] = _clone(True)
    if own_user:
        by_name.update({name: _answer(_ALLOW) for name in PRETENDED})
        by_name.update({name: _mode(argument) for name, argument in _MODES.items()})
    if own_signals:
        by_name["kill"] = _kill_by_id()
        by_name["tgkill"] = _kill_by_id()
    return {NUMBERS[name]: code for name, code in by_name.items() if name in NUMBERS}


def _mode(argument: int) -> list[Instruction]:
    """Rights without those by which a program runs as its owner."""
    set_user_or_group = 0o6000
    return [
        _load(argument),
        (_IF_ANY_BIT, 0, 1, set_user_or_group),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _kill_by_id() -> list[Instruction]:
    """Signals to one process: 0 and negative numbers mean groups, or all processes of the user."""
    return [
        _load(0),
        (_IF_EQUAL, 1, 0, 0),
        (_IF_AT_LEAST, 0, 1, 1 << 31),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _answer(value: int) -> list[Instruction]:
    return [(_RETURN, 0, 0, value)]


def _load(argument: int, *, high: bool = False) -> Instruction:
    """Load the low or high half of an argument (the machine is little-endian)."""
    return (_LOAD, 0, 0, 16 + 8 * argument + (4 if high else 0))


def _one_of(argument: int, values: tuple[int, ...], hit: int, miss: int) -> list[Instruction]:
    tests = [(_IF_EQUAL, len(values) - number, 0, value) for number, value in enumerate(values)]
    return [_load(argument), *tests, (_RETURN, 0, 0, miss), (_RETURN, 0, 0, hit)]


def _no_bit(argument: int, bits: int, refusal: int) -> list[Instruction]:
    """Allow a call where an argument has none of the bits."""
    code = [_load(argument), (_IF_ANY_BIT, 0, 1, bits)]
    return [*code, (_RETURN, 0, 0, refusal), (_RETURN, 0, 0, _ALLOW)]


def _mmap() -> list[Instruction]:
    """All but shared memory without a file.

    The kernel keeps all of it as long as a part is mapped, and only the part counts.
    """
    shared_memory = _MAP_SHARED | _MAP_ANONYMOUS
    return [
        _load(3),
        (_AND, 0, 0, shared_memory),
        (_IF_EQUAL, 0, 1, shared_memory),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _clone(processes: bool) -> list[Instruction]:
    """Threads that share their open files, which the server looks at; or processes too."""
    code = [_load(0), (_IF_ANY_BIT, 0, 1, _CLONE_REFUSED), (_RETURN, 0, 0, _EPERM)]
    code += [(_IF_ANY_BIT, 0, 2, _CLONE_THREAD), (_IF_ANY_BIT, 2, 0, _CLONE_FILES)]
    code += [(_RETURN, 0, 0, _EPERM)]
    return [*code, (_RETURN, 0, 0, _ALLOW if processes else _EPERM), (_RETURN, 0, 0, _ALLOW)]


def _socketpair() -> list[Instruction]:
    """Pairs of Unix stream sockets only: event loops wake themselves with one."""
    unix = 1
    stream = 1
    return [
        _load(0),
        (_IF_EQUAL, 1, 0, unix),
        (_RETURN, 0, 0, _EPERM),
        _load(1),
        (_AND, 0, 0, 0xF),
        (_IF_EQUAL, 1, 0, stream),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _sendto() -> list[Instruction]:
    """Send to the connected end only: the address must be null."""
    code: list[Instruction] = []
    for high in (False, True):
        code += [_load(4, high=high), (_IF_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _EPERM)]
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def _assemble(rules: dict[int, list[Instruction]]) -> bytes:
    ranges: list[tuple[int, list[Instruction]]] = []
    for number in range(max(rules) + 2):
        code = rules.get(number, _answer(_ENOSYS))
        if not ranges or ranges[-1][1] != code:
            ranges.append((number, code))
    program: list[Instruction] = [
        (_LOAD, 0, 0, 4),
        (_IF_EQUAL, 1, 0, AUDIT_ARCHITECTURE[MACHINE]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        (_IF_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
        *_search(ranges),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def _search(ranges: list[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Return a binary search: the number is in the accumulator."""
    if len(ranges) == 1:
        return list(ranges[0][1])
    middle = len(ranges) // 2
    low = _search(ranges[:middle])
    high = _search(ranges[middle:])
    first = ranges[middle][0]
    if len(low) < 256:
        return [(_IF_AT_LEAST, len(low), 0, first), *low, *high]
    return [(_IF_AT_LEAST, 0, 1, first), (_JUMP, 0, 0, len(low)), *low, *high]
