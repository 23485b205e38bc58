"""A file of YAML as tables, by the tree of nodes that PyYAML's safe loader makes of it."""

from __future__ import annotations

from typing import Any

import yaml

from gem_core.errors import RecipeError
from gem_yaml.scalars import read_scalar

_DEEPEST = 100
"""Tables and lists within each other; the time of the reader grows with its square."""
_FREE = ("kwargs", "sources", "trainer")
"""Tables whose keys may have a dot in them."""


def read_tree(text: str) -> dict[str, Any]:
    """Return the tables of a recipe; see `gem_yaml.read_yaml`."""
    try:
        _refuse_events(text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            return {}
        if not isinstance(node, yaml.MappingNode):
            raise RecipeError(f"{_line(node)}: a recipe is a table of keys: write name: ... first.")
        return _table(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark is not None else ""
        raise RecipeError(f"not valid YAML: {line}{error.problem or error.context}.") from None
    except yaml.YAMLError as error:
        raise RecipeError(f"not valid YAML: {' '.join(str(error).split())}.") from None


def _refuse_events(text: str) -> None:
    """Raise RecipeError for what TOML has not: a second document, anchors, aliases, tags, depth."""
    documents = depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise RecipeError("not valid YAML: it is nested too deeply.")
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise RecipeError(f"{_line(event)}: a second document: a recipe is one.")
        if getattr(event, "anchor", None) is not None:
            name = f"{'*' if isinstance(event, yaml.AliasEvent) else '&'}{event.anchor}"
            raise RecipeError(
                f"{_line(event)}: {name}: anchors and aliases are not read: write the value out."
            )
        if getattr(event, "tag", None) is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise RecipeError(f"{_line(event)}: the tag {tag} is not read: leave it out.")


def _line(place: Any) -> str:
    return f"line {place.start_mark.line + 1}"


def _table(node: yaml.MappingNode, path: tuple[str, ...]) -> dict[str, Any]:
    """Return a table. Its keys are taken as they are written: ``on`` and ``0`` are texts."""
    table: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = _key(key_node, path)
        if key in table:
            name = ".".join((*path, key))
            raise RecipeError(f"{_line(key_node)}: {name} stands there twice: leave one out.")
        table[key] = _value(value_node, (*path, key))
    return table


def _key(node: yaml.Node, path: tuple[str, ...]) -> str:
    """Return a key; a dotted one is refused where it cannot be meant as it is."""
    if not isinstance(node, yaml.ScalarNode):
        raise RecipeError(f"{_line(node)}: a key is a text, not a list or a table.")
    key = str(node.value)
    plain = node.style is None
    if plain and key in ("", "<<", "~"):
        raise RecipeError(f"{_line(node)}: {key or 'an empty text'} is no key: write its name.")
    if plain and "." in key and not any(name in _FREE for name in path):
        table, _, name = key.rpartition(".")
        raise RecipeError(
            f"{_line(node)}: {key}: YAML has no dotted keys: write {name} in the table "
            f"{'.'.join((*path, table))}."
        )
    return key


def _value(node: yaml.Node, path: tuple[str, ...]) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _table(node, path)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, str(number))) for number, item in enumerate(node.value)]
    if node.style is not None:  # in quotes, or a block of text
        return str(node.value)
    try:
        return read_scalar(node.value)
    except RecipeError as error:
        raise RecipeError(f"{_line(node)}: {'.'.join(path)}: {error}.") from None
