"""The tools of a recipe's environments: ``tools`` and ``tool_use`` of ``[[env]]``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from gem_core.env.interface import Env, Wrapper
from gem_core.env.registration.references import from_data
from gem_core.env.spec import EnvSpec
from gem_core.errors import GemError, RecipeError
from gem_core.runs.cache import digest
from gem_core.runs.recipe.tables import EnvConfig
from gem_core.runs.recipe.tool_entries import wanted_tools
from gem_core.tools import Budget, Tool, ToolEnv, ToolRewards, make_tool

Tools: TypeAlias = list[dict[str, Any]]
"""What tools are on this machine, one dict each; see `described_tools`."""


def with_tools(env: Env, config: EnvConfig, key: str) -> Env:
    """Return an environment with the tools of its table, itself where there are none.

    Raises:
        MissingDependencyError: a package that a tool needs is missing.
        RecipeError: a tool does not accept its options.
    """
    if not config.tools:
        return env
    use = config.tool_use
    try:
        tools = [
            _made(name, options, f"{key}.tools", use.native)
            for name, options in wanted_tools(config, key)
        ]
        return ToolEnv(
            env,
            tools,
            budget=Budget(use.calls, use.per_turn, use.output_tokens, use.seconds),
            rewards=ToolRewards(use.call_reward, use.failed_call_reward),
            end_on_failure=use.end_on_failure,
            instructions=use.instructions,
            native=use.native,
            answer_format=use.answer_format,
        )
    except BaseException:
        env.close()
        raise


def _made(name: str, options: dict[str, Any], key: str, native: bool) -> Tool:
    try:
        with from_data():
            tool = make_tool(name, **options)
    except GemError:
        raise
    except (TypeError, ValueError) as error:
        raise RecipeError(f"{key}: {name}: {error}") from error
    if native:
        if "tool_call" not in tool.known_formats:
            raise RecipeError(f"{key}: {name} cannot be called in JSON: leave out tool_use.native.")
        tool.formats = ("tool_call",)
    return tool


def native_functions(env: Env) -> list[dict[str, Any]]:
    """Return what the chat template is to describe: the tools of `ToolUse.native`, else none."""
    outermost = next(_tool_layers(env), None)
    return outermost.functions if outermost is not None and outermost.native else []


def count_tokens_with(env: Env, encode: Callable[[str], list[int]]) -> None:
    """Let the budgets of tools' results be counted in tokens of the model."""
    for layer in _tool_layers(env):
        layer.count_tokens = _Count(encode)


class _Count:
    """Counts the tokens of a text; unlike a closure, it can be pickled."""

    def __init__(self, encode: Callable[[str], list[int]]):
        self._encode = encode

    def __call__(self, text: str) -> int:
        return len(self._encode(text))


def described_tools(env: Env) -> Tools:
    """Return what the tools of an environment are on this machine, in the recipe's order.

    Each has ``name``, ``version``, ``revision`` of its data and what `Tool.describe` adds: for
    Python the sandbox's level.
    """
    return [
        {"name": tool.name, "version": tool.version, "revision": tool.revision, **tool.describe()}
        for tool in _tools_of(env)
    ]


def task_digest(spec: EnvSpec, config: EnvConfig, env: Env) -> str:
    """Return the fingerprint of a task: that of `EnvSpec`, and with tools a digest of both.

    Options, budgets, versions and data of the tools are part of it; the sandbox's level is not,
    because the same programs give the same results at each level.
    """
    if not config.tools:
        return spec.fingerprint()
    versions = [[tool.name, tool.version, tool.revision] for tool in _tools_of(env)]
    return _digest([spec.fingerprint(), tools_key(config), versions])


def tools_key(config: EnvConfig) -> str:
    """Return a digest of an environment's ``tools`` and ``tool_use``; ``""`` without tools."""
    import msgspec

    if not config.tools:
        return ""
    return _digest([wanted_tools(config, "env"), msgspec.to_builtins(config.tool_use)])


def _tools_of(env: Env) -> list[Tool]:
    outermost = next(_tool_layers(env), None)
    return [] if outermost is None else list(outermost.tools.values())


def _tool_layers(env: Env) -> Iterator[ToolEnv]:
    """Yield the wrappers that have tools, the outermost first."""
    while isinstance(env, Wrapper):
        if isinstance(env, ToolEnv):
            yield env
        env = env.env


def _digest(data: Any) -> str:
    return digest(json.dumps(data, sort_keys=True, separators=(",", ":"), default=str))
