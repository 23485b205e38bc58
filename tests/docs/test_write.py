"""Every block of docs/write is run: Python, TOML and commands, see `page_runner.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gem_core.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "write").glob("*.md"))
RUNNER = Path(__file__).with_name("page_runner.py")
OTHERS = ("GEM_CORE_TRUST", "GEM_CORE_SANDBOX", "GEM_CORE_SANDBOX_BACKEND", "PYTHONPATH")
"""Variables that a reader does not have; the first would hide that ``--trust`` is missing."""


def run(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name not in OTHERS}
    return subprocess.run(
        [sys.executable, RUNNER, page, folder],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    done = run(page, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    fences = [line for line in page.read_text(encoding="utf-8").splitlines() if line[:3] == "```"]
    assert done.stdout.splitlines()[-1] == str(len(fences) // 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nassert False\n```\n", "AssertionError"),
        ("```text\nx\n```\n", "no rule runs a block of the kind 'text'"),
        ("```\nx\n```\n", "no rule runs a block of the kind ''"),
        (" ```python\n1 / 0\n ```\n```\n", "a fence of the page is none of a block"),
        ("```toml\nname = 1\n```\n", "needs the name of its file"),
        ("`x.toml`:\n\n```toml\nnome = 1\n```\n", "nome"),
        ("```bash\ngem-core check no_module:Task\n```\n", "Unknown environment"),
        ("```bash\nmake test\n```\n", "no rule runs this line: make test"),
        ("```bash\ngem-core train quickstart.toml --trainer trl\n```\n", "quickstart.toml"),
        (
            "```bash\ngem-core train guess-the-number-easy --trainer trl --trust\n```\n",
            "--trust is not needed",
        ),
    ],
)
def test_a_block_that_is_wrong_or_that_nothing_runs_is_found(
    tmp_path: Path, text: str, message: str
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    done = run(page, tmp_path)
    assert done.returncode != 0 and message in done.stdout + done.stderr


def test_the_environment_that_the_readme_shows_passes_the_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "shown_by_readme.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # the checks play in other processes, too
    status = main(["check", "shown_by_readme:HigherLower"])
    assert status == 0 and "checks passed" in capsys.readouterr().out
