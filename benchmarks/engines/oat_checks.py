"""Oat's actor with real vLLM, asked for what a run seldom meets: see `oat_cases.py`.

Oat's program runs with a learner that does not train: it changes its weights, pushes them in Oat's
way, and holds the engine's log-probabilities against its own.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from common import Slow

from gem_core.episodes.rollout import Request, play_batch
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.tasks import train_task
from gem_oat import launch
from gem_oat.cpu import processes
from gem_oat.nodes import stop_on_failure

FILE = "checks.json"
"""File of the run directory that gets what was measured."""
PROMPTS = 16
LENGTH = 400
"""Tokens of a prompt: several blocks of the prefix cache, which has whole blocks only."""
SLOW_EPISODES = 128
NOISE = 0.05
"""Standard deviation of a change of the weights."""
TEMPERATURE = 0.7
"""At which the engine samples; raw log-probabilities are those at 1."""

Sampled = list[tuple[list[int], list[float], str]]
"""Of each prompt: token ids, their log-probabilities, why the engine stopped."""


class AskedActor(processes.CpuActor):
    """The adapter's actor, which also completes prompts that it is given."""

    def complete(
        self, prompts: list[list[int]], caps: list[int], stop_ids: Sequence[int] | None = None
    ) -> Sampled:
        """Return one completion per prompt, by the policy that plays episodes.

        Args:
            prompts: token ids.
            caps: the most tokens of each.
            stop_ids: what ends a completion, if not the tokenizer's.
        """
        policy = self.policy if stop_ids is None else replace(self.policy, stop_ids=stop_ids)
        requests = [
            Request(prompt, cap, cast(Any, None), seed)
            for seed, (prompt, cap) in enumerate(zip(prompts, caps, strict=True))
        ]
        answers = policy.complete_batch(requests)
        return [(list(a.token_ids), list(a.logprobs), a.finish_reason.value) for a in answers]

    def waiting(self, count: int) -> dict[str, Any]:
        """Play environments that sleep, with a barrier between turns and without.

        Returns:
            Of each way: seconds, those of them outside of the engine's steps, turns, and how many
            episodes are those of the other way, action by action.
        """
        ways = {"barrier": lambda ms: play_batch(ms, self.policy), "stepping": self.policy.play}
        engine, steps = self.llm.llm_engine, []
        original = engine.step
        engine.step = lambda: timed(original, steps)
        figures, played = {}, {}
        for way, play in ways.items():
            machines = [self.factory(train_task(self.recipe, index)) for index in range(count)]
            for machine in machines:
                machine.env = Slow(machine.env)
            steps.clear()
            began = time.perf_counter()
            episodes = play(machines)
            seconds = time.perf_counter() - began
            played[way] = [[turn.action for turn in e.turns] for e in episodes]
            turns = sum(map(len, played[way]))
            idle = seconds - sum(steps)
            figures[way] = {"seconds": seconds, "engine_idle_s": idle, "turns": turns}
        engine.step = original
        pairs = zip(*played.values(), strict=True)
        return {"episodes": count, "same": sum(a == b for a, b in pairs), **figures}


def timed(step: Callable[[], Any], seconds: list[float]) -> Any:
    """Call ``step``, and add how long it took."""
    began = time.perf_counter()
    output = step()
    seconds.append(time.perf_counter() - began)
    return output


class CheckingLearner(processes.CpuLearner):
    """The adapter's learner, which checks the engine in place of training."""

    def run(self) -> None:
        """Measure, write the figures and stop the program."""
        stop_on_failure(self._measure)

    def _measure(self) -> None:
        import launchpad

        self._init(self.args, self.actors)
        self.steps = 0
        torch.manual_seed(self.recipe.seed)
        self.prompts = torch.randint(len(self.tokenizer), (PROMPTS, LENGTH)).tolist()
        figures = {
            "initial": self.difference(),
            "at_temperature_1": self.difference(1.0),
            "caps": self.capped(),
            "stops": self.stopped(),
            "waiting": self.actors[0].waiting(SLOW_EPISODES),
            "syncs": [self.changed() for _ in range(2)],
        }
        (self.run_dir.path / FILE).write_text(json.dumps(figures))
        launchpad.stop()

    def difference(self, temperature: float = TEMPERATURE) -> float:
        """Return the largest difference of a sampled token's log-probability.

        Args:
            temperature: of the learner's; the engine samples at `TEMPERATURE`.
        """
        answers = self.actors[0].complete(self.prompts, [8] * len(self.prompts))
        largest = 0.0
        for prompt, (ids, logprobs, _) in zip(self.prompts, answers, strict=True):
            tokens = torch.tensor([prompt + ids])
            with torch.no_grad():
                logits = self.model.model.module(tokens).logits[0] / temperature
            scores = logits.log_softmax(-1)[len(prompt) - 1 : -1]
            own = scores.gather(-1, tokens[0, len(prompt) :, None])[:, 0]
            largest = max(largest, float((own - torch.tensor(logprobs)).abs().max()))
        return largest

    def changed(self) -> dict[str, float]:
        """Change the weights and push them, first without Oat's reset of the prefix cache."""
        with torch.no_grad():
            for parameter in self.model.model.module.parameters():
                parameter.add_(torch.randn_like(parameter) * NOISE)
        not_pushed = self.difference()
        self.args.enable_prefix_caching = False  # Oat asks this when it pushes
        self.sync_params_to_actors()
        stale = self.difference()
        self.args.enable_prefix_caching = True
        self.sync_params_to_actors()
        fresh = self.difference()
        return {
            "seconds": self.weight_sync_elapse,
            "not_pushed": not_pushed,
            "stale_cache": stale,
            "fresh_cache": fresh,
        }

    def capped(self) -> list[list[int]]:
        """Return pairs of cap and length of completions with caps of their own."""
        caps = [1 + number % 3 for number in range(len(self.prompts))]
        answers = self.actors[0].complete(self.prompts, caps)
        return [[cap, len(ids)] for cap, (ids, _, _) in zip(caps, answers, strict=True)]

    def stopped(self) -> dict[str, Any]:
        """Complete without stop tokens, and again with the two most frequent ones as stop tokens.

        The seeds are the same, so each completion must be the first one up to either token.
        """
        caps = [32] * len(self.prompts)
        free = [ids for ids, _, _ in self.actors[0].complete(self.prompts, caps, [])]
        counts = Counter(token for ids in free for token in set(ids))
        both = [token for token, _ in counts.most_common(2)]
        answers = self.actors[0].complete(self.prompts, caps, both)
        return {"tokens": both, "free": free, "stopped": [ids for ids, _, _ in answers]}


def v1_differences() -> dict[str, float]:
    """Return how far the log-probabilities of vLLM's V1 sampler are from the two candidates.

    Returns:
        ``raw``: from those at temperature 1; ``processed``: from those that it draws with.
    """
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.sample.sampler import Sampler

    torch.manual_seed(0)
    rows = 16
    logits = torch.randn(rows, 50) * 3
    nothing = torch.zeros(0)
    metadata = SamplingMetadata(
        temperature=torch.full((rows,), TEMPERATURE),
        all_greedy=False,
        all_random=True,
        top_p=None,
        top_k=None,
        min_p=None,
        generators={},
        max_num_logprobs=0,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=nothing,
        presence_penalties=nothing,
        repetition_penalties=nothing,
        output_token_ids=[[] for _ in range(rows)],
        min_tokens={},
        logit_bias=[None] * rows,
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
    )
    output = Sampler()(logits.clone(), metadata)
    tokens = output.sampled_token_ids.long()
    reported = output.logprobs_tensors.logprobs[:, :1]
    raw = logits.log_softmax(-1).gather(-1, tokens)
    processed = (logits / TEMPERATURE).log_softmax(-1).gather(-1, tokens)
    return {
        "raw": float((reported - raw).abs().max()),
        "processed": float((reported - processed).abs().max()),
    }


def start(run: RunDir) -> None:
    """Run Oat's program with the learner that checks."""
    processes.CpuLearner = CheckingLearner  # type: ignore[misc]
    processes.CpuActor = AskedActor  # type: ignore[misc]
    launch.launch_program(launch.arguments(run.recipe, run))
