"""OpenRLHF's own parser and checks, without starting anything.

The parser lives under ``if __name__ == "__main__"``; the first thing ``train(args)`` does with the
finished arguments is ``get_strategy(args)``.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

CLI = "openrlhf.cli.train_ppo_ray"


class _Parsed(Exception):
    """Carries the arguments out of the command line."""


def parse(arguments: Sequence[str]) -> Any:
    """The nested namespace that OpenRLHF makes of ``arguments``. SystemExit where it refuses."""

    def carry(args: Any) -> None:
        raise _Parsed(args)

    with (
        patch("openrlhf.utils.get_strategy", carry),
        patch("ray.is_initialized", lambda: True),
        patch.object(sys, "argv", [CLI, *arguments]),
    ):
        try:
            runpy.run_module(CLI, run_name="__main__")
        except _Parsed as parsed:
            return parsed.args[0]
    raise AssertionError("OpenRLHF's command line ended without building its strategy.")
