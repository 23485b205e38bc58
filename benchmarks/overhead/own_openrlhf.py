"""OpenRLHF's own loop: ``openrlhf.cli.train_ppo_ray`` on a JSONL of prompts with a reward file.

Only a log of each step is added to its trainer's actor. OpenRLHF also loads this file by path, as
the file of its reward function.
"""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

from shared import FOLDER, folder, given, log, reward

from gem_core.runs.recipe.files import merge
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.tiny import model_path


def reward_func(queries: list[str], prompts: list[str], labels: list[str]) -> dict[str, Any]:
    """OpenRLHF's reward function; a query is prompt and response."""
    import torch

    pairs = zip(queries, prompts, strict=True)
    rewards = torch.tensor([reward(query[len(prompt) :]) for query, prompt in pairs])
    return {"rewards": rewards, "scores": rewards, "extra_logs": {}}


def main() -> None:
    from gem_openrlhf.cpu import harness

    recipe = given()
    with harness.session(recipe) as options:
        import ray
        from openrlhf.trainer import ppo_trainer

        from gem_openrlhf.command_line import run_command_line

        variables = {"TOKENIZERS_PARALLELISM": "false", FOLDER: os.environ[FOLDER]}
        with (
            ray.init(**merge(options, {"runtime_env": {"env_vars": variables}})),
            patch.object(ppo_trainer, "PPOTrainer", ray.remote(logged_trainer(recipe))),
        ):
            run_command_line(arguments(recipe))


def logged_trainer(recipe: Recipe) -> Any:
    """OpenRLHF's trainer, which logs a step where OpenRLHF does."""
    from openrlhf.trainer import ppo_trainer

    class PPOTrainer(ppo_trainer.PPOTrainer.__ray_metadata__.modified_class):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.generate_kwargs["min_new_tokens"] = 0  # the stand-in engine has no minimum

        def save_logs_and_checkpoints(self, step: int, logs: Any, *rest: Any) -> None:
            tokens = logs["total_length"] * recipe.batch.episodes
            log(logs["timing/generation"], logs["timing/ppo_train"], tokens)
            super().save_logs_and_checkpoints(step, logs, *rest)

    return PPOTrainer


def arguments(recipe: Recipe) -> list[str]:
    """The adapter's flags for ``recipe`` with OpenRLHF's data, reward and GRPO in their places."""
    from gem_openrlhf.config import flags, render

    own = {
        "actor.model_name_or_path": model_path(recipe),
        "data.prompt_dataset": str(folder() / "prompts.jsonl"),
        "data.input_key": "prompt",
        "data.label_key": None,
        "reward.remote_url": __file__,
        "rollout.max_new_tokens": recipe.limits.max_tokens_per_turn,
        "algo.advantage.estimator": "group_norm",
        "ckpt.path": str(folder() / "checkpoints"),
        "ckpt.output_dir": str(folder() / "model"),
    }
    return render({**flags(recipe), **own})


if __name__ == "__main__":
    main()
