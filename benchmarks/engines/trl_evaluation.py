"""Evaluations before and after training by real vLLM, beside transformers; see `trl_cases.py`."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from common import Slow, figures, write_result

from gem_adapters.vllm_evaluation import stepping
from gem_adapters.vllm_steps import StepPolicy, Work
from gem_core.episodes.data import Completion, Episode
from gem_core.episodes.rollout import Request, failed_fraction, play_batch, play_many
from gem_core.evaluation.child import episodes_by
from gem_core.evaluation.local import evaluate, evaluation_episodes
from gem_core.policies.completions import vllm_completion
from gem_core.runs.recipe.load import override
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.tasks import MachineFactory
from gem_core.training import experiment
from gem_core.training.experiment import run_experiment
from gem_core.training.tiny import model_path

SLOW_EPISODES = 128
REPEATS = 3
WAYS = ("barrier", "stepping")


class Barrier:
    """A batch policy over the same engine: a call ends when its last turn has ended."""

    def __init__(self, policy: StepPolicy) -> None:
        self.policy = policy
        self.work = Work()
        self._numbers = itertools.count()

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """See `gem_core.episodes.rollout.BatchPolicy`."""
        engine = self.policy.engine
        waiting: dict[str, Request] = {}
        for request in requests:
            name = f"barrier-{next(self._numbers)}"
            prompt = {"prompt_token_ids": request.prompt_ids}
            engine.add_request(name, prompt, self.policy._sampling(request))
            waiting[name] = request
        answers = {}
        while len(answers) < len(waiting):
            began = time.perf_counter()
            outputs = engine.step()
            self.work.seconds += time.perf_counter() - began
            self.work.steps += 1
            self.work.rows += len(waiting) - len(answers)
            answers.update({o.request_id: o.outputs[0] for o in outputs if o.finished})
        stops = self.policy.stop_ids
        return [
            vllm_completion(answers[name], stops, request.max_tokens, reports_logprobs=False)
            for name, request in waiting.items()
        ]


def descendants(pid: int) -> list[int]:
    """Return the processes below one."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = [int(word) for word in (task / "children").read_text().split()]
        except FileNotFoundError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def resident_mb(pid: int) -> float:
    """Return the memory of a process (VmRSS, MB); 0 if there is none."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return 0.0
    sizes = [int(line.split()[1]) for line in lines if line.startswith("VmRSS:")]
    return sizes[0] / 1024 if sizes else 0.0


class Watch:
    """Looks at the processes below this one while evaluations run, and when training begins."""

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self.at_training: dict[str, float] = {}
        self._stop = False

    def look(self) -> None:
        """Sample until `stop`; for a thread of its own."""
        while not self._stop:
            sizes = [resident_mb(pid) for pid in descendants(os.getpid())]
            self.peak_mb = max(self.peak_mb, sum(sizes))
            time.sleep(0.1)

    def stop(self) -> None:
        """End `look`."""
        self._stop = True

    def training(self, launch: Callable[..., Any]) -> Callable[..., Any]:
        """Return a launcher that first writes down what is left of the evaluation."""

        def launched(*arguments: Any, **named: Any) -> Any:
            below = descendants(os.getpid())
            self.at_training = {
                "processes": len(below),
                "processes_mb": sum(map(resident_mb, below)),
                "own_mb": resident_mb(os.getpid()),
                "evaluation_peak_mb": self.peak_mb,
            }
            return launch(*arguments, **named)

        return launched


def evaluated(name: str, folder: Path, recipe: Recipe) -> tuple[dict[str, Any], Path]:
    """Train with evaluations by vLLM; return the figures, and the trained model."""
    watch = Watch()
    thread = threading.Thread(target=watch.look, daemon=True)
    thread.start()
    original, began = experiment.launch, time.perf_counter()
    experiment.launch = watch.training(original)
    try:
        run = run_experiment(recipe, "trl", folder)
    finally:
        experiment.launch = original
        watch.stop()
        thread.join()
    data = figures(name, run, time.perf_counter() - began)
    data["eval_engines"] = run.result["eval_engines"]
    data["at_training"] = watch.at_training
    return data, run.model


def beside_transformers(recipe: Recipe, model: str | Path, log: Path) -> dict[str, Any]:
    """Play greedily by both engines, and sample by transformers.

    Returns:
        How many greedy episodes are the same, action by action; of the others the first turn that
        differs; success when transformers samples.
    """
    greedy = override(recipe, ["eval.temperature=0"])
    ours = episodes_by("vllm", greedy, model, log).episodes
    theirs = evaluation_episodes(greedy, model)
    differ = [parting(a, b) for a, b in zip(ours, theirs, strict=True) if actions(a) != actions(b)]
    return {
        "greedy_episodes": len(ours),
        "greedy_same": len(ours) - len(differ),
        "greedy_differ": differ,
        "greedy_success": [sum(e.success for e in part) / len(part) for part in (ours, theirs)],
        "sampled_by_transformers": evaluate(recipe, model),
    }


def actions(episode: Episode) -> list[str]:
    """Return the texts of an episode's actions."""
    return [turn.action for turn in episode.turns]


def parting(ours: Episode, theirs: Episode) -> dict[str, Any]:
    """Return where two episodes of a task part."""
    pairs = list(zip(actions(ours), actions(theirs), strict=False))
    turn = next((k for k, (a, b) in enumerate(pairs) if a != b), len(pairs))
    return {"index": ours.index, "turn": turn, "actions": pairs[turn : turn + 1]}


def slow(recipe: Recipe, model: str | Path) -> dict[str, Any]:
    """Play environments that sleep by one engine, in turn with a barrier and without."""
    data: dict[str, Any] = {"episodes": SLOW_EPISODES, **{way: [] for way in WAYS}}
    with stepping(recipe, model) as (factory, policy):
        warm = [factory.evaluation(index) for index in range(8)]
        asyncio.run(play_many(warm, policy))
        for _ in range(REPEATS):
            data["barrier"].append(with_barrier(factory, Barrier(policy)))
            data["stepping"].append(without_barrier(factory, policy))
    return data


def with_barrier(factory: MachineFactory, policy: Barrier) -> dict[str, float]:
    """Play environments that sleep turn by turn."""
    machines = slow_machines(factory)
    return timed(policy.work, lambda: play_batch(machines, policy))


def without_barrier(factory: MachineFactory, policy: StepPolicy) -> dict[str, float]:
    """Play environments that sleep, none of which waits for another."""
    machines = slow_machines(factory)
    policy.work = Work()
    return timed(policy.work, lambda: asyncio.run(play_many(machines, policy)))


def timed(work: Work, play: Callable[[], list[Episode]]) -> dict[str, float]:
    """Play, and return how long it took and how much of that the engine worked."""
    began = time.perf_counter()
    episodes = play()
    seconds = time.perf_counter() - began
    assert not failed_fraction(episodes)
    return {
        "seconds": seconds,
        "engine_idle_s": seconds - work.seconds,
        "engine_busy": work.seconds / seconds,
        "steps": work.steps,
        "rows_per_step": work.rows / work.steps,
        "turns": sum(len(episode.turns) for episode in episodes),
        "success": sum(episode.success for episode in episodes) / len(episodes),
    }


def slow_machines(factory: MachineFactory) -> list[Any]:
    """Return machines whose environments sleep."""
    machines = [factory.evaluation(index) for index in range(SLOW_EPISODES)]
    for machine in machines:
        machine.env = Slow(machine.env)
    return machines


def evaluation(name: str, folder: Path, recipe: Recipe) -> None:
    """Measure all of it, write the figures and check them.

    Raises:
        AssertionError: the evaluations were not vLLM's, it was not gone when training began, the
            two engines do not play alike, or without a barrier the engine waits more than half as
            long as with one.
    """
    data, trained = evaluated(name, folder, recipe)
    log = folder.with_suffix(".log")
    for when, model in (("before", model_path(recipe)), ("after", trained)):
        data[f"{when}_beside"] = beside_transformers(recipe, model, log)
    data["slow"] = slow(recipe, model_path(recipe))
    print(write_result(name, recipe.seed, data))
    assert all(by.startswith("vllm ") for by in data["eval_engines"].values()), data["eval_engines"]
    assert data["at_training"]["processes"] == 0, data["at_training"]
    for when in ("before", "after"):
        beside = data[f"{when}_beside"]
        assert beside["greedy_same"] >= 0.99 * beside["greedy_episodes"], beside["greedy_differ"]
        require_overlap(data[when], beside["sampled_by_transformers"])
    idle = {way: median(row["engine_idle_s"] for row in data["slow"][way]) for way in WAYS}
    assert idle["stepping"] < idle["barrier"] / 2, data["slow"]


def require_overlap(one: dict[str, float], other: dict[str, float]) -> None:
    """Check that the 95 % intervals of two success rates overlap."""
    low = max(one["success/low"], other["success/low"])
    assert low <= min(one["success/high"], other["success/high"]), (one, other)
