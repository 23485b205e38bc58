"""The program that runs one command of a shell; it runs inside the sandbox.

It is executed with the global ``request``: ``command``, ``files``, ``cwd``, ``variables``,
``seconds``, ``output``, ``most_files``, ``most_bytes`` and ``environment``. It prints a JSON object
with ``output``, ``truncated``, ``status``, ``cwd``, ``variables`` and ``files``. The folder in
which it runs is called `HOME` in everything that comes in and goes out, wherever it is.
"""

from __future__ import annotations

import base64
import json
import os
import select
import stat
import subprocess
import time
from typing import Any

HOME = "/home/agent"
SCRIPT = """trap '{{ pwd; export -p; declare -f; }} >&{descriptor}' EXIT
eval "$2"; SHLVL=1; cd "$1" 2>/dev/null || cd "$HOME"; set -a; eval "$3" """
PART = 1 << 16
STATE = 1 << 16
"""Most bytes of variables and functions; the kernel takes no longer argument."""


def main(request: dict[str, Any]) -> None:
    """Run the command on the files, and print what came of it."""
    here = os.getcwd()
    home = here.encode()
    place(request["files"], home)
    texts = (request["cwd"], request["variables"], request["command"])
    inner = [text.replace(HOME, here) for text in texts]
    result = run(inner, request, here)
    state = result.pop("state").decode(errors="replace").replace(here, HOME)
    cwd, _, variables = state.partition("\n")
    result["cwd"] = cwd or request["cwd"]
    result["variables"] = variables if 0 < len(variables) < STATE else request["variables"]
    output = result["output"].replace(home, HOME.encode())
    result["output"] = output.decode("utf-8", errors="replace")
    result["files"] = snapshot(home, request["most_files"], request["most_bytes"])
    print(json.dumps(result))


def place(files: dict[str, Any], home: bytes) -> None:
    """Write the files into this folder; folders come before what they hold."""
    for path, (kind, data, executable) in sorted(files.items()):
        if kind == "folder":
            os.makedirs(path, exist_ok=True)
            continue
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        content = base64.b64decode(data) if kind == "base64" else data.encode()
        content = content.replace(HOME.encode(), home)
        if kind == "link":
            os.symlink(content, path)
            continue
        mode = 0o700 if executable else 0o600
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "wb") as file:
            file.write(content)


def run(texts: list[str], request: dict[str, Any], here: str) -> dict[str, Any]:
    """Run bash; return its output, its status and the state that it reports at its end."""
    reading, writing = os.pipe()
    script = SCRIPT.format(descriptor=writing)
    environment = {**request["environment"], "HOME": here, "TMPDIR": here, "PWD": here}
    process = subprocess.Popen(
        ["/bin/bash", "--noprofile", "--norc", "-c", script, "bash", *texts],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        pass_fds=(writing,),
    )
    os.close(writing)
    assert process.stdout is not None
    limits = {process.stdout.fileno(): request["output"], reading: STATE}
    parts, truncated = read(process, limits, time.monotonic() + request["seconds"])
    status = process.poll()
    if status is None:
        process.kill()
        process.wait()
    return {
        "output": parts[process.stdout.fileno()],
        "state": parts[reading],
        "truncated": truncated,
        "status": status,
    }


def read(
    process: subprocess.Popen[bytes], limits: dict[int, int], until: float
) -> tuple[dict[int, bytes], bool]:
    """Read until every writer has gone, the shell has ended, or the time is over.

    What is longer than its limit is read and dropped. Processes in the background may keep the
    pipes open: then nothing more is waited for once the shell has ended.
    """
    parts = dict.fromkeys(limits, b"")
    open_ones = set(limits)
    truncated = False
    while open_ones and (left := until - time.monotonic()) > 0:
        ended = process.poll() is not None
        ready, _, _ = select.select(open_ones, [], [], 0.0 if ended else min(left, 0.05))
        if ended and not ready:
            break
        for descriptor in ready:
            part = os.read(descriptor, PART)
            if not part:
                open_ones.discard(descriptor)
            free = limits[descriptor] - len(parts[descriptor])
            parts[descriptor] += part[:free]
            truncated |= len(part) > free
    while process.poll() is None and time.monotonic() < until:  # it closed its output before
        time.sleep(0.001)
    return parts, truncated


def snapshot(home: bytes, most_files: int, most_bytes: int) -> dict[str, Any] | None:
    """Return the files of this folder; ``None``: there are more than are kept."""
    files: dict[str, Any] = {}
    size = 0
    for folder, names, others in os.walk(".", onerror=open_up):
        for name in sorted([*names, *others]):
            path = os.path.join(folder, name)[2:]
            entry = describe(path, home, most_bytes - size)
            if entry is None:
                continue
            files[path] = entry
            size += len(entry[1]) + len(path)
            if len(files) > most_files or size > most_bytes:
                return None
    return files


def open_up(error: OSError) -> None:
    """Leave out a folder that its owner may not read."""


def describe(path: str, home: bytes, most: int) -> list[Any] | None:
    """Return kind, content and whether it is executable; ``None`` for what cannot be kept."""
    about = os.lstat(path)
    if stat.S_ISDIR(about.st_mode):
        return ["folder", "", True]
    if stat.S_ISLNK(about.st_mode):
        target = os.readlink(os.fsencode(path)).replace(home, HOME.encode())
        return ["link", target.decode(errors="replace"), False]
    if not stat.S_ISREG(about.st_mode):
        return None
    try:
        with open(path, "rb") as file:
            content = file.read(most + 1).replace(home, HOME.encode())
    except PermissionError:
        return None
    executable = bool(about.st_mode & 0o100)
    try:
        return ["text", content.decode(), executable]
    except UnicodeDecodeError:
        return ["base64", base64.b64encode(content).decode(), executable]


if __name__ == "__main__":
    main(globals()["request"])
