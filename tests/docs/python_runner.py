"""Runs the Python blocks of one page in order: ``python python_runner.py PAGE FOLDER``.

`PRELUDE` has what a reader has made before a block; a block that imports a package which is not
installed is left out. A comment ``# NAME.jsonl, one object per line: {...}`` writes that file.
The last line of the output has the lines of the blocks that were run.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from page_blocks import ROOT, blocks, is_elsewhere

PRELUDE = {
    ("docs/contracts.md", "m = EpisodeMachine"): (
        "from random import Random\n"
        "from gem_core import Completion, Context, EpisodeMachine, Limits\n"
        "from gem_core.episodes.templates import get_template\n"
        "env = gem_core.make('game:GuessTheNumber-v0-easy')\n"
        "context, limits = Context(get_template('qwen3_game')), Limits(max_turns=9)\n"
        "engine = lambda ids: Completion([], text=env.random_action(Random(0)))\n"
    ),
    ("docs/workers.md", "from gem_core.episodes.rollouts"): (
        "from gem_core.policies.player import PlayerPolicy\n"
        "recipe = gem_core.load_recipe('guess-the-number-easy', 'tiny')\n"
        "machine = gem_core.MachineFactory(recipe).train\n"
        "groups, policy, steps = ([machine(i)] for i in range(500)), PlayerPolicy('expert'), 2\n"
    ),
    ("docs/workers.md", "from gem_core.execution.vector"): "actions = ['\\\\boxed{5}'] * 64\n",
    ("docs/workers.md", "envs.send"): (
        "envs = make_vec('game:GuessTheNumber-v0-easy', 64)\nenvs.reset(seed=0)\n"
    ),
    ("docs/environments/eval.md", "for options"): (
        "from gem_core.envs.evaluation import eval_items\nrank, world_size = 0, 1\n"
    ),
}
"""(page, first words of a block) -> what is run before it."""
ROWS = re.compile(r"^# (\w+\.jsonl), one object per line:((?:.*\n)(?:# .*\n)*)", re.MULTILINE)


def run(page: Path) -> list[int]:
    """Run the blocks of a page; return their lines."""
    namespace: dict[str, Any] = {"__name__": "page"}
    done = []
    for block in blocks(page):
        if block.kind != "python" or is_elsewhere(block) or missing(block.text):
            continue
        before = [PRELUDE[key] for key in PRELUDE if fits(key, block.page, block.text)]
        for name, row in ROWS.findall(block.text):
            Path(name).write_text(row.replace("\n# ", " ").strip() + "\n", encoding="utf-8")
        execute("import gem_core\n" + "".join(before), "prelude", namespace)
        execute(block.text, block.where, namespace)
        done.append(block.line)
    return done


def fits(key: tuple[str, str], page: str, text: str) -> bool:
    """Return whether an entry of `PRELUDE` is for a block."""
    return key[0] == page and text.startswith(key[1])


def missing(text: str) -> set[str]:
    """Return the packages that a block imports and that are not installed."""
    tree = compile(text, "block", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {BEHIND[name] for name in names & BEHIND.keys()}
    return {name for name in names if find_spec(name.partition(".")[0]) is None}


BEHIND = {
    "gem_bridges.as_gymnasium": "gymnasium",
    "gem_bridges.as_inspect": "inspect_ai",
    "gem_bridges.as_verifiers": "verifiers",
}
"""Modules of gem-core that import another package."""


def execute(text: str, name: str, namespace: dict[str, Any]) -> None:
    """Execute a text, also one with ``await`` outside of a function."""
    code = compile(text, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, namespace))
    else:
        exec(code, namespace)


if __name__ == "__main__":
    os.chdir(sys.argv[2])
    sys.path.insert(0, sys.argv[2])
    print(*run((ROOT / sys.argv[1]).resolve()))
