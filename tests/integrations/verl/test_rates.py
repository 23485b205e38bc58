"""The rate of each optimizer step of verl's actor is that of a schedule over optimizer steps."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, get_scheduler

from gem_verl.cpu.local import LocalActor

STEPS = 3
NAMES = {"constant": "constant_with_warmup", "cosine": "cosine"}


@pytest.mark.parametrize("schedule", NAMES)
def test_a_batch_of_several_optimizer_steps_has_several_rates(
    schedule, tiny, play_task, sample_from, model_dir
):
    recipe = tiny(
        f"train.steps={STEPS}",
        "batch.episodes=6",
        "algorithm.lr=1e-3",
        "algorithm.epochs=2",
        "algorithm.minibatches=2",
        "algorithm.warmup_steps=1",
        f"algorithm.lr_schedule={schedule}",
    )
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    samples = [
        sample
        for index in range(recipe.batch.episodes)
        for sample in play_task(recipe, sample_from(model, seed=index), index)[0]
    ]
    actor = LocalActor(recipe, model_dir)
    used = []
    actor.engine.optimizer.register_step_pre_hook(
        lambda optimizer, *_: used.append(optimizer.param_groups[0]["lr"])
    )
    reported = [actor.update(actor.prepare(samples))["lr"] for _ in range(STEPS)]
    assert used == pytest.approx(rates_over_updates(schedule, 4 * STEPS, 4), rel=1e-12)
    last = [float(torch.as_tensor(rate).max()) for rate in reported]
    assert last == pytest.approx(used[3::4], rel=1e-6)


def rates_over_updates(schedule: str, updates: int, warmup: int) -> list[float]:
    """Return the rates of transformers' schedule, which the other trainers use."""
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    scheduler = get_scheduler(NAMES[schedule], optimizer, warmup, updates)
    rates = []
    for _ in range(updates):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates
