"""``gem-core model``: pretrained models from packages of the Python index."""

from __future__ import annotations

import argparse
from pathlib import Path

from gem_core.cli.output import print_json, progress_lines, quiet_libraries
from gem_core.errors import DataError
from gem_core.policies.models.files import origin_of
from gem_models.catalogue import MODELS, PackagedModel, packaged_model
from gem_models.folders import (
    find_model,
    get_model,
    trimmed_model,
)


def get(arguments: argparse.Namespace) -> int:
    """Download a model unless the cache has it; trim its vocabulary if that is asked for."""
    quiet_libraries()
    model = packaged_model(arguments.name)
    say = progress_lines() if not arguments.json else (lambda line: None)
    say(f"{model.name}: {model.summary}; {model.size_mb} MB. {model.terms}: {model.terms_url}")
    folder = get_model(model, arguments.accept_terms)
    if arguments.trim_vocabulary:
        texts = _texts(arguments.trim_vocabulary, arguments.profile)
        folder = trimmed_model(model, texts, arguments.trim_vocabulary)
    _print_folder(arguments, folder)
    return 0


def list_models(arguments: argparse.Namespace) -> int:
    """Print the models of the catalogue, one per line, and the folders of those in the cache."""
    found = {name: _folder(model) for name, model in MODELS.items()}
    if arguments.json:
        print_json(arguments, {"models": found})
        return 0
    for name, folder in found.items():
        place = f"not here; {MODELS[name].size_mb} MB" if folder is None else folder
        print(f"{name}  {MODELS[name].summary}  ({place})")
    return 0


def path(arguments: argparse.Namespace) -> int:
    """Print the folder of a model that the cache has."""
    _print_folder(arguments, find_model(packaged_model(arguments.name)))
    return 0


def _folder(model: PackagedModel) -> str | None:
    try:
        return str(find_model(model))
    except DataError:
        return None


def _texts(recipes: list[str], profile: str | None) -> list[str]:
    """Return what the environments of the recipes show and what is answered, and numbers."""
    from gem_core.runs.recipe.load import load_recipe
    from gem_core.training.tiny.corpus import own_corpus

    texts = [text for name in recipes for text in own_corpus(load_recipe(name, profile))]
    numbers = [str(number) for number in range(-100, 1000)]
    return [*texts, *numbers, *(f"\\boxed{{{number}}}" for number in numbers)]


def _print_folder(arguments: argparse.Namespace, folder: Path) -> None:
    origin = origin_of(str(folder))
    if arguments.json:
        print_json(arguments, {"folder": str(folder), "origin": origin})
    else:
        print(folder)
