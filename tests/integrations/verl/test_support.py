"""Truncated sampling in verl: its log-probabilities are the engine's, among the same tokens."""

from __future__ import annotations

from array import array

import pytest
import torch

from gem_adapters.support import SUPPORT
from gem_core.errors import GemError, RecipeError
from gem_core.runs.recipe.load import recipe_from_dict
from gem_parity.cases import RUNS, STRONG
from gem_parity.frozen import frozen_episodes
from gem_parity.teacher_forced import teacher_forced
from gem_replays.verl import TRAITS, replay, replay_run
from gem_verl import support
from gem_verl.config import REFUSED, translate
from gem_verl.cpu.local import LocalActor
from gem_verl.support import decode, encode

CUT = ("sampling.top_p=0.8", "sampling.top_k=20")
DRAWN = (*CUT, "sampling.support=drawn")
PASSES = {
    "padded": ("batch.micro_batch=2",),
    "rows": ("context.history=last",),
    "warm": ("sampling.temperature=0.5",),
}


@pytest.fixture
def largest(tiny, play_task, sample_from, model_dir):
    """``largest(*overrides)``: the largest difference to the engine's log-probabilities."""

    def score(*overrides):
        recipe = tiny("batch.episodes=6", *overrides)
        asked = {
            "temperature": recipe.sampling.temperature,
            "top_p": recipe.sampling.top_p,
            "top_k": recipe.sampling.top_k,
        }
        answer = sample_from()
        samples = [
            sample
            for index in range(recipe.batch.episodes)
            for sample in play_task(
                recipe, lambda ids, params: answer(ids, {**params, **asked}), index
            )[0]
        ]
        batch = LocalActor(recipe, model_dir).prepare(samples)
        assert (SUPPORT in batch) == (recipe.sampling.support == "drawn")
        mask = batch["response_mask"].values().bool()
        off = batch["rollout_log_probs"].values() - batch["old_log_probs"].values()
        return float(off[mask].abs().max())

    return score


@pytest.mark.parametrize("case", PASSES)
def test_they_are_the_engines(largest, case):
    over_drawn = largest(*DRAWN, *PASSES[case])
    over_all = largest(*CUT, *PASSES[case])
    print(f"over the drawn tokens {over_drawn:.2e}, over all {over_all:.2e}")
    assert over_drawn < 1e-5
    assert over_all > 0.1


def test_sets_are_read_as_they_were_written():
    sets = [array("i", [3, 9]), None, array("i", []), array("i", [4]), None]
    assert encode(sets) == [2, 3, 9, -1, 0, 1, 4, -1]
    assert decode(encode(sets)) == sets


def test_packed_rows_are_restricted_as_padded_ones():
    """On a GPU verl packs the rows of a micro-batch; the same function restricts them."""
    lengths, vocabulary = [5, 4], 12
    rows = [torch.arange(2, 2 + length) for length in lengths]
    sets = [[array("i", [int(row[-2]), 7]), array("i", [int(row[-1]), 1])] for row in rows]
    columns = {
        "input_ids": rows,
        "responses": [row[-2:] for row in rows],
        "response_mask": [torch.ones(2, dtype=torch.int64)] * 2,
        SUPPORT: [torch.tensor(encode(s)) for s in sets],
    }
    jagged = {
        name: torch.nested.as_nested_tensor(column, layout=torch.jagged)
        for name, column in columns.items()
    }
    logits = torch.randn(2, 5, vocabulary)
    padded = support._restrict(logits, jagged)
    packed = torch.cat([logits[n, :length] for n, length in enumerate(lengths)])[None]
    expected = torch.cat([padded[n, :length] for n, length in enumerate(lengths)])[None]
    assert torch.equal(support._restrict(packed, jagged), expected)
    assert (padded > -1e8).sum(-1).tolist() == [[12, 12, 2, 2, 12], [12, 2, 2, 12, 12]]


def shift(monkeypatch):
    """Each token gets the set of the one before it."""
    plain = support.decode
    monkeypatch.setattr(support, "decode", lambda numbers: [None, *plain(numbers)[:-1]])


def lose_a_set(monkeypatch):
    """A row comes with one set too few."""
    plain = support.decode
    monkeypatch.setattr(support, "decode", lambda numbers: plain(numbers)[:-1])


def lose_the_field(monkeypatch):
    """verl does not hand the sets to its engine."""
    plain = LocalActor._row

    def row(self, sample):
        fields = plain(self, sample)
        del fields[SUPPORT]
        return fields

    monkeypatch.setattr(LocalActor, "_row", row)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (shift, "shifted against each other"),
        (lose_a_set, r"a response of \d+ tokens has \d+ sets"),
        (lose_the_field, "the rows have no sets"),
    ],
)
def test_sets_that_are_not_the_rows_end_the_run(monkeypatch, tiny, model_dir, fault, message):
    fault(monkeypatch)
    recipe = tiny(*DRAWN, "batch.episodes=16")
    with pytest.raises(GemError, match=message):
        replay(recipe, frozen_episodes(16, support=True), model_dir)


def over_all(monkeypatch, role):
    """The log-probabilities of a part of the loss are over all tokens."""
    from verl.workers.engine_workers import ActorRolloutRefWorker

    name = f"compute_{role}log_prob"
    plain = getattr(ActorRolloutRefWorker, name)

    def compute(self, data):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(support, "_restrict", lambda logits, rows: logits)
            return plain(self, data)

    monkeypatch.setattr(ActorRolloutRefWorker, name, compute)


def old_over_all(monkeypatch):
    """Those before the step's first update."""
    over_all(monkeypatch, "")


def initial_over_all(monkeypatch):
    """Those of the initial model."""
    over_all(monkeypatch, "ref_")


def entropy_over_all(monkeypatch):
    """The entropy is that of all logits, as they were before they were restricted."""
    from verl.utils import torch_functional

    kept = []
    restrict, entropy = support._restrict, torch_functional.entropy_from_logits

    def keep(logits, rows):
        kept.append(logits)
        return restrict(logits, rows)

    def of_all(logits):
        return entropy(kept[-1] / 1.0)

    monkeypatch.setattr(support, "_restrict", keep)
    monkeypatch.setattr(torch_functional, "entropy_from_logits", of_all)


ENTROPY = STRONG["large entropy bonus, mean of sequences"]


@pytest.mark.parametrize(
    ("case", "fault"),
    [
        (RUNS["rebn"], None),
        (RUNS["rebn"], old_over_all),
        (RUNS["rebn"], initial_over_all),
        (ENTROPY, None),
        (ENTROPY, entropy_over_all),
    ],
)
def test_a_part_over_all_tokens_shows(monkeypatch, model_dir, case, fault):
    """The parity suite sees it after one step; without a fault it sees nothing."""
    recipe = case.recipe(list(REFUSED), 1, DRAWN)
    if fault is not None:
        fault(monkeypatch)
    result = teacher_forced(recipe, model_dir, replay_run, TRAITS)
    print(result.faults)
    assert bool(result.faults) == (fault is not None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("actor_rollout_ref.model.use_fused_kernels", True),
        ("actor_rollout_ref.actor.use_prefix_grouper", True),
        ("actor_rollout_ref.actor.strategy", "megatron"),
    ],
)
def test_log_probabilities_that_are_made_elsewhere_are_refused(tiny, key, value):
    table = {"trainer": {"verl": {key: value}}}
    translate(recipe_from_dict(tiny(*CUT).to_dict() | table))
    with pytest.raises(RecipeError, match=rf"^trainer\.verl\.{key}: .*Leave it out"):
        translate(recipe_from_dict(tiny(*DRAWN).to_dict() | table))


def test_vllm_and_divided_rows_are_refused(tiny):
    for keys, message in (
        (("hardware.engine=vllm",), "answer does not say"),
        (("hardware.gpus_per_node=2", "hardware.sequence_parallel=2"), "a part of the packed"),
    ):
        with pytest.raises(RecipeError, match=rf"sampling\.support = 'drawn'.*{message}"):
            translate(tiny(*DRAWN, *keys))
