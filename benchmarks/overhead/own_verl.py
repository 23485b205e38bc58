"""verl's own loop: ``verl.trainer.main_ppo`` on a Parquet file with a reward function and GRPO.

verl also loads this file by path, as the file of its reward function, and as an external module in
each of its processes: the stand-in engine must be told where to stop, a real one knows it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from shared import folder, given, log, prompts, reward

from gem_adapters.hydra import override
from gem_core.runs.program import run_program
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.tiny import model_path
from gem_verl.cpu import engine

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
LOOP = {
    "data.shuffle": False,
    "trainer.use_v1": True,
    "trainer.v1.trainer_mode": "sync",
    "trainer.total_epochs": 1,
}
"""verl's loop as the adapter uses it; the rest of the adapter's wiring is left out."""


class Server(engine.HFServer):
    """The stand-in engine with the cap and the stop id that verl leaves to its engines."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.own_sampling = {
            "max_tokens": given().limits.max_tokens_per_turn,
            "stop_token_ids": [self.model.config.eos_token_id],
        }

    async def generate(
        self, request_id: str, prompt_ids: Any, sampling_params: dict[str, Any], **more: Any
    ) -> Any:
        """Sample one completion."""
        sampling = {**sampling_params, **self.own_sampling}
        return await super().generate(request_id, prompt_ids, sampling, **more)


def compute_score(data_source: str, solution_str: str, *_: Any, **__: Any) -> float:
    """verl's reward function."""
    return reward(solution_str)


def main() -> None:
    """Train the recipe of the comparison with verl's own loop."""
    from gem_verl.launch import session

    recipe = given()
    pipe = folder() / "steps.pipe"
    os.mkfifo(pipe)
    threading.Thread(target=log_steps, args=[pipe], daemon=True).start()
    with session(recipe) as (machine, environment):
        environment["VERL_FILE_LOGGER_PATH"] = str(pipe)
        environment["VERL_USE_EXTERNAL_MODULES"] += ",own_verl"
        values = {**settings(recipe), **machine}
        arguments = [override(key, value) for key, value in values.items()]
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *arguments]
        run_program("verl", command, environment, folder() / "log.txt")


def log_steps(pipe: Path) -> None:
    """Log a step when verl does, in its own file format."""
    for line in pipe.open("rb"):
        row = json.loads(line)["data"]
        log(row["timing_s/gen"], row["timing_s/update_actor"], row["perf/total_num_tokens"])


def settings(recipe: Recipe) -> dict[str, Any]:
    """The recipe's settings with verl's own data, reward, agent loop and estimator."""
    from gem_verl.config import recipe_settings

    data = parquet()
    model = model_path(recipe)
    return {
        **recipe_settings(recipe),
        **LOOP,
        "algorithm.adv_estimator": "grpo",
        f"{ROLLOUT}.n": recipe.batch.group_size,
        f"{ACTOR}.ppo_mini_batch_size": recipe.groups_per_step,
        "data.train_batch_size": recipe.groups_per_step,
        "data.train_files": data,
        "data.val_files": data,
        "data.max_response_length": recipe.limits.max_tokens_per_turn,
        "reward.custom_reward_function.path": __file__,
        "trainer.v1.sampler.custom_sampler.path": "pkg://verl_sampler",
        "trainer.v1.sampler.custom_sampler.name": "Sampler",
        "trainer.logger": ["file"],
        "actor_rollout_ref.model.path": model,
        "critic.model.path": model,
        "trainer.default_local_dir": str(folder() / "checkpoints"),
        "trainer.resume_mode": "disable",
    }


def parquet() -> str:
    """verl's data set: the prompts as messages, which the chat template renders as they were."""
    import pandas

    path = str(folder() / "prompts.parquet")
    rows = []
    for text in prompts():
        content = text.split("user\n", 1)[1].partition("<|im_end|>")[0]
        row = {
            "data_source": "overhead",
            "prompt": [{"role": "user", "content": content}],
            "reward_model": {"style": "rule", "ground_truth": ""},
        }
        rows.append(row)
    pandas.DataFrame(rows).to_parquet(path)
    return path


if __name__ == "__main__":
    main()
else:
    engine.HFServer = Server  # type: ignore[misc]
