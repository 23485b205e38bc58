"""Until gem-core is on the package index, no line installs it by name in a new environment."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from gem_core.runs import install

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
FOLDERS = ("gem_core", "integrations", "docs", "examples", "recipes", "scripts", "benchmarks")
BY_NAME = re.compile(r"pip install [^`\n]*?(?<![/\w-])gem-core\b(\[[^\]]*\])?")
"""A command that installs gem-core by its name."""
BLOCK = re.compile(r"```\w*\n(.*?)```", flags=re.DOTALL)
TEXTS = sorted(
    path
    for path in [
        *ROOT.glob("*.md"),
        *(p for folder in FOLDERS for p in (ROOT / folder).rglob("*")),
    ]
    if path.suffix in {".md", ".py"} or path.name == "Dockerfile"
    if path.name != "CHANGELOG.md"  # it has the lines of older versions
)


def wrong(path: Path, text: str) -> list[str]:
    """Return the commands of a text that would ask the index for gem-core."""
    found = []
    for match in BY_NAME.finditer(text):
        names = (match[1] or "").strip("[]").split(",")
        adds = all(name in EXTRAS or name == "extra" or "{" in name for name in names)
        if not adds or path.name == "Dockerfile":
            found.append(match[0])
    for block in BLOCK.findall(text) if path.suffix == ".md" else ():
        if "-m venv" in block:  # nothing is installed there yet
            found += [match[0] for match in BY_NAME.finditer(block)]
    return found


@pytest.mark.skipif(install.PUBLISHED, reason="the package index has gem-core")
def test_no_line_asks_the_index_for_gem_core():
    found = {p: wrong(p, p.read_text(encoding="utf-8")) for p in TEXTS}
    assert {str(path): lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("a.md", "`pip install gem-core` alone", 1),
        ("a.md", "pip install 'gem-core[math]'", 0),
        ("a.md", "pip install 'gem-core[maths]'", 1),
        ("a.md", '```bash\npython -m venv x\npip install torch "gem-core[trl]"\n```', 1),
        ("Dockerfile", 'RUN pip install "gem-core[trl]"', 1),
        ("a.md", 'pip install ".[trl]" trl==1', 0),
    ],
)
def test_such_a_line_is_found(name, text, number):
    assert len(wrong(Path(name), text)) == number


def test_one_switch_changes_every_generated_line(monkeypatch):
    install.stacks.cache_clear()
    try:
        for published, wanted in ((True, '"gem-core[{}]"'), (False, '".[{}]"')):
            monkeypatch.setattr(install, "PUBLISHED", published)
            install.stacks.cache_clear()
            for name, stack in install.stacks().items():
                assert wanted.format(name) in stack.command
                assert wanted.format(name) in install.shell_block(name)
                assert not [r for r in stack.requirements() if r.startswith((".", "gem-core"))]
    finally:
        install.stacks.cache_clear()
