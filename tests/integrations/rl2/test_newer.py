"""The newer API's hook, on a fixture that reproduces its call contract.

The newer API is not in a release. ``Sample`` below has the attributes that RL2's source (commit
9161ede) gives a sample, and ``async_request`` its signature; nothing else of it is imitated.
"""

from __future__ import annotations

import asyncio
import json
import sys
import types
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module, util
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from gem_core.runs import RunDir
from gem_rl2 import _compat


@dataclass
class Sample:
    class Status(Enum):
        RUNNING = "running"
        ABORTED = "aborted"
        DONE = "done"

    sample: dict = field(default_factory=dict)
    state_text: str = ""
    action_text: str = ""
    state_dict: dict = field(default_factory=dict)
    state_dicts: list = field(default_factory=list)
    turn: int = 0
    metrics: dict = field(default_factory=lambda: defaultdict(list))
    status: Status = Status.RUNNING
    previous_action_text: str = ""
    previous_response_length: int = 0


@pytest.fixture
def hook(tiny, say, tmp_path, monkeypatch):
    """The environment file loaded as RL2 does, with an engine that always says the same."""
    asked = []

    async def async_request(url, endpoint, method="POST", max_trials=3, retry_delay=1, **kwargs):
        asked.append((url, endpoint, kwargs["json"]))
        return say("\\boxed{3}")

    module = types.ModuleType("RL2.utils.communication")
    module.async_request = async_request
    monkeypatch.setitem(sys.modules, "RL2.utils.communication", module)
    monkeypatch.delitem(sys.modules, "gem_rl2.generate", raising=False)
    recipe = tiny("batch.episodes=6", "batch.group_size=2", "eval.inside_episodes=2")
    run = RunDir.create(tmp_path / "run", recipe, "rl2")
    monkeypatch.setenv("GEM_RL2_RUN", str(run.path))
    spec = util.spec_from_file_location("custom_module", Path(_compat.__file__).with_name("env.py"))
    custom = util.module_from_spec(spec)
    spec.loader.exec_module(custom)
    return custom.generate, asked, import_module("gem_rl2.generate")


TRAIN = OmegaConf.create({"dynamic_filtering": False, "sampling_params": {"temperature": 1.0}})
TEST = OmegaConf.create({"sampling_params": {"temperature": 0.0}})


def play(generate, tokenizer, config, count):
    samples = [Sample(sample={"row": 0}) for _ in range(count)]

    async def all_of_them():
        await asyncio.gather(*(generate(config, tokenizer, "http://router", s) for s in samples))

    asyncio.run(all_of_them())
    return samples


def test_samples_are_filled(hook, tokenizer):
    generate, asked, _ = hook
    samples = play(generate, tokenizer, TRAIN, 6)
    for sample in samples:
        (state,) = sample.state_dicts
        assert set(state) == {"states", "actions", "action_mask", "logps", "rewards"}
        assert len({len(column) for column in state.values()}) == 1
        assert sample.status is Sample.Status.DONE
        assert sum(state["rewards"]) == pytest.approx(sample.metrics["rewards"][0])
        json.dumps({**vars(sample), "status": sample.status.value})  # RL2 writes it to disk
    assert sum(s.turn for s in samples) == len(asked)
    assert {url for url, _, _ in asked} == {"http://router"}


def test_groups_share_a_seed_and_steps_follow_each_other(hook, tokenizer):
    generate, _, module = hook
    seeds = [[s.sample["seed"] for s in play(generate, tokenizer, TRAIN, 6)] for _ in range(2)]
    assert seeds == [[0, 0, 1, 1, 2, 2], [3, 3, 4, 4, 5, 5]]
    module.PLAYERS[0].begin(7)
    assert play(generate, tokenizer, TRAIN, 1)[0].sample["seed"] == 21
    assert [e.index for e in module.PLAYERS[0].take()] == [*range(12), 42]


def test_held_out_episodes_are_not_trained_on(hook, tokenizer):
    generate, _, module = hook
    seeds = [s.sample["seed"] for s in play(generate, tokenizer, TEST, 4)]
    assert seeds == [-1, -2, -1, -2]
    assert module.PLAYERS[0].take() == []


def test_the_release_under_test_is_not_the_newer_api():
    assert _compat.NEWER is False
