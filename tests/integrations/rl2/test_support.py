"""Truncated sampling in RL2: its log-probabilities are the engine's, among the same tokens."""

from __future__ import annotations

import asyncio

import pytest
import torch
from RL2.datasets import pack_tensor_dicts

from gem_core.errors import GemError, RecipeError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.tasks import step_tasks
from gem_core.training.tiny import model_path
from gem_parity.cases import RUNS, STRONG
from gem_parity.frozen import frozen_episodes
from gem_parity.teacher_forced import teacher_forced
from gem_replays.rl2 import TRAITS, batch, replay, replay_run
from gem_replays.rl2 import _actor as make_actor
from gem_rl2 import support
from gem_rl2.config import REFUSED, translate
from gem_rl2.cpu.engine import Engine
from gem_rl2.rollout import EpisodePlayer
from gem_rl2.support import NUMBERS, Sets, to_tensors
from gem_rl2.worker import Actor

CUT = ("sampling.top_p=0.8", "sampling.top_k=20", "model.tiny.warm_start_steps=0")
DRAWN = (*CUT, "sampling.support=drawn")
PASSES = {
    "one pass": (),
    "packed": ("batch.max_tokens_per_device=512", "limits.max_context_tokens=512"),
    "rows": ("context.history=last",),
    "warm": ("sampling.temperature=0.5",),
}


@pytest.fixture
def played(tokenizer, tmp_path, serve):
    """``played(recipe)``: the episodes of the first step, by the adapter and the engine."""

    def run(recipe):
        directory = RunDir.create(tmp_path / "run", recipe, "rl2", if_exists="overwrite")
        player = EpisodePlayer(directory, tokenizer)
        names = ("temperature", "top_p", "top_k")
        sampling = {name: getattr(recipe.sampling, name) for name in names}

        async def all_of_them(url):
            calls = [player.play(task, url, sampling) for task in step_tasks(recipe, 0)]
            return await asyncio.gather(*calls)

        with serve(Engine(model_path(recipe))) as url:
            asyncio.run(all_of_them(url))
        return player.take()

    return run


@pytest.fixture
def largest(tiny, played, process_group):
    """``largest(*overrides)``: the largest difference to the engine's log-probabilities."""

    def score(*overrides):
        recipe = tiny("batch.episodes=8", "batch.group_size=1", *overrides)
        actor, _ = make_actor(recipe, model_path(recipe))
        if recipe.sampling.support == "drawn":
            actor.sets = Sets()
        rows = [row for e in played(recipe) for row in to_tensors(e, [], actor.sets)]
        tensors = actor.compute_logps(pack_tensor_dicts(rows), 1)
        off = (tensors["old_logps"] - tensors["llm_logps"])[tensors["action_mask"].bool()]
        assert len(off) > 20
        return float(off.abs().max())

    return score


@pytest.mark.parametrize("case", PASSES)
def test_they_are_the_engines(largest, case):
    over_drawn = largest(*DRAWN, *PASSES[case])
    over_all = largest(*CUT, *PASSES[case])
    print(f"over the drawn tokens {over_drawn:.2e}, over all {over_all:.2e}")
    assert over_drawn < 1e-5
    assert over_all > 0.1


def test_a_number_stands_for_a_set():
    """The engine's sets, also where it cut nothing off, and none where nothing was sampled."""
    sets = Sets()
    cut = [None, [4, 5], None, [7]]
    assert sets.add(cut, [0, 1, 1, 0]) == [0, 1, 2, 0]
    assert sets.add(cut, [0, 0, 0, 1]) == [0, 0, 0, 3]
    assert sets.find(torch.tensor([0, 3, 1, 2])) == [None, [7], [4, 5], None]
    sets.clear()
    assert sets.add(cut, [0, 1, 0, 0]) == [0, 1, 0, 0]


def test_an_evaluation_has_no_numbers():
    (episode, *_) = frozen_episodes(2, support=True)
    assert all(NUMBERS not in row for row in to_tensors(episode, [], None))


def shift(monkeypatch):
    """Each token gets the set of the one before it."""
    plain = support.restricted
    monkeypatch.setattr(
        support,
        "restricted",
        lambda model, sets, *rows: plain(model, [[None, *sets[0][:-1]]], *rows),
    )


def lose(monkeypatch):
    """A token comes without its set."""
    plain = Sets.add

    def add(self, sets, loss_mask):
        numbers = plain(self, sets, loss_mask)
        return [0 if number == 3 else number for number in numbers]

    monkeypatch.setattr(Sets, "add", add)


@pytest.mark.parametrize(
    ("fault", "message"),
    [(shift, "shifted against each other"), (lose, "1 trained tokens have no")],
)
def test_sets_that_are_not_the_rows_end_the_run(monkeypatch, tiny, model_dir, fault, message):
    fault(monkeypatch)
    with pytest.raises(GemError, match=message):
        replay(tiny(*DRAWN, "batch.episodes=16"), frozen_episodes(16, support=True), model_dir)


def over_all(condition):
    """Return a fault: passes of ``condition(actor, return_entropy)`` are over all tokens."""

    def fault(monkeypatch):
        plain = Actor.forward

        def forward(self, minibatch, return_entropy=False):
            sets = self.sets
            if condition(self, return_entropy):
                self.sets = None
            result = plain(self, minibatch, return_entropy)
            self.sets = sets
            return result

        monkeypatch.setattr(Actor, "forward", forward)

    return fault


def entropy_over_all(monkeypatch):
    """The log-probabilities of the update are among the drawn tokens, its entropy is not."""
    plain = Actor.forward

    def forward(self, minibatch, return_entropy=False):
        result = plain(self, minibatch, return_entropy)
        if not return_entropy:
            return result
        sets, self.sets = self.sets, None
        entropy = support.Actor.forward(self, minibatch, True)[1]
        self.sets = sets
        return result[0], entropy

    monkeypatch.setattr(Actor, "forward", forward)


ENTROPY = STRONG["large entropy bonus, mean of sequences"]
FAULTS = [
    (RUNS["rebn"], None),
    (RUNS["rebn"], over_all(lambda actor, updates: actor.train and not updates)),
    (RUNS["rebn"], over_all(lambda actor, updates: not actor.train)),
    (ENTROPY, None),
    (ENTROPY, entropy_over_all),
]


@pytest.mark.parametrize(
    ("case", "fault"), FAULTS, ids=["none", "old", "initial", "none, bonus", "entropy"]
)
def test_a_part_over_all_tokens_shows(monkeypatch, model_dir, case, fault):
    """The parity suite sees it after one step; without a fault it sees nothing."""
    recipe = case.recipe(list(REFUSED), 1, DRAWN)
    if fault is not None:
        fault(monkeypatch)
    result = teacher_forced(recipe, model_dir, replay_run, TRAITS)
    print(result.faults)
    assert bool(result.faults) == (fault is not None)


def test_the_newer_source_and_gpus_are_refused(tiny):
    with pytest.raises(RecipeError, match=r"sampling\.support = 'drawn'.*in 0\.0\.2 alone"):
        translate(tiny(*DRAWN, "algorithm.epochs=1", "train.save_minutes=0"), newer=True)
    with pytest.raises(RecipeError, match=r"sampling\.support = 'drawn'.*SGLang's answer"):
        translate(tiny(*DRAWN, "hardware.device=gpu"))


def test_numbers_stay_with_their_tokens_where_rows_are_packed():
    """RL2's tensors have a position for each token but the first."""
    episodes = frozen_episodes(4, support=True)
    sets = Sets()
    tensors, _ = batch(episodes, sets=sets)
    segments = [s for e in episodes for s in e.segments if any(s.loss_mask)]
    for row, segment in enumerate(segments):
        found = sets.find(tensors[NUMBERS][row, : len(segment.token_ids) - 1])
        wanted = zip(segment.support[1:], segment.loss_mask[1:], strict=True)
        assert found == [ids if trained else None for ids, trained in wanted]
