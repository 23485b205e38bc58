"""Truncated sampling in Oat: its log-probabilities are the engine's, among the same tokens."""

from __future__ import annotations

import math

import pytest
import torch

from gem_core.errors import GemError, RecipeError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import recipe_from_dict
from gem_oat import support
from gem_oat.config import REFUSED, translate
from gem_oat.cpu.in_process import InProcessLearner
from gem_oat.learner import GemLearner
from gem_oat.rollout import to_native
from gem_oat.rows import SegmentRow
from gem_parity.cases import RUNS
from gem_parity.frozen import frozen_episodes
from gem_parity.teacher_forced import teacher_forced
from gem_replays.oat import TRAITS, replay, replay_run

CUT = ("sampling.top_p=0.8", "sampling.top_k=20", "model.tiny.warm_start_steps=0")
DRAWN = (*CUT, "sampling.support=drawn")
ON_GPU = ("hardware.device=gpu", "hardware.engine=default")
PASSES = {
    "one pass": (),
    "several passes": ("batch.micro_batch=2",),
    "rows": ("context.history=last",),
    "warm": ("sampling.temperature=0.5",),
}


class Kept(InProcessLearner):
    """Keeps the largest difference to the engine's log-probabilities before the update."""

    difference = 0.0
    turns = 0

    def get_batch_logps(self, *args, **kwargs):
        first = len(self.updates.old)
        logps, entropy = super().get_batch_logps(*args, **kwargs)
        rows = self.segments[first : first + len(logps)]  # none in an update: all are there
        for row, scores in zip(rows, logps, strict=entropy is None):
            for turn in row.trained:
                apart = scores[turn.action] - torch.tensor(turn.logprobs)
                self.difference = max(self.difference, float(apart.abs().max()))
                self.turns += 1
        return logps, entropy


@pytest.fixture
def trained(learner, recipe):
    """``trained(*overrides)``: the learner after a step."""

    def train(*overrides):
        name = f"run{len(overrides)}"
        made = learner(recipe("train.steps=1", *overrides), name=name, learner=Kept)
        made.run()
        assert made.turns >= 8
        return made

    return train


@pytest.mark.parametrize("case", PASSES)
def test_they_are_the_engines(trained, case):
    over_drawn, over_all = (trained(*keys, *PASSES[case]) for keys in (DRAWN, CUT))
    print(f"over the drawn {over_drawn.difference:.2e}, over all {over_all.difference:.2e}")
    assert over_drawn.difference < 1e-5
    assert over_all.difference > 0.1


def test_the_entropy_is_that_of_the_drawn_tokens(trained, tmp_path):
    trained(*DRAWN)
    trained(*CUT)
    drawn, of_all = (RunDir(tmp_path / f"run{len(keys)}").metrics()[0] for keys in (DRAWN, CUT))
    assert drawn["entropy"] < math.log(20) < of_all["entropy"]


def test_a_turn_has_the_sets_of_its_tokens():
    for number, episode in enumerate(frozen_episodes(8, support=True)):
        rows = [data.row for data in to_native(episode, number, 0)]
        turns = [turn for row in rows for turn in row.turns]
        for turn, (segment, _, start, end) in zip(turns, episode.spans(), strict=True):
            assert turn.support == episode.segments[segment].support[start:end]


def shift(monkeypatch):
    """Each token gets the set of the one before it."""
    plain = support.restricted
    monkeypatch.setattr(
        support,
        "restricted",
        lambda model, sets, *rows: plain(model, [[None, *row[:-1]] for row in sets], *rows),
    )


def lose(monkeypatch):
    """A turn comes without the set of its last token."""
    plain = SegmentRow.trained.fget

    def trained(self):
        return [turn._replace(support=turn.support[:-1]) for turn in plain(self)]

    monkeypatch.setattr(SegmentRow, "trained", property(trained))


@pytest.mark.parametrize(
    ("fault", "message"),
    [(shift, "shifted against each other"), (lose, "was lost on the way to the update")],
)
def test_sets_that_are_not_the_rows_end_the_run(monkeypatch, recipe, model_dir, fault, message):
    fault(monkeypatch)
    keys = (*DRAWN, "batch.episodes=16")
    with pytest.raises(GemError, match=message):
        replay(recipe(*keys), frozen_episodes(16, support=True), model_dir)


def over_all(condition):
    """Return a fault: passes of ``condition(learner, model, updates)`` are over all tokens."""

    def fault(monkeypatch):
        plain = GemLearner.get_batch_logps

        def get_batch_logps(self, *args, **kwargs):
            updates = bool(kwargs.get("compute_entropy"))
            with monkeypatch.context() as patch:
                if condition(self, kwargs["model"], updates):
                    patch.setattr(GemLearner, "_over_drawn", False)
                return plain(self, *args, **kwargs)

        monkeypatch.setattr(GemLearner, "get_batch_logps", get_batch_logps)

    return fault


FAULTS = {
    "none": None,
    "old": over_all(lambda learner, model, updates: model is learner.model and not updates),
    "initial": over_all(lambda learner, model, updates: model is not learner.model),
    "update": over_all(lambda learner, model, updates: updates),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_part_over_all_tokens_shows(monkeypatch, model_dir, name):
    """The parity suite sees it after one step; without a fault it sees nothing."""
    if FAULTS[name] is not None:
        FAULTS[name](monkeypatch)
    recipe = RUNS["rebn"].recipe(list(REFUSED), 1, DRAWN)
    result = teacher_forced(recipe, model_dir, replay_run, TRAITS)
    print(result.faults)
    assert bool(result.faults) == (name != "none")


def test_the_fused_head_and_gpus_are_refused(recipe):
    assert "--use_fused_lm_head" in translate(recipe(*CUT, "batch.micro_batch=1"))
    assert "--no-use_fused_lm_head" in translate(recipe(*DRAWN, "batch.micro_batch=1"))
    table = {"trainer": {"oat": {"use_fused_lm_head": True}}}
    fused = recipe(*DRAWN, "batch.micro_batch=1").to_dict() | table
    for refused, message in (
        (recipe_from_dict(fused), "makes no logits"),
        (recipe(*DRAWN, *ON_GPU), "vLLM 0.8's answer"),
    ):
        with pytest.raises(RecipeError, match=rf"sampling\.support.* = 'drawn'.*{message}"):
            translate(refused)
