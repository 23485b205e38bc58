"""The messages between client and server; `.server.client` describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem_core.execution.sandbox.results import SandboxLimits, SandboxResult


def request(
    code: str,
    stdin: str | None,
    names: Mapping[str, Any] | None,
    limits: SandboxLimits,
    *,
    keep: bool,
    forks: bool,
) -> dict[str, Any]:
    """Return the message that runs a program."""
    return {
        "op": "run",
        "code": code,
        "stdin": stdin,
        "names": dict(names or {}),
        "limits": limits._asdict(),
        "keep": keep,
        "forks": forks,
    }


def result_of(answer: Mapping[str, Any], level: str) -> SandboxResult:
    """Return the result that a server's answer describes."""
    return SandboxResult(
        answer["output"], answer["kind"], answer["seconds"], answer["truncated"], level
    )
