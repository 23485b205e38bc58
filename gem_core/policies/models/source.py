"""Whether a model can be found and read: a folder, or an id of the Hugging Face Hub."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from gem_core.errors import GemError, MissingDependencyError, RecipeError

_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")
_NEEDED = ("torch", "transformers", "tokenizers")


def require_hf(what: str) -> None:
    """Check that torch, transformers and tokenizers are installed, without importing them.

    Args:
        what: what needs them, at the beginning of the message.

    Raises:
        MissingDependencyError: one is missing.
    """
    missing = [name for name in _NEEDED if not _present(name)]
    if missing:
        raise MissingDependencyError(
            f"{what} needs {', '.join(missing)}: pip install 'gem-core[hf]', or use the "
            "environment of a trainer."
        )


@contextmanager
def reading_model(source: str) -> Iterator[None]:
    """Inside the block, which reads the files of a model, what goes wrong is one error.

    Args:
        source: directory, or Hugging Face id; a directory is checked before.

    Raises:
        RecipeError: there is no such model, it cannot be reached, or its files cannot be read.
        MissingDependencyError: torch, transformers or tokenizers is missing.
    """
    require_hf("A model")
    require_folder(source)
    from safetensors import SafetensorError

    try:
        yield
    except GemError:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[0].rstrip(".") if lines else type(error).__name__
        raise RecipeError(
            f"The model {source!r} cannot be read: {reason}. {_what_to_do(source)}"
        ) from error


def require_folder(source: str) -> None:
    """Check a model that is named by a path; an id of the Hub is not asked for.

    Raises:
        RecipeError: there is no such directory, or no model in it.
    """
    folder = Path(source)
    if not folder.is_dir():
        if not source.startswith(".") and _HUB_ID.fullmatch(source) and not folder.exists():
            return
        kind = "is not a directory" if folder.exists() else "does not exist"
        raise RecipeError(f"The model {source!r} {kind}. {_what_to_do(source)}")
    if (folder / "recipe.json").exists():
        raise RecipeError(
            f"The model {source!r} is a run directory: name its model, {folder / 'model'}."
        )
    config = folder / "config.json"
    try:
        known = isinstance(json.loads(config.read_text(encoding="utf-8")), dict)
    except FileNotFoundError:
        raise RecipeError(
            f"The directory {source!r} has no model (no config.json). {_what_to_do(source)}"
        ) from None
    except ValueError:
        known = False
    if not known:
        raise RecipeError(f"{config} is not the JSON of a model: download or export it again.")


def _what_to_do(source: str) -> str:
    if Path(source).is_dir():
        return "Name the directory of a Hugging Face model: config.json, tokenizer and weights."
    home = " (~ is not replaced here)" if source.startswith("~") else ""
    return (
        "Name a directory with config.json, tokenizer and weights, or a Hugging Face id that this "
        f"machine has in its cache or can download{home}."
    )


def _present(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # what an adapter puts in the place of a module has no specification
        return True
