"""The arguments of ``gem-core model``. Nothing here imports what the command needs."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def add_model_options(
    actions: Callable[[str, str, str], argparse.ArgumentParser],
) -> list[argparse.ArgumentParser]:
    """Add the actions.

    Args:
        actions: adds one: name, function, description.

    Returns:
        Their parsers.
    """
    get = actions("get", "model:get", "download, verify and convert a model; print its folder")
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
    get.add_argument(
        "--trust",
        action="store_true",
        help="let these recipes name code outside of installed plugins (SECURITY.md)",
    )
    listed = actions("list", "model:list_models", "list the models and where they are")
    path = actions("path", "model:path", "print the folder of a model that was downloaded")
    path.add_argument("name", metavar="MODEL", help="gem-core model list has all")
    return [get, listed, path]
