"""The command line that starts a server at a level."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from gem_core.execution.sandbox.results import SandboxUnavailable
from gem_sandbox.server.library import program_paths, readable_paths

_HERE = os.path.dirname(os.path.abspath(__file__))
_START = (
    "import sys; sys.path.insert(0, sys.argv[2]); from server import main; "
    "sys.path.remove(sys.argv[2]); main.main()"
)
_INSIDE_CONTAINER = "/gem-core-sandbox"
_IMAGE = "docker.io/library/python:{0.major}.{0.minor}-slim"
_CAPABILITIES = ["SETUID", "SETGID", "CHOWN", "KILL", "DAC_OVERRIDE", "FOWNER"]
"""What the server keeps in bubblewrap: to give programs a uid each, and to remove their files."""

_VOLUMES = {"unshare": "own", "bwrap": "given"}
"""How each slot gets a volume, see `gem_sandbox.server.volumes`."""


class Options(NamedTuple):
    """How a server is started.

    Attributes:
        level: a level of `gem_core.execution.sandbox.LEVELS` that has a server.
        how: ``"bwrap"``, ``"unshare"``, ``"plain"``, ``"docker"`` or ``"podman"``.
        slots: calls and sessions at once.
        spares: confined children that wait for a call.
        tmpfs_mb: the most that the files of one program may take at level *strict*, and those of
            all at level *container*.
        packages: folders that programs may import from, besides the standard library.
        preload: modules that the server imports before its first program.
        programs: whether programs may execute the system's programs, and files of their own.
    """

    level: str
    how: str
    slots: int = 64
    spares: int = 2
    tmpfs_mb: int = 512
    packages: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    programs: bool = False


def ways(level: str) -> list[str]:
    """Return how a level can be started here, the best first.

    Raises:
        SandboxUnavailable: not at all; the message says what is missing.
    """
    if not sys.platform.startswith("linux"):
        raise SandboxUnavailable(
            f"The sandbox level {level!r} needs Linux; on {sys.platform} only 'container' and "
            "'guarded' exist."
        )
    if level == "strict":
        return ["unshare", "bwrap"] if shutil.which("bwrap") else ["unshare"]
    if level == "container":
        engines = [name for name in ("docker", "podman") if shutil.which(name)]
        if not engines:
            raise SandboxUnavailable(
                "The sandbox level 'container' needs docker or podman on the PATH: install one."
            )
        return engines
    return ["plain"]


def command(options: Options, folder: str, socket_path: str | None) -> list[str]:
    """Return the command of a server.

    Args:
        options: how it is started.
        folder: a private folder that exists, for the programs' files.
        socket_path: where to connect to, for a server that cannot inherit a socket.
    """
    if options.how in ("docker", "podman"):
        return _in_container(options, folder)
    python = os.path.realpath(sys.executable)
    if options.how == "bwrap":
        return [*_bubblewrap(options, python), *_python(python, options, "/work", _HERE, None)]
    return _python(python, options, folder, _HERE, socket_path)


def _python(
    python: str, options: Options, folder: str, package: str, socket_path: str | None
) -> list[str]:
    passed: dict[str, Any] = {
        "level": options.level,
        "namespaces": options.how == "unshare",
        "folder": folder,
        "volume": _VOLUMES.get(options.how, ""),
        "socket": socket_path,
        "slots": options.slots,
        "spares": options.spares,
        "tmpfs_mb": options.tmpfs_mb,
        "packages": options.packages,
        "preload": options.preload,
        "programs": options.programs,
    }
    return [python, "-I", "-S", "-B", "-c", _START, json.dumps(passed), package]


def _bubblewrap(options: Options, python: str) -> list[str]:
    arguments = [
        shutil.which("bwrap") or "bwrap",
        "--die-with-parent",
        "--as-pid-1",
        "--cap-drop",
        "ALL",
    ]
    for name in ("pid", "net", "ipc", "uts"):
        arguments.append(f"--unshare-{name}")
    if os.getuid() == 0:
        for name in _CAPABILITIES:
            arguments += ["--cap-add", f"CAP_{name}"]
    arguments += ["--size", str(1 << 20), "--perms", "0711", "--tmpfs", "/work"]
    for number in range(options.slots):
        volume = ["--perms", "0700", "--tmpfs", f"/work/call-{number}"]
        arguments += ["--size", str(options.tmpfs_mb << 20), *volume]
    paths = [*readable_paths(), *options.packages, python, _HERE]
    if options.programs:
        paths += program_paths()
    shown = [path for path in paths if not path.startswith("/dev/")]
    for folder in _parents(shown):  # bubblewrap would make them private
        arguments += ["--perms", "0755", "--dir", folder]
    for path in shown:
        arguments += ["--ro-bind-try", path, path]
    for device in ("null", "urandom", *(["zero"] if options.programs else [])):
        arguments += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    return [*arguments, "--chdir", "/", "--"]


def _parents(paths: list[str]) -> list[str]:
    """Return the folders above the paths, each after those above it."""
    folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    return sorted(folders - {"/"})


def _in_container(options: Options, folder: str) -> list[str]:
    """Return a command whose server connects to the socket ``control`` in ``folder``."""
    limits = ["--memory", f"{2 * options.tmpfs_mb}m", "--pids-limit", "512"]
    mounts = [f"{_HERE}:{_INSIDE_CONTAINER}:ro", f"{folder}:{_INSIDE_CONTAINER}-socket"]
    arguments = [options.how, "run", "--rm", "--init", "--network", "none", "--read-only"]
    arguments += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", *limits]
    for name in _CAPABILITIES:
        arguments += ["--cap-add", name]
    for mount in mounts:
        arguments += ["--volume", mount]
    arguments += ["--tmpfs", f"/work:size={options.tmpfs_mb}m,mode=0711"]
    image = os.environ.get("GEM_CORE_SANDBOX_IMAGE") or _IMAGE.format(sys.version_info)
    connect = f"{_INSIDE_CONTAINER}-socket/control"
    inner = _python("python3", options._replace(packages=()), "/work", _INSIDE_CONTAINER, connect)
    return [*arguments, image, *inner]
