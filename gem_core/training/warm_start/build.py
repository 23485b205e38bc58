"""Builds a pretrained model's warm start: plays the episodes, clones them, writes the folder."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from gem_core.episodes.data import Episode
from gem_core.policies.models.files import copy_source_files
from gem_core.policies.models.weights import load_model
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.tiny.tokenizer import write_json
from gem_core.training.warm_start.clone import clone
from gem_core.training.warm_start.device import on_recipes_device
from gem_core.training.warm_start.episodes import expert_episodes
from gem_core.training.warm_start.imitation import imitation_of


def build_pretrained(recipe: Recipe, source: Path, settings: dict[str, Any], folder: Path) -> None:
    """Give the model in ``source`` the recipe's warm start and write it into the empty ``folder``.

    The settings are recorded in ``warm_start.json`` with the loss curve.
    """
    began = time.perf_counter()
    imitation = imitation_of(recipe)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    guessed: Counter[str] = Counter()
    episodes = expert_episodes(recipe, tokenizer, imitation.steps * imitation.batch, guessed)
    model = load_model(source)
    with on_recipes_device(recipe, model) as device:
        losses = clone(model, episodes, imitation)
    model.to(getattr(torch, recipe.model.dtype)).save_pretrained(folder)
    copy_source_files(str(source), None, folder)
    write_record(folder, settings, episodes, guessed, losses, time.perf_counter() - began, device)


def write_record(
    folder: Path,
    settings: dict[str, Any],
    episodes: Sequence[Episode],
    guessed: Counter[str],
    losses: Sequence[float],
    seconds: float,
    device: str = "cpu",
) -> None:
    """Write ``warm_start.json``: what was imitated, the loss of each step, seconds, versions."""
    import tokenizers

    record = {
        "settings": settings,
        "expert": _describe(episodes, guessed),
        "loss": [round(loss, 4) for loss in losses],
        "seconds": round(seconds, 2),
        "device": device,
        "versions": {m.__name__: m.__version__ for m in (torch, transformers, tokenizers)},
    }
    write_json(folder / "warm_start.json", record)


def _describe(episodes: Sequence[Episode], guessed: Counter[str]) -> dict[str, Any]:
    """Return what was imitated: success only of the episodes that were graded."""
    graded = [e for e in episodes if not e.turns or e.turns[-1].info.get("graded", True)]
    return {
        "episodes": len(episodes),
        "graded": len(graded),
        "success": sum(e.success for e in graded) / len(graded) if graded else None,
        "random_actions": {name: n for name, n in guessed.items() if n},
    }
