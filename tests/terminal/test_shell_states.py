"""States of a shell may come from anywhere: their files stay below its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gem_core.errors import StateError
from gem_core.execution.sandbox.shell import HOME, Shell

TEXT = ["text", "x", False]
LINK = ["link", "..", False]
FOLDER = ["folder", "", True]
WRONG: dict[str, dict[str, Any]] = {
    "above": {"../made": TEXT},
    "above, further in": {"a/../../made": TEXT},
    "absolute": {"{folder}/made": TEXT},
    "the folder itself": {"": TEXT},
    "a dot": {"./made": TEXT},
    "through a link": {"way": ["link", "{folder}", False], "way/made": TEXT},
    "through a link, further in": {"way": LINK, "way/a/made": TEXT},
    "through a file": {"file": TEXT, "file/made": TEXT},
    "a device": {"made": ["device", "1:3", False]},
    "a mode": {"made": ["text", "x", 0o4755]},
    "a number": {"made": ["text", 1, False]},
    "not base64": {"made": ["base64", "?", False]},
    "no data": {"made": ["text"]},
    "a null": {"ma\0de": TEXT},
    "a long name": {"a" * 300: TEXT},
    "too many": {f"f{k}": TEXT for k in range(501)},
    "too large": {"made": ["text", "x" * (1 << 20), False]},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_outside_of_a_shell_is_refused(name: str, tmp_path: Path) -> None:
    files = json.loads(json.dumps(WRONG[name]).replace("{folder}", str(tmp_path)))
    shell = Shell({"here": "kept"}, level="guarded")
    before = shell.get_state()
    with pytest.raises(StateError) as refused:
        shell.set_state({"files": files, "cwd": HOME, "variables": ""})
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300
    assert shell.get_state() == before
    assert shell.run("cat here").output == "kept"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        {"files": [], "cwd": HOME, "variables": ""},
        {"files": {}, "cwd": 1, "variables": ""},
        {"files": {}, "cwd": HOME, "variables": "x" * (1 << 17)},
        {"files": {}, "cwd": "a\0b", "variables": ""},
        {"files": {}, "cwd": "\ud800", "variables": ""},
    ],
)
def test_what_is_no_state_of_a_shell_is_refused(state: Any) -> None:
    with pytest.raises(StateError):
        Shell().set_state(state)


def test_whatever_a_command_leaves_is_a_state() -> None:
    """Odd names, links anywhere, large variables: what is kept can be restored, and copied."""
    shell = Shell()
    done = shell.run(
        "mkdir -p d/e; ln -s /etc d/link; ln -s d/e way; touch 'a b' $'new\\nline' .hidden\n"
        "printf 'x' > $(printf '\\xff\\xfe'); printf '\\xff' > binary; mkfifo p\n"
        "export LONG=$(head -c 30000 /dev/zero | tr '\\0' y); cd d/e"
    )
    assert done.status == 0, done
    state = json.loads(json.dumps(shell.get_state()))
    other = Shell()
    other.set_state(state)
    command = "pwd; echo ${#LONG}; ls -a ~ | cat -v"
    assert other.run(command).output == shell.copy().run(command).output
    assert "d/e" in other.run("pwd").output
