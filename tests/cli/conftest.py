"""Commands as a user gives them: in this process, and in one of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gem_core.cli import main


@pytest.fixture
def gem(capsys, tmp_path, monkeypatch):
    """``gem("list", "guess")`` -> (exit code, stdout, stderr), in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("GEM_CORE_DEBUG", raising=False)

    def run(*argv):
        code = main([str(part) for part in argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def process(tmp_path):
    """Run ``python -m gem_core`` in an empty directory; options are those of `subprocess.run`."""

    def run(*argv, **options):
        command = [sys.executable, "-m", "gem_core", *map(str, argv)]
        options = {"cwd": tmp_path, "env": dict(os.environ), **options}
        return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)

    return run
