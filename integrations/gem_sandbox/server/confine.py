"""What confines a program before it runs: its user, its files, its system calls, its limits."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping

from . import landlock, libc, library
from .seccomp import Filter

_FIRST_UID = 2_000_000
_UIDS = 64  # of one server
_MB = 1 << 20


class Confinement:
    """How programs of one server are confined.

    Args:
        level: ``"strict"``, ``"confined"`` or ``"limited"``.
        packages: more folders that a program may read.
        programs: whether a program may execute the system's programs, and files of its own.
        looks: whether the server looks at what programs hold open, because they have no volumes.

    Attributes:
        landlock: version of Landlock that is used; 0: none.
        first_uid: programs run as this uid and the following; ``None``: as the server's.
        library: number of open folders of the standard library.
        programs: as given.
        looks_as_user: whether the server must become a program's user to look at its processes.

    Raises:
        OSError: this machine does not offer the level; the message says why.
    """

    def __init__(
        self,
        level: str,
        packages: tuple[str, ...] = (),
        *,
        programs: bool = False,
        looks: bool = True,
    ):
        self.landlock = 0 if level == "limited" else landlock.abi()
        self.first_uid = _first_uid()
        self.library = 0
        if level == "confined" and not self.landlock:
            raise OSError("this kernel has no Landlock (Linux 5.13), or it is switched off")
        if not self.landlock and self.first_uid is None:
            raise OSError("without Landlock, programs need a user of their own: run as root")
        if looks and not os.path.isdir("/proc/self/fd"):
            raise OSError("/proc is missing, which shows what programs hold open")
        self.programs = programs
        self.looks_as_user = looks and self.own_user and not _may_trace()
        self._readable = [*library.readable_paths(), *packages]
        if programs or self.landlock:  # which lets nobody write to it
            self._readable.append("/dev/zero")
        if self.first_uid is not None and not library.open_to_all(packages):
            self.library = library.open_folders(packages)
        self._programs = library.program_paths() if programs else []
        self._filters = {
            forks: Filter(
                processes=forks,
                programs=programs,
                zero_device=programs and not self.landlock,
                own_user=self.own_user,
                own_signals=self.landlock >= landlock.SCOPES_SIGNALS,
            )
            for forks in (False, True)
        }

    @property
    def own_user(self) -> bool:
        """Whether no other process has the uid of a program."""
        return self.first_uid is not None

    def uid(self, slot: int) -> int | None:
        """Return the uid of a slot."""
        return None if self.first_uid is None else self.first_uid + slot % _UIDS

    def ruleset(self, folder: str) -> int:
        """Return a Landlock rule set for programs that own ``folder``; -1 without Landlock."""
        if not self.landlock:
            return -1
        rules = [(path, landlock.READ) for path in self._readable if os.path.exists(path)]
        rules += [("/dev/null", landlock.WRITE)]
        own = landlock.WRITE
        if self._programs:
            rules += [(path, landlock.EXECUTE) for path in self._programs]
            own |= landlock.EXECUTE
        return landlock.ruleset([*rules, (folder, own)], self.landlock)

    def enter(self, uid: int | None, ruleset: int, parent: int, *, forks: bool) -> None:
        """Confine this process for ever."""
        if uid is not None:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        libc.drop_capabilities()
        if self.looks_as_user:
            libc.let_user_look()
        libc.die_with_parent(signal.SIGKILL, parent)
        libc.no_new_privs()
        if ruleset >= 0:
            landlock.restrict(ruleset)
            os.close(ruleset)
        self._filters[forks].install(os.getpid())


def apply(limits: Mapping[str, float], *, other_tasks: int, keep: bool) -> None:
    """Set the resource limits of this process.

    Args:
        limits: the fields of `gem_core.execution.sandbox.SandboxLimits`.
        other_tasks: the threads that other processes of our uid have or may get.
        keep: whether more calls follow, whose CPU time must not be limited by this one's.
    """
    spent = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(spent.ru_utime + spent.ru_stime + limits["cpu_s"]) + 1
    _limit(resource.RLIMIT_CPU, cpu, resource.RLIM_INFINITY if keep else cpu + 1)
    memory = int(limits["memory_mb"] * _MB)
    size = int(limits["file_mb"] * _MB)
    _limit(resource.RLIMIT_AS, memory, memory)
    _limit(resource.RLIMIT_FSIZE, size, size)
    _limit(resource.RLIMIT_STACK, 64 * _MB, 64 * _MB)
    _limit(resource.RLIMIT_NOFILE, 64, 64)
    _limit(resource.RLIMIT_CORE, 0, 0)
    _limit(resource.RLIMIT_MEMLOCK, 1 << 16, 1 << 16)
    _limit(resource.RLIMIT_SIGPENDING, 64, 64)
    threads = int(limits["threads"]) + other_tasks
    _limit(resource.RLIMIT_NPROC, threads, threads)


def _limit(kind: int, soft: int, hard: int) -> None:
    """Set a limit, never above the one that holds already."""
    allowed = resource.getrlimit(kind)[1]
    if allowed != resource.RLIM_INFINITY:
        hard = allowed if hard == resource.RLIM_INFINITY else min(hard, allowed)
        soft = min(soft, allowed)
    resource.setrlimit(kind, (soft, hard))


def _first_uid() -> int | None:
    """Return the first of `_UIDS` uids that nobody uses; ``None`` where we cannot change the uid.

    A user namespace may map few uids: then the highest of them are taken.
    """
    if os.getuid() != 0:
        return None
    first = _FIRST_UID + int.from_bytes(os.urandom(4), "little") % 100_000 * _UIDS
    try:
        with open("/proc/self/uid_map") as file:
            ranges = [tuple(map(int, line.split())) for line in file]
    except FileNotFoundError:  # no /proc: a root folder of our own
        ranges = [(0, 0, 1 << 32)]
    if not any(start <= first and first + _UIDS <= start + size for start, _, size in ranges):
        start, _, size = max(ranges, key=lambda entry: entry[2])
        if size < 2 * _UIDS:
            return None
        first = start + size - _UIDS
    return first if _can_become(first) else None


def _can_become(uid: int) -> bool:
    """Return whether a process can become another user, tried in a child."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _may_trace() -> bool:
    """Return whether this process may look at processes of other users."""
    ptrace = 1 << 19
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        fields = dict(line.split(":", 1) for line in file)
    return bool(int(fields["CapEff"], 16) & ptrace)


def tasks_of_user() -> int:
    """Return the number of threads of our user, as far as /proc shows them."""
    count = 0
    for name in filter(str.isdigit, _list_folder("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{name}/task"))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended, or is hidden
    return count


def _list_folder(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
