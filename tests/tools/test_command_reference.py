"""``scripts/command_reference.py``: docs/commands.md has every command and every option."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import command_reference  # noqa: E402

PAGE = ROOT / "docs" / "commands.md"


def sections() -> dict[str, str]:
    """Return the text of each command's section."""
    parts = PAGE.read_text(encoding="utf-8").split("\n## gem-core ")[1:]
    return {part.partition("\n")[0]: part for part in parts}


@pytest.mark.parametrize("columns", ["20", "300"])
def test_the_page_is_up_to_date_on_every_terminal(columns: str) -> None:
    command = [sys.executable, "scripts/command_reference.py", "--check"]
    variables = {**os.environ, "COLUMNS": columns, "LANGUAGE": "de"}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=variables
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_option_of_every_command_is_in_its_section() -> None:
    found = sections()
    commands = command_reference.own_commands()
    assert found.keys() == commands.keys() >= {"train", "plan", "model", "view"}
    for name, parser in commands.items():
        inner = command_reference.children(parser).values()
        for action in [one for part in (parser, *inner) for one in part._actions]:
            for option in set(action.option_strings) - {"-h", "--help"}:
                common = option in ("-v", "--verbose", "-q", "--quiet")
                assert (f"`{option}`" in found[name]) is not common, (name, option)


def test_what_an_argument_takes_is_said_in_its_row() -> None:
    train, evaluate = sections()["train"], sections()["eval"]
    assert "`gem-core train [BASELINE|FILE] --trainer TRAINER [OPTIONS]`" in train
    assert "| `BASELINE` or `FILE` | may be left out |  |" in train
    assert "| `--trainer` | `TRAINER` | must be given | name of the trainer |" in train
    assert "not together with `--overwrite`" in train
    assert "| `--api` | `chat` or `completions` | chat |" in evaluate
    assert "### gem-core model get" in sections()["model"]


def test_an_argument_that_was_added_makes_the_page_old(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser(description="Do something.")
    parser.add_argument("--new", nargs="+", metavar="A|B", default=["x"], help="signs: * | <b>")
    monkeypatch.setattr(command_reference, "own_commands", lambda: {"new": parser})
    assert command_reference.page() != PAGE.read_text(encoding="utf-8")
    row = "| `--new` | `A` or `B`, one or more | x | signs: \\* \\| &lt;b> |"
    assert row in command_reference.page()
