"""Subcommands of ``gem-core`` that other packages add, by the entry points `GROUP`."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import NamedTuple

GROUP = "gem_core.commands"
"""Group of the entry points: the name of a subcommand -> its `Command`."""
_OWN = "gem-core"
_LOG = logging.getLogger(__name__)


class Command(NamedTuple):
    """A subcommand. The module that declares it imports nothing that only its run needs.

    Attributes:
        text: what it does, in one line.
        run: ``module:function``, parsed arguments -> exit code.
        add_options: adds its arguments to its parser; the functions of `gem_core.cli.options` add
            those that several commands have.
        extends: a subcommand of the core -> what adds arguments to it; others are left out.
    """

    text: str
    run: str
    add_options: Callable[[argparse.ArgumentParser], None]
    extends: Mapping[str, Callable[[argparse.ArgumentParser], None]] = MappingProxyType({})


def load_commands(taken: Collection[str]) -> dict[str, Command]:
    """Return the subcommands of the installed packages, by name; gem-core's own come first.

    One that cannot be used is left out with a warning, so that the others can be.

    Args:
        taken: names that are not free.
    """
    commands: dict[str, Command] = {}
    for point in sorted(entry_points(group=GROUP), key=_order):
        if point.name in taken or point.name in commands:
            _warn(point, "there is another subcommand of that name")
            continue
        try:
            command = point.load()
        except Exception as error:
            _warn(point, f"{type(error).__name__}: {error}")
            continue
        if isinstance(command, Command):
            commands[point.name] = command
        else:
            _warn(point, "it is no gem_core.cli.commands.Command")
    return commands


def _order(point: EntryPoint) -> tuple[bool, str, str]:
    own = point.dist is not None and point.dist.name == _OWN
    return not own, point.name, point.value


def _warn(point: EntryPoint, reason: str) -> None:
    _LOG.warning("The subcommand %r (%s) is left out: %s", point.name, point.value, reason)
