"""Oat's own loop: its ``PPOActor`` and ``PPOLearner`` on a data set with a reward oracle and GRPO.

One stopwatch goes around the same methods here and, with ``--adapter``, in a run of the adapter; a
step ends where Oat sent its weights. Generation is the engine alone and the update is without its
advantages: playing and scoring episodes, making batches and advantages are part of the rest.
"""

from __future__ import annotations

from typing import Any

import torch

from gem_oat.cpu import in_process, vllm_standin  # before Oat: installs the stand-ins

# isort: split
from datasets import Dataset, DatasetDict
from oat.algorithms.ppo import PPOActor, PPOLearner
from oat.oracles.base import RewardOracleBase
from shared import Stopwatch, adapter_asked, folder, given, log, prompts, reward

from gem_core.cli import main as command_line
from gem_core.runs.recipe.recipe import Recipe
from gem_core.training.tiny import model_path
from gem_oat.config import arguments
from gem_oat.learner import GemLearner

ADVANTAGES = "compute_monte_carlo_advantages"


def main() -> None:
    adapter_arguments = adapter_asked()
    if adapter_arguments:
        time_steps(GemLearner)
        raise SystemExit(command_line(adapter_arguments))
    time_steps(PPOLearner)
    vllm_standin.LLM = Engine  # type: ignore[misc]
    in_process.launch(settings(given()), learner_cls=PPOLearner, actor_cls=Actor)


def time_steps(learner: Any) -> None:
    """Log a step after the weights were sent to the engine."""
    watch = Stopwatch()
    watch.around(vllm_standin.LLM, "generate")
    watch.around(PPOLearner, "learning_step")
    watch.around(learner, ADVANTAGES)
    send = learner.sync_params_to_actors

    def send_and_log(self: Any) -> None:
        send(self)
        seconds = watch.take()
        rows = [len(row.prompt_ids) + len(row.response_ids) for row in self.pi_buffer]
        log(seconds["generate"], seconds["learning_step"] - seconds[ADVANTAGES], sum(rows))

    learner.sync_params_to_actors = send_and_log


def settings(recipe: Recipe) -> Any:
    """The adapter's arguments for ``recipe`` with Oat's data, batches and estimator."""
    args = arguments(recipe)
    model = model_path(recipe)
    rows = recipe.batch.episodes
    own = {
        "pretrain": model,
        "ref_pretrain": model,
        "critic_pretrain": model,
        "save_path": str(folder() / "oat"),
        "num_samples": recipe.batch.group_size,
        "critic_type": "grpo",
        "logging_steps": 1,
        "prompt_data": data_set(),
        "max_train": len(prompts()),
        "eval_split": "train",
        "online_evaluation": True,  # hands the references to the oracle
        "rollout_batch_size": recipe.groups_per_step,
        "rollout_batch_size_per_device": recipe.groups_per_step,
        "pi_buffer_maxlen_per_device": rows,
        "train_batch_size": rows,
        "train_batch_size_per_device": rows,
    }
    vars(args).update(own)
    return args


def data_set() -> str:
    """Oat's data set of prompts, which have no references."""
    path = str(folder() / "prompts")
    texts = prompts()
    columns = {"prompt": texts, "output": [""] * len(texts)}
    DatasetDict({"train": Dataset.from_dict(columns)}).save_to_disk(path)
    return path


class Oracle(RewardOracleBase):  # type: ignore[misc]
    def get_reward(self, inputs: Any, responses: list[str], *_: Any) -> tuple[torch.Tensor, Any]:
        """Oat's reward function."""
        return torch.tensor([reward(response) for response in responses]), {}


class Engine(vllm_standin.LLM):
    """The stand-in engine for prompts as text, several samples of each, stopping at its own id."""

    def generate(self, texts: list[str], sampling_params: Any, **_: Any) -> list[Any]:  # type: ignore[override]
        count = sampling_params.n
        sampling_params.stop_token_ids = [self.tokenizer.eos_token_id]
        ids = [self.tokenizer.encode(text) for text in texts]
        repeated = [prompt for prompt in ids for _ in range(count)]
        outputs = super().generate(repeated, [sampling_params] * len(repeated))
        groups = [outputs[n : n + count] for n in range(0, len(outputs), count)]
        return [
            group[0]._replace(outputs=[output.outputs[0] for output in group]) for group in groups
        ]


class Actor(PPOActor):  # type: ignore[misc]
    """Oat's actor with an oracle."""

    def init(self, actor_id: int, save_path: str) -> None:
        super().init(actor_id, save_path)
        self.oracle = Oracle()


if __name__ == "__main__":
    main()
