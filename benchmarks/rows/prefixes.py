"""How many tokens the CPU engine computes for each history, and how many it has already.

    .venvs/trl/bin/python benchmarks/rows/prefixes.py

The first batch of `run.BASELINE` is played once with each of `HISTORIES`, by the engine that the
five trainers have on a CPU. The counts are exact; another machine may draw other tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import asdict
from page import PREFIXES, write_page
from run import BASELINE, PROFILE, RESULTS, TRAINERS, WARM_UP
from transformers import AutoModelForCausalLM, AutoTokenizer

from gem_core.episodes.data import Completion
from gem_core.episodes.rollout import Request, play_batch
from gem_core.policies.engine.policy import HFPolicy
from gem_core.runs import provenance
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.tasks import MachineFactory, step_tasks
from gem_core.training.tiny import model_path

COMPACT = 'context.compact={budget=200, max_tokens=10, prompt="Sum up."}'
HISTORIES = {
    "append": (),
    "last": ("context.history=last",),
    "window": ("context.history=window", "context.window=3"),
    "concat": ("context.history=concat",),
    "compact": ("context.history=compact", COMPACT),
}
"""History -> its overrides."""


def main() -> int:
    """Count, keep the counts and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=32, help="(default: %(default)s)")
    parser.add_argument("--record", type=Path, default=RESULTS, help="folder of the results")
    provenance.add_option(parser)
    arguments = parser.parse_args()
    provenance.check_option(parser, arguments)
    counts = {name: count(own, arguments.episodes) for name, own in HISTORIES.items()}
    found = {
        "commit": provenance.commit(),
        "baseline": BASELINE,
        "profile": PROFILE,
        "compact": COMPACT,
        "episodes": arguments.episodes,
        "histories": counts,
    }
    target = arguments.record / PREFIXES
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write_page(arguments.record, TRAINERS, WARM_UP)
    return 0


class CountingPolicy(HFPolicy):
    """The CPU engine's policy, with counts of what it is given and what it draws."""

    turns = 0
    prompt_tokens = 0
    sampled_tokens = 0

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """See `HFPolicy`."""
        completions = super().complete_batch(requests)
        self.turns += len(requests)
        self.prompt_tokens += sum(len(request.prompt_ids) for request in requests)
        self.sampled_tokens += sum(len(completion.token_ids) for completion in completions)
        return completions


def count(overrides: tuple[str, ...], episodes: int) -> dict[str, int]:
    """Play one batch; return what the engine was given, what it drew and what it computed.

    Raises:
        AssertionError: it drew no token, or computed more than it was given.
    """
    recipe = load_recipe(BASELINE, PROFILE, (f"batch.episodes={episodes}", *overrides))
    folder = model_path(recipe)
    factory = MachineFactory(recipe, AutoTokenizer.from_pretrained(folder))
    model = AutoModelForCausalLM.from_pretrained(folder).float()
    policy = CountingPolicy(model, factory.stop_ids, **asdict(recipe.sampling))
    play_batch([factory(task) for task in step_tasks(recipe, 0)], policy)
    computed = policy.engine.computed
    given = policy.prompt_tokens + policy.sampled_tokens - policy.turns  # a turn's last is not read
    assert 0 < policy.sampled_tokens <= computed <= given
    return {
        "turns": policy.turns,
        "prompt_tokens": policy.prompt_tokens,
        "sampled_tokens": policy.sampled_tokens,
        "computed_tokens": computed,
        "reused_tokens": given - computed,
    }


if __name__ == "__main__":
    sys.exit(main())
