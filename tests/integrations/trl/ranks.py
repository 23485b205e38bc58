"""One rank of ``test_ranks.py``: ``torchrun ranks.py MODE OUT MODEL``; writes a JSON file."""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path

import torch
from transformers import AutoTokenizer
from trl.generation.vllm_generation import VLLMGeneration

from gem_core.episodes.data import Completion
from gem_core.episodes.rollout import Request
from gem_core.training.recipe import load_recipe
from gem_trl.trainer import GemTrainer

SALT = 0  # some episodes end early with it, one has an invalid action


def chosen(trainer, prompt_ids):
    """An action that depends on the prompt alone, so on the task and not on the rank."""
    pick = zlib.crc32(f"{SALT} {prompt_ids}".encode()) % 12
    text = "x" if pick == 11 else f"\\boxed{{{pick}}}"
    ids = trainer.processing_class.encode(text, add_special_tokens=False)
    return [*ids, trainer.processing_class.eos_token_id]


def by_task(trainer, request):
    """An action that depends on the task's number and the turn: members of a group differ."""
    key = [request.machine._episode.index, request.machine.turn]
    return Completion(chosen(trainer, key))


class Client:
    """A vLLM server's client that answers at once and counts what it was asked."""

    def __init__(self, trainer):
        self.trainer = trainer
        self.sizes = []

    def generate(self, prompts, **_):
        self.sizes.append(len(prompts))
        ids = [chosen(self.trainer, prompt) for prompt in prompts]
        logprobs = [[[-0.5]] * len(row) for row in ids]
        return {"prompt_ids": prompts, "completion_ids": ids, "logprobs": logprobs}


def serve(trainer):
    """TRL's own server code path (gather, one call, broadcast, slice) over the stub client."""
    engine = object.__new__(VLLMGeneration)
    fields = {
        "accelerator": trainer.accelerator,
        "mode": "server",
        "vllm_client": Client(trainer),
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": None,
        "repetition_penalty": 1.0,
        "max_completion_length": 8,
        "enable_sleep_mode": False,
        "logprobs": 0,
        "structured_outputs_regex": None,
        "generation_kwargs": {},
        "tensor_parallel_size": 1,
    }
    vars(engine).update(fields)
    engine.sync_weights = lambda: None
    trainer.use_vllm = True
    trainer.vllm_mode = "server"
    trainer.vllm_generation = engine
    trainer._last_loaded_step = 0
    return engine.vllm_client


def play(trainer, server):
    client = serve(trainer) if server else None
    if not server:
        policy = trainer.engine_policy
        policy.complete_batch = lambda requests: [by_task(trainer, r) for r in requests]
    trainer.model.train()
    local = trainer.recipe.batch.episodes // trainer.accelerator.num_processes
    first = trainer.first_task(local)
    repeat = trainer.args.num_generations
    rows = [{"prompt": "", "first_task": (first + k) // repeat * repeat} for k in range(local)]
    # TRL's importance-sampling correction needs a real engine's log-probabilities.
    trainer.vllm_importance_sampling_correction = False
    out = trainer._generate_and_score_completions(rows)
    mine = trainer.step_batch.mine
    return {
        "tasks": [e.index for e in mine],
        "turns": [len(e.turns) for e in mine],
        "actions": [[t.action for t in e.turns] for e in mine],
        "advantages": [row[row != 0].tolist() for row in out["advantages"]],
        "calls": client.sizes if client else [],
        "items": int(out["num_items_in_batch"]),
        "critic": weights_of(trainer.critic.model) if trainer.critic else None,
    }


def weights_of(model):
    return float(torch.cat([p.detach().flatten() for p in model.parameters()]).double().sum())


def uneven(trainer):
    """Rank 0 has three prompts in a first call and none in the second; rank 1 has one in each."""
    client = serve(trainer)
    rank = trainer.accelerator.process_index
    right = []
    for count in ((3,), (1, 1))[rank]:
        machines = [trainer.machines.train(rank * 10 + k) for k in range(count)]
        requests = [Request(m.start(), 8, m) for m in machines]
        answers = trainer.engine_policy.complete_batch(requests)
        for answer, request in zip(answers, requests, strict=True):
            right.append(answer.token_ids == chosen(trainer, request.prompt_ids))
    trainer.engine_policy.drain()
    return {"right": right, "calls": client.sizes}


def main(mode, out, model):
    torch.set_num_threads(1)
    keys = ["model.tiny.warm_start_steps=0", "batch.episodes=8", "train.steps=3"]
    keys += ["algorithm.epochs=1"]
    keys += ["algorithm.estimator=grpo", "batch.group_size=8"] if mode == "grpo" else []
    keys += ["algorithm.estimator=gae", "algorithm.critic_lr=0.01"] if mode == "gae" else []
    recipe = load_recipe("guess-the-number-easy", "tiny", keys)
    tokenizer = AutoTokenizer.from_pretrained(model)
    trainer = GemTrainer.from_recipe(recipe, model, tokenizer, Path(out) / "checkpoints")
    if mode == "gae":  # a critic that starts at zero would show nothing
        torch.manual_seed(0)
        trainer.critic.model[1].weight.data.normal_()
    if mode == "train":
        trainer.train()
        result = {
            "step": trainer.state.global_step,
            "sum": weights_of(trainer.model),
            "evaluation": sorted(e.index for e in trainer.play_evaluation(5)),
        }
    elif mode == "uneven":
        result = uneven(trainer)
    else:
        result = play(trainer, mode == "server")
    rank = trainer.accelerator.process_index
    (Path(out) / f"{mode}-{rank}.json").write_text(json.dumps(result))
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
