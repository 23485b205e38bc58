"""How calls are written in an agent's text, and results in the answer to it."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol


class Written(NamedTuple):
    """A call in a text: its arguments, and where it begins and ends."""

    arguments: Any
    start: int
    end: int


class ToolSyntax(Protocol):
    """What calls and results show of a tool; every `gem_core.tools.base.Tool` has it."""

    name: str
    """Name in calls of the format ``tool_call``."""
    schema: Mapping[str, Any]
    """JSON schema of the arguments, an object."""
    tag: str
    """Tag of calls in the format ``tag``."""
    result_tag: str
    """Tag of results in the format ``tag``."""
    languages: tuple[str, ...]
    """Languages of blocks that are calls, in the format ``fence``."""

    @property
    def main_argument(self) -> str:
        """The argument that a tag or a fenced block holds."""


class Format(ABC):
    """One way to write calls and results."""

    @abstractmethod
    def find(self, text: str, tool: ToolSyntax) -> Written | None:
        """Return the first complete call of a tool."""

    @abstractmethod
    def write(self, tool: ToolSyntax, arguments: Mapping[str, Any]) -> str:
        """Return a call with these arguments; `Tag` and `Fence` write the main one only."""

    def example(self, tool: ToolSyntax) -> str:
        """Return a call, as the instructions show it."""
        return self.write(
            tool, {name: self.placeholder(name) for name in tool.schema["properties"]}
        )

    def placeholder(self, argument: str) -> str:
        """Return what stands for an argument in an example."""
        return argument

    @abstractmethod
    def result(self, text: str, tool: ToolSyntax | None) -> str:
        """Return a result, as the agent sees it."""

    @abstractmethod
    def stop(self, tool: ToolSyntax) -> str:
        """Return the text at which a call is complete."""


class Tag(Format):
    """``<python>print(1)</python>``, answered by ``<output>1</output>``."""

    def find(self, text: str, tool: ToolSyntax) -> Written | None:
        """Return the first complete, non-empty pair of tags."""
        before = f"<{tool.tag}>"
        after = f"</{tool.tag}>"
        start = 0
        while (start := text.find(before, start)) >= 0:
            end = text.find(after, start)
            if end < 0:
                return None
            # The last opening tag before the closing one: an earlier one was not closed.
            start = text.rfind(before, start, end)
            content = text[start + len(before) : end].strip("\n")
            if content.strip():
                return Written({tool.main_argument: content}, start, end + len(after))
            start = end
        return None

    def write(self, tool: ToolSyntax, arguments: Mapping[str, Any]) -> str:
        """Return a pair of tags."""
        return f"<{tool.tag}>{arguments[tool.main_argument]}</{tool.tag}>"

    def result(self, text: str, tool: ToolSyntax | None) -> str:
        """Return a pair of tags."""
        tag = "output" if tool is None else tool.result_tag
        return f"<{tag}>\n{text}\n</{tag}>"

    def stop(self, tool: ToolSyntax) -> str:
        """Return the closing tag."""
        return f"</{tool.tag}>"


_FENCE = re.compile(r"^```[ \t]*(\w*)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


class Fence(Format):
    """A fenced block in one of the tool's languages, answered by a block ``output``."""

    def find(self, text: str, tool: ToolSyntax) -> Written | None:
        """Return the first complete, non-empty block in one of the tool's languages."""
        for match in _FENCE.finditer(text):
            if match[1].lower() in tool.languages and match[2].strip():
                return Written({tool.main_argument: match[2]}, match.start(), match.end())
        return None

    def write(self, tool: ToolSyntax, arguments: Mapping[str, Any]) -> str:
        """Return a block."""
        return f"```{tool.languages[0]}\n{arguments[tool.main_argument]}\n```"

    def result(self, text: str, tool: ToolSyntax | None) -> str:
        """Return a block that is longer than any fence in it."""
        longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
        fence = "`" * (longest + 1)
        return f"{fence}output\n{text}\n{fence}"

    def stop(self, tool: ToolSyntax) -> str:
        """Return the closing fence."""
        return "\n```\n"


_TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


class ToolCall(Format):
    """``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, as Qwen and Hermes write it."""

    def find(self, text: str, tool: ToolSyntax) -> Written | None:
        """Return the first complete call that names the tool."""
        for match in _TOOL_CALL.finditer(text):
            call = read_json(match[1])
            if isinstance(call, Mapping) and call.get("name") == tool.name:
                arguments = call.get("arguments", {})
                if isinstance(arguments, str):  # some models write them as JSON text
                    arguments = read_json(arguments)
                return Written(arguments, match.start(), match.end())
        return None

    def write(self, tool: ToolSyntax, arguments: Mapping[str, Any]) -> str:
        """Return a call in JSON."""
        body = json.dumps({"name": tool.name, "arguments": dict(arguments)})
        return f"<tool_call>\n{body}\n</tool_call>"

    def placeholder(self, argument: str) -> str:
        """Return the argument's name in angle brackets."""
        return f"<{argument}>"

    def result(self, text: str, tool: ToolSyntax | None) -> str:
        """Return a response."""
        return f"<tool_response>\n{text}\n</tool_response>"

    def stop(self, tool: ToolSyntax) -> str:
        """Return the closing tag."""
        return "</tool_call>"


FORMATS: dict[str, Format] = {"tag": Tag(), "fence": Fence(), "tool_call": ToolCall()}
"""Every format, by its name."""


def first_broken_call(text: str, names: list[str]) -> tuple[Written, str] | None:
    """Return the first ``<tool_call>`` that no tool understands, and what is wrong with it."""
    for match in _TOOL_CALL.finditer(text):
        call = read_json(match[1])
        problem = ""
        if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
            problem = 'a tool call must be JSON: {"name": ..., "arguments": {...}}'
        elif call["name"] not in names:
            problem = f"there is no tool {call['name']!r:.60}: the tools are {', '.join(names)}"
        if problem:
            return Written({}, match.start(), match.end()), problem
    return None


def read_json(text: str) -> Any:
    """Return what a JSON text describes; ``None`` where it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
