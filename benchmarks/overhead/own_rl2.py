"""RL2's own loop: ``RL2.trainer.ppo`` on a JSONL of prompts with an environment file and GRPO.

RL2 also loads this file by path, as its environment file.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from shared import folder, given, log, prompts

from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.tiny import model_path

COUNT = itertools.count()


async def step(state: str, action: str, extra_info: Any) -> dict[str, Any]:
    """RL2's environment; every third reward is 1: the stand-in engine answers without a text."""
    value = float(next(COUNT) % 3 == 0)
    return {"reward": value, "score": value, "done": True, "next_state": "", "extra_info": {}}


def main() -> None:
    """Start this file under torchrun, as RL2 is."""
    from gem_rl2.cpu import environment

    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", __file__]
    raise SystemExit(subprocess.run(torchrun, env=environment()).returncode)


def train(recipe: Recipe) -> None:
    """What RL2's ``main`` does, in this process of torchrun's, on a CPU."""
    from gem_rl2.cpu import enable

    enable()
    import torch.distributed as dist
    import wandb
    from RL2.trainer import ppo

    from gem_rl2 import _compat

    _compat.patch_rl2(recipe.model.dtype)  # 0.0.2 has bfloat16 in its code
    try:
        ppo.initialize_global_process_group()
        trainer = ppo.PPOTrainer(configuration(recipe))
        wandb.log = Steps()
        trainer.train()
        dist.destroy_process_group()
    finally:
        _compat.end_children()


class Steps:
    """Takes the place of ``wandb.log`` and logs a step when RL2 has sent its weights."""

    def __init__(self) -> None:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(model_path(given()))
        self.prompt_tokens = len(tokenizer.encode(prompts()[0]))
        self.episodes = given().batch.episodes
        self.sums: dict[str, float] = defaultdict(float)

    def __call__(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        for name, value in metrics.items():
            self.sums[name] += value
        if "timing/update_rollout" in metrics:
            self.finish()

    def finish(self) -> None:
        """Log the step that ends here: RL2's other parts are its update."""
        times = {name: spent for name, spent in self.sums.items() if name.startswith("timing/")}
        rollout = times.pop("timing/rollout")
        times.pop("timing/update_rollout")
        tokens = self.prompt_tokens + self.sums["response_length/train"]
        log(rollout, sum(times.values()), tokens * self.episodes)
        self.sums.clear()


def configuration(recipe: Recipe) -> Any:
    """The adapter's configuration of ``recipe`` with RL2's own data, environment and GRPO."""
    from transformers import AutoConfig

    from gem_adapters.hydra import override
    from gem_rl2.config import translate
    from gem_rl2.native import compose_native

    model = model_path(recipe)
    data = first_prompts(recipe)
    stop = AutoConfig.from_pretrained(model).eos_token_id  # the stand-in engine has to be told
    own = {
        "actor.model_name": model,
        "train_data.path": data,
        "test_data.path": data,
        "adv.estimator": "reinforce",
        "adv.norm_var": True,
        "rollout.env_path": __file__,
        "rollout.max_turns": 1,
        "+rollout.train_sampling_params.stop_token_ids": [stop],
        "trainer.save_dir": str(folder() / "checkpoints"),
        "trainer.save_freq": None,
    }
    adapter = [text for text in translate(recipe) if text.partition("=")[0] not in own]
    return compose_native([*adapter, *(override(key, value) for key, value in own.items())])


def first_prompts(recipe: Recipe) -> str:
    """RL2's data set: the prompts of one step, for an epoch is a step here as in the adapter."""
    path = folder() / "epoch.jsonl"
    texts = prompts()[: recipe.groups_per_step]
    path.write_text("\n".join(json.dumps({"prompt": text}) for text in texts), encoding="utf-8")
    return str(path)


if __name__ == "__main__":
    if "RANK" in os.environ:  # set by torchrun
        train(given())
    else:
        main()
