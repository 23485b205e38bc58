from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def tool(load_tool: Callable[[str], ModuleType]) -> ModuleType:
    return load_tool("check_files")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"a\n", []),
        (b"", []),
        (b"a", ["does not end with a newline"]),
        (b"a\n\n", ["ends with an empty line"]),
        (b"a\r\n", ["has CRLF line ends"]),
        (b"a\n" + b"<" * 7 + b" ours\n", ["has a merge marker"]),
        (b"\0", []),
    ],
)
def test_problems_of_one_file(
    tool: ModuleType, tmp_path: Path, body: bytes, expected: list[str]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(body)
    assert list(tool.problems(file)) == expected


def test_a_large_file_fails_by_name(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "large.bin"
    file.write_bytes(b"\0" * (tool.MAX_BYTES + 1))
    assert tool.main([str(file)]) == 1
    assert "large.bin: is 1,000,001 bytes" in capsys.readouterr().out


def test_the_walk_leaves_out_what_git_ignores(tool: ModuleType, tmp_path: Path) -> None:
    for name in (
        "a.py",
        ".venvs/x.py",
        "runs/r.json",
        ".ci/run",
        ".gitignore",
        "p/q.md",
        "p/x.pyc",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    listed = [str(path.relative_to(tmp_path)) for path in tool.checkout_files(tmp_path)]
    assert listed == [".ci/run", ".gitignore", "a.py", "p/q.md"]
