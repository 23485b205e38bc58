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

from gem_core.adapters.hydra import override
from gem_core.adapters.program import run_program
from gem_core.tiny import model_path
from gem_core.training.recipe import Recipe
from gem_verl.cpu import engine

ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
KEPT = {"data.shuffle", "trainer.use_v1", "trainer.v1.trainer_mode", "trainer.total_epochs"}
"""Of the adapter's wiring, what is no part of the adapter."""


class Server(engine.HFServer):
    """The stand-in engine with the cap and the stop id that verl leaves to its engines."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        cap, stop = given().limits.max_tokens_per_turn, self.model.config.eos_token_id
        self.known = {"max_tokens": cap, "stop_token_ids": [stop]}

    async def generate(
        self, request_id: str, prompt_ids: Any, sampling_params: dict[str, Any], **more: Any
    ) -> Any:
        """Sample one completion."""
        sampling = {**sampling_params, **self.known}
        return await super().generate(request_id, prompt_ids, sampling, **more)


def compute_score(data_source: str, solution_str: str, *_: Any, **__: Any) -> float:
    """verl's reward function."""
    return reward(solution_str)


def main() -> None:
    from gem_verl.cpu import harness

    recipe, pipe = given(), folder() / "steps.pipe"
    os.mkfifo(pipe)
    threading.Thread(target=log_steps, args=[pipe], daemon=True).start()
    with harness.session(recipe) as (native, environment):
        environment["VERL_FILE_LOGGER_PATH"] = str(pipe)
        environment["VERL_USE_EXTERNAL_MODULES"] += ",own_verl"
        arguments = [override(key, value) for key, value in (native | settings(recipe)).items()]
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *kept(recipe), *arguments]
        run_program("verl", command, environment, folder() / "log.txt")


def log_steps(pipe: Path) -> None:
    """Log a step when verl does, in its own file format."""
    for line in pipe.open("rb"):
        row = json.loads(line)["data"]
        timing = row["timing_s/gen"], row["timing_s/update_actor"]
        log(*timing, row["perf/total_num_tokens"])


def kept(recipe: Recipe) -> list[str]:
    """The adapter's overrides for ``recipe`` without what wires the adapter."""
    from gem_verl.config import WIRING, translate

    wired = WIRING.keys() - KEPT
    return [word for word in translate(recipe) if word.partition("=")[0] not in wired]


def settings(recipe: Recipe) -> dict[str, Any]:
    """verl's own data, reward, agent loop and estimator."""
    data, model = parquet(), model_path(recipe)
    return {
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

    path, plain = str(folder() / "prompts.parquet"), {"style": "rule", "ground_truth": ""}
    contents = [text.split("user\n", 1)[1].partition("<|im_end|>")[0] for text in prompts()]
    messages = [[{"role": "user", "content": content}] for content in contents]
    rows = [{"data_source": "overhead", "prompt": m, "reward_model": plain} for m in messages]
    pandas.DataFrame(rows).to_parquet(path)
    return path


if __name__ == "__main__":
    main()
else:
    engine.HFServer = Server  # type: ignore[misc]
