"""The recorded runs of the parity suite, as overrides of the tiny recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import Recipe


@dataclass(frozen=True)
class RunCase:
    """One recorded run.

    Attributes:
        steps: training steps.
        about: overrides that the case is about; a trainer that refuses one refuses the case.
        also: overrides that are left out where a trainer refuses them.
    """

    steps: int
    about: tuple[str, ...]
    also: tuple[str, ...] = ()

    def recipe(
        self,
        refused: Sequence[str] = (),
        steps: int | None = None,
        overrides: Sequence[str] = (),
    ) -> Recipe:
        """Return the recipe.

        Args:
            refused: keys that the trainer refuses.
            steps: training steps, instead of the case's.
            overrides: of what the case is not about.
        """
        also = [text for text in (*_ALSO, *self.also) if text.partition("=")[0] not in refused]
        length = [f"train.steps={steps or self.steps}"]
        return load_recipe(
            "guess-the-number-easy", "tiny", [*_BASE, *also, *overrides, *self.about, *length]
        )

    def left_out(self, refused: Mapping[str, str]) -> dict[str, str]:
        """Return those keys of the case that are left out, and why."""
        keys = [text.partition("=")[0] for text in (*_ALSO, *self.also)]
        return {key: refused[key] for key in keys if key in refused}

    def refusal(self, refused: Mapping[str, str]) -> str | None:
        """Return why a trainer refuses the case; None if it does not."""
        for text in self.about:
            key, _, value = text.partition("=")
            reason = refused.get(key) or refused.get(f"{key}={value}")
            if reason:
                return reason
        return None


_BASE = (
    "batch.episodes=16",
    "batch.group_size=2",
    "algorithm.epochs=3",
    "algorithm.minibatches=2",
    "algorithm.lr_schedule=cosine",
    "algorithm.warmup_steps=2",
    "algorithm.weight_decay=0.5",
    "algorithm.max_grad_norm=0.5",
    "limits.max_context_tokens=256",
    "train.save_every=0",
    "sampling.temperature=0.7",  # at 1, a division too many does not show
)
_ALSO = ("algorithm.kl_coef=0.05", "algorithm.entropy_coef=0.01")
_REBN = ("algorithm.estimator=rebn",)
# At the tiny profile's rate, rounding errors on random tokens grow tenfold every few steps.
_LONG = ("algorithm.lr=3e-4", "algorithm.clip_low=0.03", "algorithm.clip_high=0.03")
RUNS: dict[str, RunCase] = {
    "rebn": RunCase(60, (*_REBN, "algorithm.options.per_env=true", *_LONG)),
    "grpo": RunCase(60, ("algorithm.estimator=grpo", *_LONG)),
    "ppo": RunCase(60, ("algorithm.estimator=gae", "algorithm.critic_lr=2e-4", *_LONG)),
    "mean of sequences": RunCase(
        6, (*_REBN, "algorithm.loss_aggregation=sequence", "algorithm.max_grad_norm=100")
    ),
    "loss constant": RunCase(
        6, (*_REBN, "algorithm.loss_aggregation=constant", "algorithm.loss_constant=40")
    ),
    "KL in the reward": RunCase(6, (*_REBN, "algorithm.kl_in=reward")),
    "narrow clip": RunCase(6, (*_REBN, "algorithm.clip_low=0.02", "algorithm.clip_high=0.02")),
    "unequal clip": RunCase(6, ("algorithm.clip_low=0.02", "algorithm.clip_high=0.05", *_REBN)),
    "LoRA": RunCase(6, (*_REBN, "model.lora.rank=4", "model.lora.alpha=12", "algorithm.lr=0.01")),
    "micro-batch 1": RunCase(6, (*_REBN, "batch.micro_batch=1"), ("algorithm.entropy_coef=0",)),
    "a minibatch per episode": RunCase(
        6,
        (*_REBN, "batch.episodes=14", "batch.group_size=1", "algorithm.minibatches=14"),
    ),
    "ppo, whitened": RunCase(
        6,
        (
            "algorithm.estimator=gae",
            "algorithm.options.whiten=true",
            "algorithm.gamma=1.0",
            "algorithm.loss_aggregation=sequence",
            "algorithm.value_clip=0.01",
            "algorithm.max_grad_norm=100",
        ),
    ),
}
"""Name -> case. In each: three epochs, two minibatches (fourteen in the one with a minibatch per
episode), KL term, entropy bonus, warm-up, schedule, weight decay, two environments, limits of every
kind with rewards, and episodes that fail. Gradients are clipped, except in two cases, where the
size of the loss shows."""
STRONG = {
    "large KL term": RunCase(
        6, (*_REBN, "algorithm.options.per_env=true", "algorithm.kl_coef=2.0", "algorithm.lr=1e-3")
    ),
    "large KL term, mean of sequences": RunCase(
        6,
        (
            *_REBN,
            "algorithm.loss_aggregation=sequence",
            "algorithm.kl_coef=2.0",
            "algorithm.lr=1e-3",
        ),
    ),
    "large entropy bonus, mean of sequences": RunCase(
        6,
        (
            *_REBN,
            "algorithm.loss_aggregation=sequence",
            "algorithm.entropy_coef=20.0",
            "algorithm.lr=1e-3",
        ),
    ),
}
"""Name -> case in which a small term of the loss is large, for faults and traits that show in it
alone. They are not in the suite of `RUNS`."""
