"""Arguments that several subcommands have, and how subcommands are added to a parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable


class Verbs:
    """Adds subcommands to a parser.

    Args:
        add_parser: that of the result of `argparse.ArgumentParser.add_subparsers`.
        package: what stands before the names of the functions.

    Attributes:
        parsers: those that were added, by name.
    """

    def __init__(
        self, add_parser: Callable[..., argparse.ArgumentParser], package: str = ""
    ) -> None:
        self.add_parser = add_parser
        self.package = package
        self.parsers: dict[str, argparse.ArgumentParser] = {}

    def __call__(self, name: str, run: str, text: str) -> argparse.ArgumentParser:
        """Add the subcommand ``name``; ``run`` is ``module:function``."""
        description = f"{text[0].upper()}{text[1:]}."
        parser = self.add_parser(name, help=text, description=description)
        parser.set_defaults(verb=f"{self.package}{run}")
        add_verbosity(parser)
        self.parsers[name] = parser
        return parser


def add_verbosity(parser: argparse.ArgumentParser) -> None:
    """Add ``-v`` and ``-q``, before a subcommand and after it."""
    how_much = parser.add_mutually_exclusive_group()
    how_much.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        default=argparse.SUPPRESS,
        help="also print what libraries say, and the tracebacks of errors",
    )
    how_much.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print results and errors only, no progress",
    )


def add_json(verb: argparse._ActionsContainer) -> None:
    """Add ``--json``."""
    verb.add_argument("--json", action="store_true", help="print JSON, and nothing else on stdout")


def add_trust(verb: argparse.ArgumentParser) -> None:
    """Add ``--trust``, for commands that read recipes or runs."""
    verb.add_argument(
        "--trust",
        action="store_true",
        help="let the recipes and runs name code outside of installed plugins, start programs and "
        "weaken the sandbox: for those whose author you know (SECURITY.md)",
    )


def add_set(verb: argparse.ArgumentParser) -> None:
    """Add ``--set`` and ``--trust``, for commands that load recipes."""
    add_trust(verb)
    verb.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="override a key of the recipe; may be repeated (docs/recipes.md lists all)",
    )
