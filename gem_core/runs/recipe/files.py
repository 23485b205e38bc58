"""Read the files of recipes: shipped baselines and profiles, merging, ``key=value`` overrides."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gem_core.env.registration.entry_points import list_entry_points
from gem_core.errors import RecipeError, did_you_mean

LISTS = ("env", "eval.env")
"""The keys of a recipe that are lists of tables."""
FORMATS = "gem_core.recipe_formats"
"""Group of the entry points of formats besides TOML: the ending of the file, without its dot -> a
function from the text to its tables. It raises RecipeError, to which the file's name is added."""
_OTHER_FORMATS = (".yaml", ".yml", ".json", ".ini", ".cfg", ".py")
_OPTIONAL = "eval.env"
"""The list that may be absent; an override of the item after its last adds one."""


def read_tables(
    baseline: str | Path, profile: str | Path | None, overrides: Sequence[str]
) -> dict[str, Any]:
    """Return the merged tables of a baseline, a profile and overrides; nothing is validated.

    The arguments are those of `gem_core.runs.recipe.load.load_recipe`.

    Raises:
        RecipeError: there is no such file, it cannot be read, or an override is malformed.
    """
    tables = _with_base(_read(baseline, "baselines"))
    own_profiles = tables.pop("profiles", {})
    if profile is not None:
        tables = merge(tables, _read(profile, "profiles"))
        tables = merge(tables, own_profiles.get(Path(profile).stem, {}))
    return merge_overrides(tables, overrides)


def read_own_profile(baseline: str | Path, profile: str) -> dict[str, Any]:
    """Return what a baseline, or its base, sets in a profile; empty if it sets nothing.

    Raises:
        RecipeError: there is no such file, or it cannot be read.

    >>> read_own_profile("code-contest", "paper")["model"]["path"]
    'Qwen/Qwen3-4B-Base'
    """
    tables = _with_base(_read(baseline, "baselines"))
    return dict(tables.get("profiles", {}).get(profile, {}))


def _with_base(tables: dict[str, Any]) -> dict[str, Any]:
    """Return a baseline merged over the file of ``recipes/bases`` that its key ``base`` names.

    A base holds what the baselines of a category have in common, profiles included. It has no base
    itself.

    Raises:
        RecipeError: there is no such base.
    """
    base = tables.pop("base", None)
    if base is None:
        return tables
    if not isinstance(base, str):
        raise RecipeError(f"base: {base!r} is not the name of a base, a text.")
    return merge(_read(base, "bases"), tables)


def merge_overrides(tables: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return the tables of a recipe with ``dotted.key=value`` overrides merged over them.

    Raises:
        RecipeError: an override is malformed, or changes an item that does not exist.
    """
    merged = dict(tables)
    if isinstance(overrides, str):
        raise RecipeError(f"The overrides are a list of texts: [{overrides!r}].")
    for override in overrides:
        merged = merge(merged, parse_override(override))
    return merged


def overridden(overrides: Sequence[str]) -> set[str]:
    """Return the dotted keys that overrides set."""
    return {key for override in overrides for key in flatten(parse_override(override))}


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` merged over it: tables are merged, other values replaced.

    A table whose keys are numbers replaces the items of a list that have these positions:
    ``env.0.max_turns=3``.

    Raises:
        RecipeError: the list has no item at such a position.
    """
    return _merge(base, over, "")


def _merge(base: Mapping[str, Any], over: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        merged[key] = _merged(merged.get(key), value, f"{prefix}{key}")
    return merged


def _merged(old: Any, value: Any, name: str) -> Any:
    """Return what ``value`` makes of the ``old`` value of the key ``name``."""
    if not isinstance(value, Mapping):
        return value
    if old is None:
        old = [] if name == _OPTIONAL else {}
    if isinstance(old, Mapping):
        return _merge(old, value, f"{name}.")
    if isinstance(old, (list, tuple)) and value and all(str(key).isdecimal() for key in value):
        return _merge_items(old, value, name)
    return value


def _merge_items(old: Sequence[Any], value: Mapping[str, Any], name: str) -> list[Any]:
    items = list(old)
    for position, item in value.items():
        if name == _OPTIONAL and int(position) == len(items):
            items.append({})
        if int(position) >= len(items):
            raise RecipeError(
                f"{name}.{position}: the recipe has {_counted(items, name)}; to add a table, write "
                f"the whole list, {name}=[...]."
            )
        items[int(position)] = _merged(items[int(position)], item, f"{name}.{position}")
    return items


def _counted(items: Sequence[Any], name: str) -> str:
    """Return how many items a list has, with their keys, counted from 0."""
    if not items:
        return f"no {name}"
    if len(items) == 1:
        return f"one {name} table, {name}.0"
    return f"{len(items)} {name} tables, {name}.0 to {name}.{len(items) - 1}"


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one table with dotted keys.

    >>> flatten({"actor": {"kl": {"coef": 0.1}}, "seed": 3})
    {'actor.kl.coef': 0.1, 'seed': 3}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def parse_override(text: str) -> dict[str, Any]:
    """Return the nested table of one ``dotted.key=value`` override.

    Raises:
        RecipeError: the text is malformed, or the value is not TOML.
    """
    key, sign, value = text.partition("=")
    if not sign or not re.fullmatch(r"[\w.+~-]+", key.strip()):
        raise RecipeError(f"Override {text!r}: write dotted.key=value.")
    # Hydra's prefixes of native keys are no letters of a bare key in TOML.
    key = re.sub(r"[+~][\w+~-]*", lambda part: f'"{part[0]}"', key)
    for candidate in (value, f'"{value}"'):
        try:
            parsed: dict[str, Any] = msgspec.toml.decode(f"{key} = {candidate}")
            return parsed
        except msgspec.DecodeError:
            continue
    raise RecipeError(f"Override {text!r}: {value!r} is not a TOML value.")


def recipe_dirs(kind: str) -> list[Path]:
    """Return the directories of shipped ``baselines`` or ``profiles``: package, checkout."""
    package = Path(__file__).resolve().parents[2]
    return [package / "_recipes" / kind, package.parent / "recipes" / kind]


def shipped(kind: str) -> dict[str, Path]:
    """Return the shipped recipe files of a kind (``baselines``, ``profiles``) by name."""
    return {
        path.stem: path for folder in recipe_dirs(kind) for path in sorted(folder.glob("*.toml"))
    }


def is_recipe_file(name: str | Path) -> bool:
    """Return whether something that was named is a file of a recipe, by its ending.

    >>> is_recipe_file("mine.toml"), is_recipe_file("guess-the-number-easy")
    (True, False)
    """
    return _reader(Path(name).suffix) is not None


def _reader(suffix: str) -> Callable[[str], dict[str, Any]] | None:
    """Return what reads the text of a recipe with this ending, if there is something."""
    if suffix == ".toml":
        return msgspec.toml.decode
    for point in list_entry_points(FORMATS):
        if point.name == suffix.removeprefix("."):
            loaded: Callable[[str], dict[str, Any]] = point.load()
            return loaded
    return None


def _read(source: str | Path, kind: str) -> dict[str, Any]:
    if not isinstance(source, (str, Path)):
        raise RecipeError(
            f"A recipe is named by a text or a path, not by a {type(source).__name__}; "
            "recipe_from_dict takes a table."
        )
    path = Path(source)
    reader = _reader(path.suffix)
    if reader is None:
        known = shipped(kind)
        if str(source) not in known:
            raise RecipeError(_no_such_recipe(str(source), kind, known))
        path, reader = known[str(source)], msgspec.toml.decode
    try:
        return reader(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"Cannot read the recipe {path}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        place = f"byte 0x{error.object[error.start]:02x} at position {error.start}"
        raise RecipeError(f"{path} is not UTF-8 text ({place}): save it as UTF-8.") from None
    except msgspec.DecodeError as error:
        raise RecipeError(f"{path} is not valid TOML: {error}.") from None
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from None


def _no_such_recipe(source: str, kind: str, known: Mapping[str, Path]) -> str:
    """Return what to say of a name that no shipped recipe has."""
    path = Path(source)
    if path.is_file():
        return f"{source}: a recipe is a TOML file; write it as TOML and name it {path.stem}.toml."
    listing = f"`gem-core list --kind {kind}` lists them; or name a .toml file."
    if path.suffix in _OTHER_FORMATS:
        return f"There is no file {source}, and a recipe is a TOML file: name it {path.stem}.toml."
    return f"No {kind[:-1]} {source!r}.{did_you_mean(source, known)} {listing}"
