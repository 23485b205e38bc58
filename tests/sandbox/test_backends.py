"""Back ends of other packages: found by entry point, refused where they promise too little."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gem_core
from gem_core.envs.graders.code import grade_code
from gem_core.errors import UnknownNameError
from gem_core.execution.sandbox import SandboxError, backends, get_shared_backend, make_backend
from gem_core.tools import make_tool
from gem_core.tools.base import Call
from gem_sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[2]
STRONG = """
class Strong(Plain):
    level = "strict"


class Odd(Plain):
    level = "safe"


def function():
    pass
"""
POINTS = """[gem_core.sandboxes]
plain = stranger_back_ends:Plain
strong = stranger_back_ends:Strong
odd = stranger_back_ends:Odd
function = stranger_back_ends:function
"""


@pytest.fixture(autouse=True)
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package with the back end of docs/write/sandbox.md, and others made of it."""
    text = (ROOT / "docs" / "write" / "sandbox.md").read_text(encoding="utf-8")
    found = re.search(r"`plain.py`:\n\n```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    (tmp_path / "stranger_back_ends.py").write_text(found[1] + STRONG)
    info = tmp_path / "stranger_back_ends-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: stranger-back-ends\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(backends, "_shared", {})
    yield
    sys.modules.pop("stranger_back_ends", None)


def choose(monkeypatch: pytest.MonkeyPatch, name: str, level: str | None) -> None:
    monkeypatch.setenv("GEM_CORE_SANDBOX_BACKEND", name)
    if level is not None:
        monkeypatch.setenv("GEM_CORE_SANDBOX", level)


CHOICES = pytest.mark.parametrize(
    ("name", "asked", "promised"),
    [("plain", "guarded", "guarded"), ("strong", None, "strict"), ("strong", "confined", "strict")],
)


@CHOICES
def test_the_python_tool_runs_in_it(
    monkeypatch: pytest.MonkeyPatch, name: str, asked: str | None, promised: str
) -> None:
    choose(monkeypatch, name, asked)
    tool = make_tool("python")
    call = Call(
        "python",
        {"code": "import sys; print('stranger_back_ends' in sys.modules, 6 * 7)"},
        0,
        0,
        "tag",
    )
    result = tool.run(call, tool.start(), 5.0)
    assert result.text == "False 42" and result.fields == {"level": promised}
    assert tool.describe() == {"level": promised, "backend": name}
    assert type(get_shared_backend()).__name__.lower() == name


@CHOICES
def test_a_terminal_environment_is_played_in_it(
    monkeypatch: pytest.MonkeyPatch, name: str, asked: str | None, promised: str
) -> None:
    choose(monkeypatch, name, asked)
    env = gem_core.make("terminal:text-v0")
    env.reset(seed=0)
    assert env.step("<answer>pwd</answer>")[0] == "/home/agent"
    env.step(env.peek())
    assert env.step(env.peek())[4]["success"]
    assert [key[1] for key in backends._shared] == [name]


def test_programs_are_graded_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, "strong", None)
    tests = [{"input": "1 2", "output": "3"}, {"function": "f", "args": [1], "output": 2}]
    code = "print(sum(map(int, input().split())))"
    assert grade_code(code, tests[:1])[:3] == (True, 1, 1)
    verdict = grade_code("def f(x): return x + 1", tests[1:])
    assert verdict.correct and verdict.level == "strict"


@pytest.mark.parametrize("level", [None, "strict", "container"])
def test_one_that_promises_less_is_refused(
    monkeypatch: pytest.MonkeyPatch, level: str | None
) -> None:
    choose(monkeypatch, "plain", level)
    needed = level or "container"
    message = f"'plain' promises the level 'guarded', and '{needed}' is needed: .*BACKEND"
    with pytest.raises(SandboxError, match=message):
        get_shared_backend()
    with pytest.raises(SandboxError, match=message):
        make_tool("python").start()
    env = gem_core.make("terminal:text-v0")
    env.reset(seed=0)
    with pytest.raises(SandboxError, match=message):
        env.step("<answer>ls</answer>")


def test_the_level_that_a_caller_needs_is_that_of_its_argument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose(monkeypatch, "plain", "guarded")
    assert get_shared_backend().run("print(1)").ok
    with pytest.raises(SandboxError, match="'strict' is needed"):
        make_tool("python", level="strict").start()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("plian", "no sandbox back end 'plian': choose .*native.*Did you mean 'plain'"),
        ("odd", "promises 'safe', which is no level"),
        ("function", "stranger_back_ends:function, is no class"),
    ],
)
def test_what_is_no_back_end_is_refused(name: str, message: str) -> None:
    with pytest.raises(SandboxError, match=message):
        make_backend(name)


def test_without_a_choice_it_is_that_of_gem_core() -> None:
    backend = make_backend()
    assert isinstance(backend, Sandbox) and backend.run("print(6 * 7)").output == "42\n"
    backend.close()


def test_data_cannot_choose_it() -> None:
    with pytest.raises(TypeError, match="backend"):
        make_tool("python", backend="strong")
    with pytest.raises(UnknownNameError, match="backend"):
        gem_core.make("terminal:text-v0", backend="strong")


def test_no_package_takes_the_place_of_gem_cores_own(tmp_path: Path) -> None:
    info = tmp_path / "stranger_back_ends-1.0.dist-info"
    points = "[gem_core.sandboxes]\nnative = stranger_back_ends:Plain\n"
    (info / "entry_points.txt").write_text(points)
    with pytest.raises(SandboxError, match=r"Two installed packages register .*'native'"):
        get_shared_backend()
