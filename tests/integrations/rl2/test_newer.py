"""The newer API's hook, on a fixture that reproduces its call contract.

The newer API is not in a release. ``Sample`` below has the attributes that RL2's source (commit
9161ede) gives a sample; nothing else of it is imitated.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from importlib import util
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from gem_core.runs.directory.run_dir import RunDir
from gem_rl2 import _compat, rollout


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
def hook(tiny, answer_text, engine, tokenizer, tmp_path):
    """``hook(config, count)``: samples filled by the file that RL2 loads; one answer for all."""
    recipe = tiny(
        "batch.episodes=6", "batch.group_size=2", "eval.inside_episodes=2", "eval.every=3"
    )
    run = RunDir.create(tmp_path / "run", recipe, "rl2")
    rollout.PLAYERS[:] = [rollout.EpisodePlayer(run, tokenizer)]
    spec = util.spec_from_file_location(
        "custom_module", Path(rollout.__file__).parent / "newer" / "generate.py"
    )
    custom = util.module_from_spec(spec)
    spec.loader.exec_module(custom)

    with engine(lambda number, body: answer_text("\\boxed{3}")) as (url, bodies):

        def play(config, count):
            samples = [Sample(sample={"row": 0}) for _ in range(count)]

            async def all_of_them():
                await asyncio.gather(*(custom.generate(config, None, url, s) for s in samples))

            asyncio.run(all_of_them())
            return samples

        play.bodies = bodies
        play.player = rollout.PLAYERS[0]
        yield play
    rollout.PLAYERS.clear()


TRAIN = OmegaConf.create({"dynamic_filtering": False, "sampling_params": {"temperature": 1.0}})
TEST = OmegaConf.create({"sampling_params": {"temperature": 0.0}})


def test_samples_are_filled(hook):
    samples = hook(TRAIN, 6)
    for sample in samples:
        (state,) = sample.state_dicts
        assert set(state) == {"states", "actions", "action_mask", "logps", "rewards"}
        assert len({len(column) for column in state.values()}) == 1
        assert sample.status is Sample.Status.DONE
        assert sum(state["rewards"]) == pytest.approx(sample.metrics["rewards"][0])
        json.dumps({**vars(sample), "status": sample.status.value})  # RL2 writes it to disk
    assert sum(s.turn for s in samples) == len(hook.bodies)


def test_groups_share_a_seed_and_steps_follow_each_other(hook):
    seeds = [[s.sample["seed"] for s in hook(TRAIN, 6)] for _ in range(2)]
    assert seeds == [[0, 0, 1, 1, 2, 2], [3, 3, 4, 4, 5, 5]]
    assert [e.index for e in hook.player.take()] == [*range(12)]


def test_evaluation_episodes_are_evaluations_and_not_trained_on(hook):
    seeds = [[s.sample["seed"] for s in hook(TEST, 2)] for _ in range(2)]
    assert seeds == [[-1, -2], [-1, -2]]
    assert hook.player.take() == []
    rows = hook.player.run.evals()
    assert [(row["step"], row["when"], row["episodes"]) for row in rows] == [
        (3, "during", 2.0),
        (6, "during", 2.0),
    ]


def test_the_release_under_test_is_not_the_newer_api():
    assert _compat.NEWER is False
