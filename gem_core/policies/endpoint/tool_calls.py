"""Native tool calls of chat endpoints as the text that `gem_core.tools.ToolEnv` reads."""

from __future__ import annotations

import json
from typing import Any


def as_text(calls: Any) -> str:
    """Return the field ``tool_calls`` of an answer as blocks ``<tool_call>``; ``""`` for none.

    Arguments that are no JSON are handed on as text: whether a call is right is for the environment
    to judge, and a wrong one is the model's mistake.

    >>> as_text([{"function": {"name": "python", "arguments": '{"code": "1"}'}}]).split("\\n")[2]
    '{"name": "python", "arguments": {"code": "1"}}'
    """
    blocks = []
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            arguments = _read_json(arguments)
        body = json.dumps({"name": function.get("name"), "arguments": arguments})
        blocks.append(f"\n<tool_call>\n{body}\n</tool_call>")
    return "".join(blocks)


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
