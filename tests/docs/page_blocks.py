"""The blocks of code of the site's pages, and which of them another test takes.

A block is fenced or indented. Each is taken by one of: the tests that `ELSEWHERE` names, a rule of
`command_rules.py` (shell, each line), `python_runner.py` (Python, run), a recipe that is loaded
(TOML), or the output of the command before it (text).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import stage_site  # noqa: E402

ELSEWHERE = {
    "docs/write/*.md": "tests/docs/test_write.py runs them",
    "docs/commands_gpu.md": "tests/contract/test_gpu_commands.py: parser, translation, bash -n",
    "docs/environments/*.md: text": "scripts/make_env_pages.py writes what the environments say; "
    "tests/tools/test_env_pages.py compares",
    "*.md: gpu": "scripts/install_lines.py writes them; tests/release/test_install_lines.py",
}
"""Which blocks of which pages another test takes: all, one kind, or those between gpu marks."""


class Block(NamedTuple):
    """A block of a page; ``kind`` is what stands behind the fence, "indented" without one."""

    page: str
    line: int
    kind: str
    text: str
    gpu: bool = False

    @property
    def where(self) -> str:
        """Page and line, for messages."""
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return the pages of the site."""
    return sorted(stage_site.places())


def blocks(page: Path, root: Path = ROOT) -> list[Block]:
    """Return the blocks of a page in their order."""
    name = page.relative_to(root).as_posix()
    found: list[Block] = []
    fence, kind, start, body = "", "", 0, [""]
    gpu = False
    for number, line in enumerate([*page.read_text(encoding="utf-8").splitlines(), ""], 1):
        opened = re.match(r" *(```+|~~~+)(\w*)$", line)
        if fence and opened and opened[1] == fence:
            found.append(Block(name, start, kind, "\n".join(body[1:]) + "\n", gpu))
            fence, body = "", [""]
        elif fence:
            body.append(line)
        elif opened:
            fence, kind, start, body = opened[1], opened[2], number, [""]
        elif line.startswith("    ") and (len(body) > 1 or not body[0]):
            start = start if len(body) > 1 else number
            body.append(line[4:])
        else:
            if len(body) > 1 and not in_list(body):
                found.append(Block(name, start, "indented", "\n".join(body[1:]) + "\n"))
            body = [line]
        gpu = line == "<!-- gpu -->" if line.startswith("<!--") and not fence else gpu
    assert not fence, f"{name}:{start}: a fence has no end"
    return found


def in_list(body: list[str]) -> bool:
    """Return whether indented lines are the text of a list, not a block."""
    return not body[1][:1].strip() or body[1].startswith(("- ", "* "))


def is_elsewhere(block: Block) -> bool:
    """Return whether `ELSEWHERE` has a block."""
    for pattern in ELSEWHERE:
        path, _, kind = pattern.partition(": ")
        if Path(block.page).match(path) and (
            not kind or kind == block.kind or (kind == "gpu" and block.gpu)
        ):
            return True
    return False


def all_blocks() -> list[Block]:
    """Return every block of every page that no other test takes."""
    found = [block for page in pages() for block in blocks(page)]
    return [block for block in found if not is_elsewhere(block)]
