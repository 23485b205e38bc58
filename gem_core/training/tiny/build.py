"""Builds the tiny model: tokenizer, random weights, warm start."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import transformers
from safetensors.torch import save_file

from gem_core.evaluation.local import one_torch_thread
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.tiny.corpus import corpus, own_corpus
from gem_core.training.tiny.model import initial_model, write_config
from gem_core.training.tiny.tokenizer import train_tokenizer, write_tokenizer
from gem_core.training.warm_start.build import write_record
from gem_core.training.warm_start.clone import clone
from gem_core.training.warm_start.episodes import expert_episodes
from gem_core.training.warm_start.imitation import imitation_of


def build(recipe: Recipe, settings: dict[str, Any], folder: Path) -> None:
    """Build the tiny model of ``recipe`` into ``folder``, an empty one, in Hugging Face format.

    The settings are recorded in ``warm_start.json`` with the loss curve.
    """
    began = time.perf_counter()
    config = recipe.model.tiny
    texts = corpus() if config.corpus == "games" else own_corpus(recipe)
    tokenizer = train_tokenizer(texts, config.vocab, config.pieces)
    write_tokenizer(tokenizer, folder, config.max_positions)
    hf = transformers.AutoTokenizer.from_pretrained(folder)
    write_config(config, len(hf), hf.eos_token_id, hf.pad_token_id, folder)
    guessed: Counter[str] = Counter()
    imitation = imitation_of(recipe)
    episodes = expert_episodes(recipe, hf, imitation.steps * imitation.batch, guessed)
    with one_torch_thread():  # the matrices are tiny
        model = initial_model(folder, recipe.seed)
        losses = clone(model, episodes, imitation)
    weights = {name: w.detach().contiguous() for name, w in model.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors writes 0600
    write_record(folder, settings, episodes, guessed, losses, time.perf_counter() - began)
