"""Behaviour cloning of stored episodes, with a loss on the tokens of actions alone.

The tokens are laid out as in training by reinforcement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from gem_core.episodes.data import Episode, Segment
from gem_core.policies.engine.first_calls import make_first_calls
from gem_core.training.warm_start.imitation import Imitation

_NO_LOSS = -100


def clone(model: Any, episodes: Sequence[Episode], imitation: Imitation) -> list[float]:
    """Train ``model`` in place to imitate ``episodes``; each episode is used once.

    AdamW, linear warm-up, then cosine decay to zero; gradient norm at most 1.

    Args:
        model: a causal language model on its device; parameters without gradient stay.
        episodes: ``steps * batch`` episodes, in the order of training.
        imitation: steps, batch size, learning rate, warm-up and precision.

    Returns:
        The loss of each step: mean cross-entropy per action token, in nats.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    make_first_calls()
    device = model.device.type
    settings: dict[str, Any] = {"lr": imitation.lr, "betas": (0.9, 0.95), "weight_decay": 0.0}
    fused = device == "cuda" or None  # torch's default there copies all weights
    optimizer = torch.optim.AdamW(trained, **settings, fused=fused)
    losses = []
    model.train()
    for step in range(imitation.steps):
        for group in optimizer.param_groups:
            group["lr"] = imitation.lr * _schedule(step, imitation)
        played = episodes[step * imitation.batch : (step + 1) * imitation.batch]
        loss = 0.0
        for part, share in _parts([s for e in played for s in e.segments], imitation.micro_batch):
            with _precision(imitation, device):
                of_part = share * action_loss(model, part)
            of_part.backward()
            loss += of_part.item()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss)
    return losses


def _parts(
    segments: list[Segment], micro_batch: int | None
) -> Iterator[tuple[list[Segment], float]]:
    """Yield the parts that go through the model together, each with its share of action tokens.

    In parts, the sequences are sorted by their lengths, so that less is padding, and those without
    an action token are left out.
    """
    if micro_batch is None:
        yield segments, 1.0
        return
    acting = [segment for segment in segments if any(segment.loss_mask)]
    ordered = sorted(acting, key=lambda segment: len(segment.token_ids))
    total = sum(sum(segment.loss_mask) for segment in ordered)
    for first in range(0, len(ordered), micro_batch):
        part = ordered[first : first + micro_batch]
        yield part, sum(sum(segment.loss_mask) for segment in part) / total


def _schedule(step: int, imitation: Imitation) -> float:
    """Return the share of the learning rate at a step, counted from 0."""
    rise = min(1.0, (step + 1) / max(imitation.warmup, 1))
    return rise * 0.5 * (1 + math.cos(math.pi * step / imitation.steps))


def _precision(imitation: Imitation, device: str) -> Any:
    if imitation.dtype == "float32":
        return nullcontext()
    return torch.autocast(device, dtype=torch.bfloat16)


def _decoder(model: Any) -> Any:
    """Return the part before the output layer; in transformers 4 Gemma 3 is its own base."""
    base = model.base_model
    return model.model if base is model else base


def action_loss(model: Any, segments: Sequence[Segment]) -> torch.Tensor:
    """Return the mean cross-entropy of the action tokens, in nats, on the model's device.

    Padding is on the right, where the causal mask hides it from every other token. The output layer
    is applied only to the positions of action tokens: a vocabulary of 262,144 tokens would need
    1 MiB for each other one.
    """
    length = max(len(s.token_ids) for s in segments)
    ids = torch.zeros(len(segments), length, dtype=torch.long)
    labels = torch.full((len(segments), length), _NO_LOSS)
    for row, segment in enumerate(segments):
        tokens = torch.tensor(segment.token_ids)
        ids[row, : len(tokens)] = tokens
        acted = torch.tensor(segment.loss_mask, dtype=torch.bool)
        labels[row, : len(tokens)][acted] = tokens[acted]
    ids, labels = ids.to(model.device), labels.to(model.device)
    hidden = _decoder(model)(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    targets = labels[:, 1:]
    counts = targets != _NO_LOSS
    logits = model.get_output_embeddings()(hidden[counts])
    cap = getattr(model.config, "final_logit_softcapping", None)
    if cap:
        logits = cap * torch.tanh(logits / cap)
    return torch.nn.functional.cross_entropy(logits.float(), targets[counts])
