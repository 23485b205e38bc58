#!/usr/bin/env python3
"""Write the notebook of ``examples/walkthrough.py``: ``python scripts/notebook.py [--check]``.

A line ``# %%`` begins a cell of code, ``# %% [markdown]`` one of text, in comments. What is before
the first of them belongs to the script alone. The notebook has no outputs, which would differ
between machines; the pictures that ``examples/README.md`` shows are those of the script:

    .venvs/trl/bin/python examples/walkthrough.py && cp runs/walkthrough/*.svg docs/pictures
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parent.parent / "examples" / "walkthrough.py"
MARK = re.compile(r"^# %%(?: \[(markdown)\])?\n", flags=re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Write the notebook, or with ``--check`` tell whether it is up to date."""
    target = SCRIPT.with_suffix(".ipynb")
    text = notebook(SCRIPT.read_text(encoding="utf-8"))
    if "--check" not in arguments:
        target.write_text(text, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != text:
        print(f"{target} is out of date: run python scripts/notebook.py")
        return 1
    return 0


def notebook(script: str) -> str:
    """Return a script in cells as a notebook of format 4.5."""
    _, *parts = MARK.split(script)
    kinds, bodies = parts[::2], parts[1::2]
    cells = [cell(k, *pair) for k, pair in enumerate(zip(kinds, bodies, strict=True))]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def cell(number: int, kind: str | None, body: str) -> dict[str, Any]:
    """Return one cell; its id is its number, so that the same script gives the same file."""
    text = body.strip("\n")
    if kind:
        text = "\n".join(re.fullmatch(r"# ?(.*)", line)[1] for line in text.splitlines())
    lines = text.splitlines(keepends=True)
    common = {"id": f"cell-{number}", "metadata": {}, "source": lines}
    if kind:
        return {"cell_type": "markdown", **common}
    return {"cell_type": "code", "execution_count": None, **common, "outputs": []}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
