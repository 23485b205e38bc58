"""Recipes in YAML, read as those in TOML are: the same tables, so the same checks and messages.

YAML has two versions that read the same file differently: ``on``, ``1e-3`` and ``010`` are a
boolean, a text and 8 in version 1.1 (PyYAML), and a text, a number and 10 in version 1.2. What they
read differently is refused, with what to write instead. So is what TOML has not: anchors, tags,
values that are missing, several documents; and a key that stands twice, of which PyYAML would take
the last. No object is ever made of a file: only the tree of its nodes is read.

read       a file -> its tables
scalars    a value without quotes
"""

from __future__ import annotations

from typing import Any


def read_yaml(text: str) -> dict[str, Any]:
    """Return the tables of a recipe in YAML.

    Raises:
        MissingDependencyError: PyYAML is missing.
        RecipeError: the text is no YAML, or has what is refused; the message names the line, and
            the caller adds the file.

    >>> read_yaml("name: a\\ntrain: {steps: 3}")
    {'name': 'a', 'train': {'steps': 3}}
    """
    from gem_core.errors import MissingDependencyError, how_to_install

    try:
        from gem_yaml.read import read_tree
    except ModuleNotFoundError as error:
        if error.name != "yaml":
            raise
        raise MissingDependencyError(
            f"A recipe in YAML needs PyYAML: {how_to_install('yaml')}."
        ) from None
    return read_tree(text)
