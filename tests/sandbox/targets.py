"""What the attempts try to reach, made for them; and how an attempt is run."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gem_core.execution.sandbox import SandboxLimits, SandboxResult
from gem_sandbox import Sandbox

LIMITS = SandboxLimits(seconds=1.5, cpu_s=2, memory_mb=256, threads=16, file_mb=16, disk_mb=32)
SECRET = "GEM_CORE_TEST_SECRET"


@contextlib.contextmanager
def targets(sandbox: Sandbox) -> Iterator[dict[str, Any]]:
    """Make files, sockets and a neighbour for the programs; yield their global variables."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        private = folder / "private"
        private.write_text("private")
        private.chmod(0o600)
        public = folder / "public"
        public.write_text("public")
        public.chmod(0o644)
        shared = folder / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        abstract = f"gem-core-{secrets.token_hex(8)}"
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for address in (str(folder / "socket"), "\0" + abstract):
            listening = stack.enter_context(socket.socket(socket.AF_UNIX))
            listening.bind(address)
            listening.listen(1)
        (folder / "socket").chmod(0o777)
        neighbour = stack.enter_context(sandbox.session())
        wrote = neighbour.run("import os\nopen('secret', 'w').write('x')\nprint(os.getcwd())")
        server = sandbox._servers[0]
        assert wrote.ok and server is not None
        yield {
            "private_file": str(private),
            "public_file": str(public),
            "open_folder": str(shared),
            "port": tcp.getsockname()[1],
            "socket_path": str(folder / "socket"),
            "abstract_socket": abstract,
            "client_pid": os.getpid(),
            "server_pid": server.pid,
            "other_folder": wrote.output.strip(),
        }
        assert private.read_text() == "private" and private.stat().st_mode & 0o777 == 0o600
        assert os.listdir(shared) == [] or sandbox.level == "limited"


def run_attempt(
    sandbox: Sandbox, attempt: Any, preamble: str, names: dict[str, Any]
) -> SandboxResult:
    """Run an attempt as the sandbox's level allows it."""
    real = sandbox.level == "strict" or not attempt.harmless
    code = attempt.code if real else attempt.harmless
    return sandbox.run(preamble + code, names=names, limits=LIMITS)


def escaped(result: SandboxResult) -> bool:
    """Return whether a program printed that it succeeded; a traceback's lines are indented."""
    return any(line.startswith("ESCAPED") for line in result.output.splitlines())
