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
        "p/runs/r.py",
        ".ci/run",
        ".gitignore",
        "p/q.md",
        "p/x.pyc",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    listed = [str(path.relative_to(tmp_path)) for path in tool.checkout_files(tmp_path)]
    assert listed == [".ci/run", ".gitignore", "a.py", "p/q.md", "p/runs/r.py"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("the line that mends it", "line 1 has 'mends'; plainer: fix"),
        ("a skill\nlearnt in play", "line 2 has 'learnt'; plainer: learned"),
        ("two runs part at a tie", "line 1 has 'runs part'; plainer: differ"),
        (
            "No GPU is here.",
            "line 1 has 'is here'; plainer: exists, is installed, is listed",
        ),
    ],
)
def test_words_are_found_with_their_line_and_a_plainer_one(
    tool: ModuleType, tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"{text}\n", encoding="utf-8")
    assert list(tool.word_problems(file, tmp_path)) == [problem]
    assert tool.main([str(file)]) == 1


@pytest.mark.parametrize("text", ["recommend it", "part of a run", "here it is", "an amendment"])
def test_plain_text_has_no_problem(tool: ModuleType, tmp_path: Path, text: str) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"{text}\n", encoding="utf-8")
    assert not list(tool.word_problems(file, tmp_path))


@pytest.mark.parametrize(
    ("name", "is_data"),
    [
        ("CHANGELOG.md", True),
        ("benchmarks/lockstep/results/page.md", True),
        ("gem_core/envs/data/rows.toml", True),
        ("words.txt", True),
        ("benchmarks/lockstep/README.md", False),
        ("docs/CHANGELOG.md", False),
        ("gem_core/envs/parts.py", False),
    ],
)
def test_words_of_data_stay(tool: ModuleType, tmp_path: Path, name: str, is_data: bool) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("mend\n", encoding="utf-8")
    assert (not list(tool.word_problems(file, tmp_path))) is is_data
