"""`Tool`: something that an agent can call in its text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from gem_core.errors import unknown
from gem_core.tools.formats import FORMATS, Written


class Call(NamedTuple):
    """A call that an agent wrote.

    Attributes:
        tool: name of the tool.
        arguments: by the names of the tool's schema.
        start: where the call begins in the action.
        end: where it ends.
        format: how it was written, one of `gem_core.tools.formats.FORMATS`.
        problem: why it cannot be run; ``""``: it can.
    """

    tool: str
    arguments: Mapping[str, Any]
    start: int
    end: int
    format: str
    problem: str = ""


class ToolResult(NamedTuple):
    """What came of a call.

    Attributes:
        text: what the agent is told.
        error: the kind of failure; ``None``: the call succeeded.
        seconds: wall seconds.
        truncated: whether the tool had more to tell.
        fields: what else is known, such as the sandbox's level; what JSON can hold.
    """

    text: str
    error: str | None = None
    seconds: float = 0.0
    truncated: bool = False
    fields: Mapping[str, Any] = {}

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.error is None


class Tool(ABC):
    """A tool. One object serves many episodes and threads: what an episode changes is its session.

    Attributes:
        name: how the agent calls it.
        description: what it does, for the agent.
        schema: JSON schema of its arguments, an object.
        tag: the tag of its calls in the format ``tag``.
        result_tag: the tag around its results in the format ``tag``.
        languages: the languages of fenced blocks that are its calls, in the format ``fence``.
        formats: the formats of its calls that are understood.
        slow: whether a call may block.
        version: increased when the same call gives another result than before.
        revision: what identifies the tool's data, such as a corpus; ``None``: it has none.
        shares: tools of one environment with an equal value share a session: the first of them
            starts, saves, loads and stops it. ``None``: the tool has one of its own.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    tag: str
    result_tag: str = "output"
    languages: tuple[str, ...] = ()
    known_formats: ClassVar[tuple[str, ...]] = ("tag", "tool_call")
    slow: bool = True
    version: int = 0
    revision: str | None = None
    shares: Any = None

    def __init__(self, formats: tuple[str, ...] | None = None):
        self.formats = tuple(formats or self.known_formats)
        for name in self.formats:
            if name not in self.known_formats:
                raise unknown(f"format of the tool {self.name!r}", name, self.known_formats)

    def parse(self, action: str) -> Call | None:
        """Return the first call of this tool in a text, or ``None``."""
        calls = [
            self._call(written, name)
            for name in self.formats
            if (written := FORMATS[name].find(action, self)) is not None
        ]
        return min(calls, key=lambda call: call.start, default=None)

    @abstractmethod
    def run(self, call: Call, session: Any, seconds: float) -> ToolResult:
        """Run a call.

        Args:
            call: one without a problem.
            session: what `start` returned for this episode.
            seconds: wall seconds that it may take at most.

        Returns:
            A result also where the call fails. An exception is reported to the agent as a failed
            call too.
        """

    def start(self) -> Any:
        """Return what the calls of one episode share; ``None``: nothing.

        Raises:
            GemError: the tool cannot work here.
        """
        return None

    def stop(self, session: Any) -> None:  # noqa: B027
        """Free a session; called once for each."""

    def save(self, session: Any) -> Any:
        """Return a session as JSON data, from which `load` makes one that continues as it would."""
        return None

    def load(self, state: Any) -> Any:
        """Return the session that `save` described."""
        return self.start()

    def check(self, state: Any) -> None:  # noqa: B027
        """Check what `load` will be given; it may come from anywhere.

        Raises:
            StateError: `save` did not return it.
        """

    def describe(self) -> dict[str, Any]:
        """Return what a run records of the tool on this machine, besides its version and data.

        It must be equal in all processes of a run, and where it is resumed.

        Raises:
            GemError: the tool cannot work here.
        """
        return {}

    def example(self, format_name: str) -> str:
        """Return how a call is written in a format."""
        return FORMATS[format_name].example(self)

    def write(self, **arguments: Any) -> str:
        """Return a call of this tool as an agent writes it, in the first of its formats."""
        return FORMATS[self.formats[0]].write(self, arguments)

    @property
    def main_argument(self) -> str:
        """The argument that a tag or a fenced block holds: the first of the schema."""
        return str(next(iter(self.schema["properties"])))

    @property
    def function(self) -> dict[str, Any]:
        """The tool as chat templates take it (``tools=`` of `apply_chat_template`)."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.schema),
            },
        }

    def _call(self, written: Written, format_name: str) -> Call:
        problem = wrong_arguments(self.schema, written.arguments)
        return Call(self.name, written.arguments, written.start, written.end, format_name, problem)


_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def wrong_arguments(schema: Mapping[str, Any], arguments: Any) -> str:
    """Return what is wrong with arguments, such as a missing one; ``""``: nothing.

    >>> schema = {"properties": {"code": {"type": "string"}}, "required": ["code"]}
    >>> wrong_arguments(schema, {"code": 1})
    "the argument 'code' must be of type string"
    """
    if not isinstance(arguments, Mapping):
        return "the arguments must be a JSON object"
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in arguments:
            return f"the argument {name!r} is missing"
    for name, value in arguments.items():
        if name not in properties:
            return f"there is no argument {name!r}: the arguments are {', '.join(properties)}"
        kind = properties[name].get("type")
        if kind in _TYPES and not isinstance(value, _TYPES[kind]):
            return f"the argument {name!r} must be of type {kind}"
        if isinstance(value, bool) and kind in ("integer", "number"):
            return f"the argument {name!r} must be of type {kind}"
    return ""
