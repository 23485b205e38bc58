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
from gem_core.tiny import model_path
from gem_core.training.recipe import Recipe
from gem_oat.config import arguments

ADVANTAGES = "compute_monte_carlo_advantages"


def main() -> None:
    adapter = adapter_asked()
    time_steps(in_process.InProcessLearner if adapter else Learner)
    if adapter:
        raise SystemExit(command_line(adapter))
    in_process.InProcessActor, vllm_standin.LLM = Actor, Engine  # type: ignore[misc]
    in_process.keep_freed_memory()
    in_process.make(settings(given()), Learner).run()


def time_steps(learner: Any) -> None:
    """Log a step after the weights were sent to the engine."""
    watch, send = Stopwatch(), learner.sync_params_to_actors
    watch.around(vllm_standin.LLM, "generate")
    watch.around(PPOLearner, "learning_step")
    watch.around(learner, ADVANTAGES)

    def send_and_log(self: Any) -> None:
        send(self)
        spent = watch.take()
        rows = [len(row.prompt_ids) + len(row.response_ids) for row in self.pi_buffer]
        log(spent["generate"], spent["learning_step"] - spent[ADVANTAGES], sum(rows))

    learner.sync_params_to_actors = send_and_log


def settings(recipe: Recipe) -> Any:
    """The adapter's arguments for ``recipe`` with Oat's data, batches and estimator."""
    args, groups, rows = arguments(recipe), recipe.groups_per_step, recipe.batch.episodes
    args.pretrain = args.ref_pretrain = args.critic_pretrain = model_path(recipe)
    own = {
        "num_samples": recipe.batch.group_size, "critic_type": "grpo", "logging_steps": 1,
        "prompt_data": data_set(), "max_train": len(prompts()), "eval_split": "train",
        "online_evaluation": True,  # hands the references to the oracle
        "rollout_batch_size": groups, "rollout_batch_size_per_device": groups,
        "pi_buffer_maxlen_per_device": rows,
        "train_batch_size": rows, "train_batch_size_per_device": rows,
        "save_path": str(folder() / "oat"),
    }  # fmt: skip
    vars(args).update(own)
    return args


def data_set() -> str:
    """Oat's data set of prompts, which have no references."""
    path, texts = str(folder() / "prompts"), prompts()
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
        count, ids = sampling_params.n, [self.tokenizer.encode(text) for text in texts]
        sampling_params.stop_token_ids = [self.tokenizer.eos_token_id]
        each = [row for row in ids for _ in range(count)]
        found = super().generate(each, [sampling_params] * len(each))
        parts = [found[n : n + count] for n in range(0, len(found), count)]
        return [part[0]._replace(outputs=[p.outputs[0] for p in part]) for part in parts]


class Actor(PPOActor):  # type: ignore[misc]
    """Oat's actor with an oracle; it gets its weights in memory, as the adapter's does."""

    init_process_group = in_process.InProcessActor.init_process_group
    load = in_process.InProcessActor.load

    def init(self, actor_id: int, save_path: str) -> None:
        super().init(actor_id, save_path)
        self.oracle = Oracle()


class Learner(PPOLearner):  # type: ignore[misc]
    """Oat's learner, which hands weights over in memory, as the adapter's does here."""

    _broadcast_to_vllm = in_process.InProcessLearner._broadcast_to_vllm


if __name__ == "__main__":
    main()
