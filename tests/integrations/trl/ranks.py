"""One rank of ``test_ranks.py``: ``torchrun ranks.py OUT MODEL MODE...``.

Starting TRL takes longer than any mode, so all are played in the same processes, one after
another. The result of each is in ``OUT/MODE``, a JSON file per rank.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import zlib
from functools import partial
from pathlib import Path

import torch
from transformers import AutoTokenizer, TrainerCallback
from trl.generation import vllm_client
from trl.generation.vllm_generation import VLLMGeneration

from gem_core.env.interface import Wrapper
from gem_core.episodes.data import Completion
from gem_core.episodes.rollout import Request
from gem_core.runs.recipe.load import load_recipe
from gem_trl import launch
from gem_trl.ranks import leave_ranks
from gem_trl.trainer import GemTrainer

FAILED = 5
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


class Session:
    """What of ``requests.Session`` says how many connections are kept."""

    max_retries = 5

    def __init__(self, pool_maxsize=64, max_retries=None):
        self.kept = pool_maxsize
        assert max_retries in (None, 5)

    def get_adapter(self, url):
        return self

    def mount(self, url, adapter):
        self.kept = adapter.kept


class Client:
    """A vLLM server's client that answers at once and counts what it was asked."""

    def __init__(self, trainer, base_url):
        self.trainer = trainer
        self.base_url = base_url
        self.session = Session()
        self.sizes = []
        self.in_main_thread = []

    def generate(self, prompts, **_):
        self.sizes.append(len(prompts))
        self.in_main_thread.append(threading.current_thread() is threading.main_thread())
        ids = [chosen(self.trainer, prompt) for prompt in prompts]
        logprobs = [[[-0.5]] * len(row) for row in ids]
        return {"prompt_ids": prompts, "completion_ids": ids, "logprobs": logprobs}


def serve(trainer):
    """TRL's own server code path (gather, one call, broadcast, slice) over the stub client."""
    engine = object.__new__(VLLMGeneration)
    fields = {
        "accelerator": trainer.accelerator,
        "mode": "server",
        "server_base_url": "http://127.0.0.1:1",
        "server_timeout": 1.0,
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
    clients = [Client(trainer, engine.server_base_url)]
    vllm_client.VLLMClient = lambda base_url, **_: clients[0]
    if trainer.accelerator.is_main_process:  # as TRL: the other ranks have none
        engine.vllm_client = clients[0]
    engine.sync_weights = lambda: None
    trainer.use_vllm = True
    trainer.vllm_mode = "server"
    trainer.vllm_generation = engine
    trainer._last_loaded_step = 0
    return clients[0]


class Slow(Wrapper):
    """An environment that may block, and does."""

    def step(self, action):
        time.sleep(0.05)
        return self.env.step(action)


class SlowMachines:
    """Machines of which those of the second rank have environments that block."""

    def __init__(self, make):
        self._make = make

    def __getattr__(self, name):
        return getattr(self._make, name)

    def __call__(self, task):
        machine = self._make(task)
        if task.index >= 4:
            machine.env = Slow(machine.env)
        return machine


def play(trainer, mode):
    client = serve(trainer) if mode in ("server", "requests") else None
    if mode == "requests":
        trainer.machines = SlowMachines(trainer.machines)
    if not client:
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
        "in_main_thread": any(client.in_main_thread) if client else None,
        "items": int(out["num_items_in_batch"]),
        "critic": weights_of(trainer.critic.model) if trainer.critic else None,
    }


class GradientMemory(TrainerCallback):
    """Counts the pieces of memory that hold the first gradients, and the gradients."""

    def __init__(self):
        self.storages = []

    def on_pre_optimizer_step(self, *args, model, **kwargs):
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        places = {grad.untyped_storage().data_ptr() for grad in grads}
        self.storages = self.storages or [len(places), len(grads)]


def gradient(trainer):
    """The norm of the first gradient, where one episode failed and lengths are uneven."""
    make = trainer.machines

    class Failing:
        def __getattr__(self, name):
            return getattr(make, name)

        def __call__(self, task):
            machine = make(task)
            if task.index == FAILED:
                machine.env.unwrapped.step = broken
            return machine

    trainer.machines = Failing()
    policy = trainer.engine_policy
    policy.complete_batch = lambda requests: [by_task(trainer, r) for r in requests]
    memory = GradientMemory()
    trainer.add_callback(memory)
    trainer.train()
    episodes = trainer.step_batch.episodes
    return {
        "norm": trainer.state.log_history[0]["grad_norm"],
        "stops": [str(episode.stop_reason) for episode in episodes],
        "turns": [len(episode.turns) for episode in episodes],
        "storages": memory.storages,
        "rows": len(trainer.step_batch.rows),
    }


def broken(action):
    raise OSError("the environment fails")


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


def restored(trainer, folder):
    """What each rank resumes from, where the second one sees a newer checkpoint than the first."""
    rank = trainer.accelerator.process_index
    view = folder / f"seen-by-{rank}"
    for step in range(1, 3 + rank):
        checkpoint = view / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "trainer_state.json").write_text("{}")
        for other in range(1 if (rank, step) == (0, 2) else 2):  # the second rank was not done
            (checkpoint / f"rng_state_{other}.pth").touch()
    chosen_checkpoint = launch.restore(trainer, view)
    left = sorted(path.name for path in view.iterdir())
    return {"checkpoint": str(Path(chosen_checkpoint).relative_to(folder)), "left": left}


LOSSES = {
    "token": (),
    "sequence": ("algorithm.loss_aggregation=sequence",),
    "constant": ("algorithm.loss_aggregation=constant", "algorithm.loss_constant=40"),
}
ROWS = ("context.history=last", "algorithm.entropy_coef=0.1")
IN_PASSES = {"in passes": ("algorithm.loss_aggregation=sequence", "batch.micro_batch=1")}
ESTIMATORS = {
    "grpo": ("algorithm.estimator=grpo", "batch.group_size=8"),
    "gae": ("algorithm.estimator=gae", "algorithm.critic_lr=0.01"),
}


def make_trainer(model, tokenizer, folder, *keys):
    small = ["model.tiny.warm_start_steps=0", "batch.episodes=8", "train.steps=3"]
    recipe = load_recipe("guess-the-number-easy", "tiny", [*small, "algorithm.epochs=1", *keys])
    return GemTrainer.from_recipe(recipe, model, tokenizer, folder)


def played(mode, make):
    """The episodes of a batch; a critic that starts at zero would show nothing."""
    trainer = make(*ESTIMATORS.get(mode, ()))
    if trainer.critic:
        torch.manual_seed(0)
        trainer.critic.model[1].weight.data.normal_()
    return play(trainer, mode)


def trained(trainer, folder):
    """Three steps, an evaluation, and what a resumed run would begin with."""
    trainer.train()
    return {
        "step": trainer.state.global_step,
        "sum": weights_of(trainer.model),
        "evaluation": sorted(e.index for e in trainer.play_evaluation(5)),
        "restored": restored(trainer, folder),
    }


def result_of(mode, make, folder):
    """What this rank reports of a mode."""
    if mode == "gradient":
        return {name: gradient(make("train.steps=1", *more)) for name, more in LOSSES.items()}
    if mode == "rows":
        losses = (LOSSES | IN_PASSES).items()
        return {name: gradient(make("train.steps=1", *ROWS, *more)) for name, more in losses}
    if mode == "uneven":
        return uneven(make())
    return trained(make(), folder) if mode == "train" else played(mode, make)


def main(out, model, *modes):
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(model)
    for mode in modes:
        folder = Path(out) / mode
        folder.mkdir(exist_ok=True)  # by the first rank
        make = partial(make_trainer, model, tokenizer, folder / "checkpoints")
        result = result_of(mode, make, folder)
        (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(result))
    leave_ranks()
    # In the end of the interpreter a thread of a library has aborted a process whose results were
    # all written. The tests are about the results.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
