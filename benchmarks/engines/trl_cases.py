"""TRL with real vLLM: inside its process, as a server, and beside the stand-in; see `run.py`."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import gem_vllm_cpu
import torch
import trl_evaluation
from common import (
    BASELINE,
    KEYS,
    figures,
    require_learning,
    train_gemma,
    write_result,
)
from transformers import AutoTokenizer

from gem_core.env.interface import Wrapper
from gem_core.env.registration.references import trust
from gem_core.episodes.rollout import Request, failed_fraction, play_batch
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import train_task
from gem_core.training.experiment import run_experiment
from gem_core.training.tiny import model_path
from gem_trl import launch
from gem_trl.trainer import GemTrainer
from gem_trl.vllm import CPU_VARIABLE, SERVER_OPTIONS

BOUND = 1e-4
"""Largest difference of a sampled token's log-probability, engine against trainer, float32."""
PATIENCE_S = 400
ROUNDS = 5
"""Times that two ways of playing are measured in turn."""


class Measured(GemTrainer):
    """Keeps how far the engine's log-probabilities are from the trainer's, and how turns end."""

    largest: ClassVar[list[float]] = []
    at_temperature_1: ClassVar[list[float]] = []
    stops: ClassVar[Counter[str]] = Counter()

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        mask = (output["completion_mask"] * output["tool_mask"]).bool()
        episodes = self.step_batch.mine
        width = mask.shape[1]
        sampled = torch.zeros(mask.shape)
        for row, episode in zip(sampled, episodes, strict=True):
            for segment in episode.segments:
                values = segment.logprobs[segment.prompt_length :][:width]
                row[: len(values)] = torch.tensor(values)
        self.largest.append(float((self._logprobs(output) - sampled)[mask].abs().max()))
        raw = self._raw_logprobs(output, width)
        self.at_temperature_1.append(float((raw - sampled)[mask].abs().max()))
        self.stops.update(str(t.finish_reason) for e in episodes for t in e.turns)
        return output

    def _raw_logprobs(self, output: dict[str, Any], width: int) -> torch.Tensor:
        """Return the completions' log-probabilities at temperature 1, [rows, tokens]."""
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        with torch.no_grad():
            model = self.accelerator.unwrap_model(self.model)
            logits = model(input_ids=ids, attention_mask=mask, position_ids=positions).logits
        scores = logits[:, -width - 1 : -1].log_softmax(-1)
        return scores.gather(-1, output["completion_ids"][..., None])[..., 0]


def recipe_of(steps: int, *keys: str) -> Recipe:
    """Return the tiny profile with a model that vLLM can load."""
    return load_recipe(BASELINE, "tiny", [*KEYS, f"train.steps={steps}", *keys])


def trained(name: str, folder: Path, recipe: Recipe) -> dict[str, Any]:
    """Train a recipe; return and check what must hold."""
    launch.GemTrainer = Measured
    began = time.perf_counter()
    run = run_experiment(recipe, "trl", folder)
    data = {
        **figures(name, run, time.perf_counter() - began),
        "logprob_difference": Measured.largest,
        "logprob_difference_at_temperature_1": Measured.at_temperature_1,
        "stops": dict(Measured.stops),
    }
    print(write_result(name, recipe.seed, data))
    assert max(Measured.largest) < BOUND, Measured.largest
    require_learning(data)
    return data


def colocate(name: str, folder: Path, steps: int) -> None:
    """Train with vLLM in the trainer's process."""
    trained(name, folder, recipe_of(steps, "hardware.engine=vllm"))


def standin(name: str, folder: Path, steps: int) -> None:
    """Train the same with the engine that stands in for vLLM on a CPU."""
    trained(name, folder, recipe_of(steps))


def temperature(name: str, folder: Path, steps: int) -> None:
    """Train at a temperature at which raw and processed log-probabilities differ."""
    keys = ("hardware.engine=vllm", "sampling.temperature=0.7")
    data = trained(name, folder, recipe_of(min(steps, 3), *keys))
    assert min(data["logprob_difference_at_temperature_1"]) > 100 * BOUND, data


def gemma(name: str, folder: Path, steps: int) -> None:
    """Train the pretrained model with vLLM in the trainer's process."""
    train_gemma("trl", name, folder, steps, ())


def lora(name: str, folder: Path, steps: int) -> None:
    """Train adapters: the engine gets the merged weights."""
    keys = ("hardware.engine=vllm", "model.lora.rank=8", "model.lora.alpha=16")
    trained(name, folder, recipe_of(min(steps, 3), *keys))


def server(name: str, folder: Path, steps: int) -> None:
    """Train with ``vllm serve`` in a process of its own."""
    with server_recipe(folder, steps) as recipe:
        trained(name, folder, recipe)


@contextlib.contextmanager
def server_recipe(folder: Path, steps: int, *keys: str) -> Iterator[Recipe]:
    """Run a server; yield a recipe that generates by it."""
    from trl.generation import vllm_client

    gem_vllm_cpu.trainer_side(vllm_client)
    port, group_port = free_port(), free_port()
    keys = (
        "hardware.engine=vllm",
        "trainer.trl.vllm_mode=server",
        f"trainer.trl.vllm_server_base_url=http://127.0.0.1:{port}",
        f"trainer.trl.vllm_group_port={group_port}",
        *keys,
    )
    # An address in a recipe needs trust, here and in the processes that read the recipe again.
    with trust(True), serving(recipe := recipe_of(steps, *keys), port, folder.with_suffix(".log")):
        yield recipe


@contextlib.contextmanager
def serving(recipe: Recipe, port: int, log: Path) -> Iterator[None]:
    """Run a server with the options that the adapter asks for, and its README names."""
    limits = recipe.limits
    longest = (limits.max_context_tokens or 512) + limits.max_tokens_per_turn
    command = [str(Path(sys.executable).with_name("vllm")), "serve", model_path(recipe)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(longest)]
    command += ["--dtype", recipe.model.dtype, "--enforce-eager", *shlex.split(SERVER_OPTIONS)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_until_up(process, f"http://127.0.0.1:{port}/health", log)
            yield
        finally:
            process.terminate()
            process.wait(60)


def wait_until_up(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Return when the server answers."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(1)
    raise SystemExit("the server did not start:\n" + log.read_text(errors="replace")[-3000:])


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def checks(name: str, folder: Path, steps: int) -> None:
    """Ask the engine through the adapter for what a run seldom meets."""
    recipe = recipe_of(1, "hardware.engine=vllm", "batch.episodes=8")
    source = model_path(recipe)
    tokenizer = AutoTokenizer.from_pretrained(source)
    trainer = Measured.from_recipe(recipe, source, tokenizer, folder)
    data = {**caps(trainer), **stop_tokens(trainer), **stale_cache(trainer)}
    data["dtype"] = str(trainer.vllm_generation.llm.llm_engine.model_config.dtype)
    print(write_result(name, recipe.seed, data))
    assert data["dtype"] == f"torch.{recipe.model.dtype}"


def requests_of(trainer: Any, cap: int, count: int = 8) -> list[Request]:
    """Return first turns."""
    machines = [trainer.machines.train(index) for index in range(count)]
    return [Request(machine.start(), cap, machine) for machine in machines]


def caps(trainer: Any) -> dict[str, Any]:
    """Ask for turns with caps of their own."""
    requests = [
        replace(request, max_tokens=1 + number % 3)
        for number, request in enumerate(requests_of(trainer, 1))
    ]
    lengths = [len(c.token_ids) for c in trainer.engine_policy.complete_batch(requests)]
    assert all(n <= r.max_tokens for n, r in zip(lengths, requests, strict=True)), lengths
    return {"caps": [r.max_tokens for r in requests], "lengths": lengths}


def stop_tokens(trainer: Any) -> dict[str, Any]:
    """Have all tokens but the usual first one end a turn: whichever comes first must end it."""
    engine = trainer.vllm_generation
    policy = trainer.engine_policy
    before = engine.generation_kwargs, policy.stop_ids
    first = policy.complete_batch(requests_of(trainer, 1))[0].token_ids[0]
    several = [token for token in range(len(trainer.processing_class)) if token != first]
    try:
        engine.generation_kwargs = {**before[0], "stop_token_ids": several}
        policy.stop_ids = frozenset(several)
        answers = policy.complete_batch(requests_of(trainer, 8, 32))
    finally:
        engine.generation_kwargs, policy.stop_ids = before
    for answer in answers:
        assert all(token == first for token in answer.token_ids[:-1])
        assert answer.token_ids[-1] in several and answer.finish_reason == "stop"
    by = sorted({answer.token_ids[-1] for answer in answers})
    assert len(by) > 1, by
    return {"stopped_by": by}


def stale_cache(trainer: Any) -> dict[str, Any]:
    """Change the weights; a cache of the old ones would show in the log-probabilities."""
    trainer.vllm_generation.sync_weights()
    requests = [
        # Blocks of the cache are longer than the game's prompts.
        replace(request, prompt_ids=(request.prompt_ids * 40)[:400])
        for request in requests_of(trainer, 4)
    ]
    trainer.engine_policy.complete_batch(requests)  # fills the cache
    disturb(trainer)
    fresh = difference(trainer, requests, reset=True)
    disturb(trainer)
    stale = difference(trainer, requests, reset=False)
    assert fresh < BOUND < stale / 100, (fresh, stale)
    return {"logprob_difference_after_update": fresh, "without_cache_reset": stale}


def disturb(trainer: Any) -> None:
    """Change all weights."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)


def difference(trainer: Any, requests: list[Request], *, reset: bool) -> float:
    """Send the weights; return the largest difference of a sampled token's log-probability."""
    llm = trainer.vllm_generation.llm
    if reset:
        trainer.vllm_generation.sync_weights()
    else:
        original = llm.reset_prefix_cache
        llm.reset_prefix_cache = lambda: None
        try:
            trainer.vllm_generation.sync_weights()
        finally:
            llm.reset_prefix_cache = original
    trainer._last_loaded_step = trainer.state.global_step
    largest = 0.0
    for request, answer in zip(
        requests, trainer.engine_policy.complete_batch(requests), strict=True
    ):
        ids = torch.tensor([[*request.prompt_ids, *answer.token_ids]])
        with torch.no_grad():
            logits = trainer.model(ids).logits[0] / trainer.temperature
        start = len(request.prompt_ids)
        scores = logits.log_softmax(-1)[start - 1 : -1]
        own = scores.gather(-1, ids[0, start:, None])[:, 0]
        largest = max(largest, float((own - torch.tensor(answer.logprobs)).abs().max()))
    return largest


class Slow(Wrapper):
    """An environment whose answers take a heavy-tailed time: 1 ms, sometimes 300 ms."""

    def step(self, action: str) -> Any:
        answer = self.env.step(action)
        number = zlib.crc32(f"{action} {answer[0]}".encode())
        time.sleep(0.3 if number % 10 == 0 else 0.001)
        return answer


def stepping(name: str, folder: Path, steps: int) -> None:
    """Play environments that block, with a barrier between turns and without one."""
    both_ways(name, folder, recipe_of(1, "hardware.engine=vllm", "batch.episodes=64"))


def server_stepping(name: str, folder: Path, steps: int) -> None:
    """The same through a server: the turns of a batch in one request, and each in its own."""
    with server_recipe(folder, 1, "batch.episodes=64") as recipe:
        both_ways(name, folder, recipe)


def both_ways(name: str, folder: Path, recipe: Recipe) -> None:
    """Play 64 episodes in environments that block both ways; check and write the figures."""
    source = model_path(recipe)
    tokenizer = AutoTokenizer.from_pretrained(source)
    trainer = Measured.from_recipe(recipe, source, tokenizer, folder)
    trainer.play([train_task(recipe, index) for index in range(8)])  # warms the engine up
    data: dict[str, Any] = {"episodes": 64, "mode": trainer.vllm_mode, "rounds": []}
    for _ in range(ROUNDS):
        row = {way: slow_batch(trainer, recipe, way) for way in ("barrier", "stepping")}
        data["rounds"].append(row)
    for way in ("barrier", "stepping"):
        data[way] = {
            "seconds": statistics.median(row[way]["seconds"] for row in data["rounds"]),
            "logprob_difference": max(row[way]["logprob_difference"] for row in data["rounds"]),
        }
        assert data[way]["logprob_difference"] < BOUND, data
    print(write_result(name, recipe.seed, data))
    assert data["stepping"]["seconds"] < data["barrier"]["seconds"], data


def slow_batch(trainer: Any, recipe: Recipe, way: str) -> dict[str, float]:
    """Play 64 episodes in environments that block; return what it took and how exact it was."""
    machines = [trainer.machines(train_task(recipe, index)) for index in range(64)]
    for machine in machines:
        machine.env = Slow(machine.env)
    began = time.perf_counter()
    if way == "barrier":
        episodes = play_batch(machines, trainer.engine_policy)
    else:
        episodes = trainer.engine_policy.play(machines)
    seconds = time.perf_counter() - began
    assert not failed_fraction(episodes)
    return {
        "seconds": seconds,
        "turns": sum(len(episode.turns) for episode in episodes),
        "logprob_difference": max(map(functools.partial(apart, trainer), episodes)),
    }


def evaluation(name: str, folder: Path, steps: int) -> None:
    """Evaluate with vLLM in a process of its own, before and after a few steps of training."""
    trl_evaluation.evaluation(name, folder, recipe_of(min(steps, 3), "eval.engine=vllm"))


def apart(trainer: Any, episode: Any) -> float:
    """Return the largest difference of a sampled token's log-probability in an episode."""
    (segment,) = episode.segments
    ids = torch.tensor([segment.token_ids])
    with torch.no_grad():
        scores = (trainer.model(ids).logits[0] / trainer.temperature).log_softmax(-1)
    own = scores[:-1].gather(-1, ids[0, 1:, None])[:, 0]
    sampled = torch.tensor(segment.logprobs)[1:]
    return float((own - sampled)[torch.tensor(segment.loss_mask)[1:].bool()].abs().max())


CASES: dict[str, Callable[[str, Path, int], None]] = {
    "trl-colocate": colocate,
    "trl-server": server,
    "trl-standin": standin,
    "trl-temperature": temperature,
    "trl-lora": lora,
    "trl-gemma": gemma,
    "trl-gemma-bfloat16": gemma,
    "trl-checks": checks,
    "trl-stepping": stepping,
    "trl-server-stepping": server_stepping,
    "trl-evaluation": evaluation,
}


if __name__ == "__main__":
    os.environ[CPU_VARIABLE] = "1"
    case, folder_name, count = sys.argv[1:]
    CASES[case](case, Path(folder_name), int(count))
