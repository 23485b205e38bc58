"""The warm start: behaviour cloning of a noisy expert, so that RL starts from some success.

The loss covers only the expert's action tokens, in the token layout that RL uses.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from safetensors.torch import save_file

from gem_core.episodes.data import Episode, Segment
from gem_core.runs.recipe.recipe import Recipe, TinyConfig
from gem_core.training.tiny.corpus import corpus, own_corpus
from gem_core.training.tiny.expert import expert_episodes
from gem_core.training.tiny.model import initial_model, write_config
from gem_core.training.tiny.tokenizer import train_tokenizer, write_json, write_tokenizer

_NO_LOSS = -100
_LR_WARMUP = 20


def build(recipe: Recipe, settings: dict[str, Any], folder: Path) -> None:
    """Build the tiny model of ``recipe`` into ``folder``, in Hugging Face format.

    Args:
        recipe: the experiment; ``model.tiny``, ``seed``, the environments and the context are used.
        settings: recorded in ``warm_start.json`` with the loss curve.
        folder: an existing empty directory.
    """
    began = time.perf_counter()
    config = recipe.model.tiny
    texts = corpus() if config.corpus == "games" else own_corpus(recipe)
    tokenizer = train_tokenizer(texts, config.vocab, config.pieces)
    write_tokenizer(tokenizer, folder, config.max_positions)
    hf = transformers.AutoTokenizer.from_pretrained(folder)
    write_config(config, len(hf), hf.eos_token_id, hf.pad_token_id, folder)
    guessed: Counter[str] = Counter()
    count = config.warm_start_steps * config.warm_start_batch
    episodes = expert_episodes(recipe, hf, count, guessed)
    with _one_thread():
        model = initial_model(folder, recipe.seed)
        losses = clone(model, episodes, config)
    weights = {name: w.detach().contiguous() for name, w in model.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors writes 0600
    record = {
        "settings": settings,
        "expert": _describe(episodes, guessed),
        "loss": [round(loss, 4) for loss in losses],
        "seconds": round(time.perf_counter() - began, 2),
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


def clone(model: Any, episodes: Sequence[Episode], config: TinyConfig) -> list[float]:
    """Train ``model`` in place to imitate ``episodes``; each episode is used once.

    AdamW, linear warm-up over 20 steps, then cosine decay to zero; gradient norm at most 1.

    Args:
        model: a Hugging Face causal language model.
        episodes: ``warm_start_steps * warm_start_batch`` episodes, in the order of training.
        config: steps, batch size and learning rate.

    Returns:
        The loss of each step: mean cross-entropy per action token, in nats.
    """
    steps = config.warm_start_steps
    batch = config.warm_start_batch
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.warm_start_lr, betas=(0.9, 0.95), weight_decay=0.0
    )
    losses = []
    model.train()
    for step in range(steps):
        rate = config.warm_start_lr * _schedule(step, steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        played = episodes[step * batch : (step + 1) * batch]
        loss = _loss(model, [s for e in played for s in e.segments])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def _schedule(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / _LR_WARMUP) * 0.5 * (1 + math.cos(math.pi * step / steps))


def _loss(model: Any, segments: Sequence[Segment]) -> torch.Tensor:
    """Return the mean cross-entropy of the action tokens.

    Padding is on the right, where the causal mask hides it from every other token. The output layer
    is applied only to the positions of action tokens.
    """
    length = max(len(s.token_ids) for s in segments)
    ids = torch.zeros(len(segments), length, dtype=torch.long)
    labels = torch.full((len(segments), length), _NO_LOSS)
    for row, segment in enumerate(segments):
        tokens = torch.tensor(segment.token_ids)
        ids[row, : len(tokens)] = tokens
        acted = torch.tensor(segment.loss_mask, dtype=torch.bool)
        labels[row, : len(tokens)][acted] = tokens[acted]
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    targets = labels[:, 1:]
    counts = targets != _NO_LOSS
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[counts]), targets[counts])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one torch thread: the matrices are tiny, and sums are the same on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
