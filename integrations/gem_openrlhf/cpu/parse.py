"""The arguments that OpenRLHF's own program makes of flags, without starting anything.

`gem_openrlhf.command_line.parser` parses; here the checks that OpenRLHF makes after parsing run,
too. The first thing ``train(args)`` does with the finished arguments is ``get_strategy(args)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn
from unittest.mock import patch

from gem_openrlhf.command_line import run_command_line


class _Parsed(Exception):
    """Carries the arguments out of the command line."""


def parse(arguments: Sequence[str]) -> Any:
    """Return the nested namespace that OpenRLHF makes of ``arguments``.

    Raises:
        SystemExit: it refuses them.
    """

    def carry(args: Any) -> NoReturn:
        raise _Parsed(args)

    with (
        patch("openrlhf.utils.get_strategy", carry),
        patch("ray.is_initialized", lambda: True),
    ):
        try:
            run_command_line(arguments)
        except _Parsed as parsed:
            return parsed.args[0]
    raise AssertionError("OpenRLHF's command line ended without building its strategy.")
