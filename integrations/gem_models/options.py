"""The arguments of ``gem-core model``. Nothing here imports what the command needs."""

from __future__ import annotations

import argparse

from gem_core.cli.commands import Command
from gem_core.cli.options import Verbs, add_json, add_trust


def add_model_options(verb: argparse.ArgumentParser) -> None:
    """Add its actions, which are subcommands of their own."""
    actions = Verbs(
        verb.add_subparsers(metavar="ACTION", required=True).add_parser, "gem_models.command:"
    )
    get = actions("get", "get", "download, verify and convert a model; print its folder")
    get.add_argument("name", metavar="MODEL", help="gem-core model list has all")
    get.add_argument(
        "--accept-terms",
        action="store_true",
        help="accept the terms of use of the model, which the command links to without it",
    )
    get.add_argument(
        "--trim-vocabulary",
        nargs="+",
        metavar="BASELINE|FILE",
        help="make a copy with only the tokens that the texts of these recipes need, and the signs "
        "and digits; print its folder",
    )
    get.add_argument(
        "--profile", help="profile of these recipes, which may set the template of the prompts"
    )
    add_trust(get)
    listed = actions("list", "list_models", "list the models and where they are")
    path = actions("path", "path", "print the folder of a model that was downloaded")
    path.add_argument("name", metavar="MODEL", help="gem-core model list has all")
    for action in (get, listed, path):
        add_json(action)


COMMAND = Command(
    "download a pretrained model from the Python index, and say where it is",
    "gem_models.command:list_models",
    add_model_options,
)
