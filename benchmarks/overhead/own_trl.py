"""TRL's own loop: ``GRPOTrainer`` on a data set of prompts with a reward function.

TRL times no part of a step on its own, so one stopwatch goes around the same stock methods here
and, with ``--adapter``, in a run of the adapter. Generation is the engine alone: playing and
scoring episodes is part of the rest. Both sample with gem_core's CPU engine: what is compared is
the loop around it.
"""

from __future__ import annotations

from typing import Any

import torch
import trl
from accelerate.optimizer import AcceleratedOptimizer
from datasets import Dataset
from shared import Stopwatch, adapter_asked, folder, given, log, prompts, reward
from transformers import AutoTokenizer

from gem_core.cli import main as command_line
from gem_core.policies.engine.engine import Engine, EngineRequest
from gem_core.training.allocator import keep_freed_memory
from gem_core.training.tiny import model_path
from gem_trl.config import translate

GENERATE = "generate"
SCORE = "_generate_and_score_completions"


def main() -> None:
    time_steps()
    if arguments := adapter_asked():
        raise SystemExit(command_line(arguments))
    train()


def time_steps() -> None:
    """Log a step where TRL logs it."""
    watch = Stopwatch()
    watch.around(Engine, GENERATE)
    for method in (SCORE, "training_step"):
        watch.around(trl.GRPOTrainer, method)
    watch.around(AcceleratedOptimizer, "step")
    write = trl.GRPOTrainer.log
    tokens_before = 0.0

    def log_step(self: Any, logs: dict[str, float], *args: Any) -> None:
        nonlocal tokens_before
        write(self, logs, *args)
        if "loss" not in logs:
            return  # the summary at the end of training
        seconds = watch.take()
        update = seconds["training_step"] - seconds[SCORE] + seconds["step"]
        log(seconds[GENERATE], update, logs["num_tokens"] - tokens_before)
        tokens_before = logs["num_tokens"]

    trl.GRPOTrainer.log = log_step


def train() -> None:
    """Stock training: TRL's data set, generation, rewards, advantages and loss."""
    recipe = given()
    keep_freed_memory()
    torch.set_num_threads(2)
    model = model_path(recipe)
    trl.GRPOTrainer._generate_single_turn = sample
    trl.GRPOTrainer(
        model=model,
        reward_funcs=score,
        args=trl.GRPOConfig(output_dir=str(folder() / "trl"), **translate(recipe)),
        train_dataset=Dataset.from_dict({"prompt": prompts()}),
        processing_class=AutoTokenizer.from_pretrained(model),
    ).train()


def sample(trainer: Any, prompt_ids: list[list[int]], *_: Any) -> tuple[list[list[int]], Any]:
    """TRL's call for completions, by the engine that the adapter uses; no log-probabilities."""
    if not hasattr(trainer, "engine"):
        trainer.engine = Engine(trainer.accelerator.unwrap_model(trainer.model))
    most = trainer.args.generation_kwargs["max_new_tokens"]
    stop_ids = frozenset(trainer.eos_token_ids)
    requests = [EngineRequest(ids, most, stop_ids, logprobs=False) for ids in prompt_ids]
    return [completion.token_ids for completion in trainer.engine.generate(requests)], None


def score(completions: list[str], **_: Any) -> list[float]:
    """TRL's reward function."""
    return [reward(completion) for completion in completions]


if __name__ == "__main__":
    main()
