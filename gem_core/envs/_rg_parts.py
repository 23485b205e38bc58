"""Which text of an item of reasoning-gym decides its part: that of the task, where it is stated.

The same equation may be asked in several sentences, the same text for several letters. Where the
generator's metadata hold the task without them, two wordings of one task are in the same part. An
equation with another name of the variable is another task.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Metadata = dict[str, Any]

MOST_DRAWS = 1000
"""Items that are drawn for one of a part."""


_TASKS: dict[str, Callable[[Metadata], Any]] = {
    "arc_1d": lambda metadata: [metadata["task_name"], metadata["test_example"]["input"]],
    "basic_arithmetic": lambda metadata: "".join(metadata["expression"].split()),
    "chain_sum": lambda metadata: "".join(metadata["expression"].split()),
    "leg_counting": lambda metadata: sorted(metadata["animals"].items()),
    "letter_counting": lambda metadata: metadata["span"],
    "simple_equations": lambda metadata: metadata["equation"],
}
"""Generator -> what of its metadata is the task. Not here: the whole question is."""


def task_text(name: str, entry: dict[str, Any]) -> str:
    """Return the text of an item that decides its part.

    >>> entry = {"question": "Calculate 1 + 2.", "metadata": {"expression": "1 + 2"}}
    >>> task_text("basic_arithmetic", entry)
    'basic_arithmetic "1+2"'

    Args:
        name: the generator.
        entry: the item, with ``question`` and, where it is known here, ``metadata``.
    """
    task = _TASKS.get(name)
    chosen = task(entry["metadata"]) if task else entry["question"]
    return f"{name} {json.dumps(chosen)}"
