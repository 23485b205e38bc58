"""Freed memory is kept: counted in page faults of a separate process."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from gem_core.training.allocator import keep_freed_memory

BLOCK, ROUNDS, PAGE = 40_000_000, 10, 4096  # glibc itself learns to keep blocks up to 32 MiB
CHILD = f"""
import resource, sys
from gem_core.training.allocator import keep_freed_memory
if "keep" in sys.argv:
    assert keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    block = b"x" * {BLOCK}
    del block
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")


def page_faults(*arguments: str, **environ: str) -> int:
    command = [sys.executable, "-c", CHILD, *arguments]
    # A CPU run in this process leaves its settings to every process started after it.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=plain | environ)
    return int(done.stdout)


@glibc
def test_a_freed_block_is_used_again() -> None:
    every_round = ROUNDS * BLOCK // PAGE
    assert page_faults() > 0.9 * every_round
    assert page_faults("keep") < 0.2 * every_round


@glibc
def test_the_users_own_setting_wins() -> None:
    own = {"MALLOC_MMAP_MAX_": "65536", "MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_TOP_PAD_": "0"}
    assert page_faults("keep", **own) > 0.9 * ROUNDS * BLOCK // PAGE


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.delenv("MALLOC_MMAP_MAX_", raising=False)
    assert keep_freed_memory() is False
    assert "MALLOC_MMAP_MAX_" not in os.environ
