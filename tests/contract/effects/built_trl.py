"""What TRL's adapter itself makes of a recipe, beside the native configuration."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import torch
from accelerate import Accelerator

from gem_adapters.estimate import needs_critic
from gem_trl.critic import States, TurnCritic
from gem_trl.rollout import task_rows
from gem_trl.weights import lora_config

STATES = [States([5, 9, 7, 30, 31], [1, 3], False), States([*range(40, 60)], [4, 9, 18], False)]


def built(recipe, model_dir):
    """LoRA's configuration, the data rows, and what the critic learns."""
    lora = lora_config(recipe.model.lora)
    return {
        "lora": lora and {name: str(value) for name, value in lora.to_dict().items()},
        "rows": len(task_rows(recipe)),
        "critic": critic(_Hashed(recipe), model_dir) if needs_critic(recipe) else None,
    }


class _Hashed(SimpleNamespace):
    """A recipe that can be the key of a cache."""

    def __init__(self, recipe):
        super().__init__(recipe=recipe, key=repr((recipe.algorithm, recipe.train.steps)))

    def __hash__(self):
        return hash(self.key)

    def __eq__(self, other):
        return self.key == other.key


@cache
def critic(hashed, model_dir):
    """Losses and norm of a training step of the critic, and its values after it."""
    torch.manual_seed(0)
    made = TurnCritic(hashed.recipe, model_dir, Accelerator(cpu=True))
    made.model[1].weight.data.normal_()
    values = made.read(STATES)
    far = [values[0] + 3, values[1]]  # the first beyond the clip
    learned = made.learn(STATES, far, [value - 5 for value in values])
    return learned, [value.tolist() for value in made.read(STATES)]
