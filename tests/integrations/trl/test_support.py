"""Truncated sampling in TRL: its log-probabilities are the engine's, among the same tokens."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3MoeConfig

from gem_core.runs.recipe.load import load_recipe
from gem_parity.cases import RUNS
from gem_parity.frozen import frozen_episodes
from gem_parity.reference import compare
from gem_parity.small_model import write_model
from gem_parity.teacher_forced import teacher_forced
from gem_trl import scoring
from gem_trl.trainer import GemTrainer

CUT = ("sampling.top_p=0.8", "sampling.top_k=20", "train.steps=2")
DRAWN = (*CUT, "sampling.support=drawn")


class Kept(GemTrainer):
    """Keeps, per update, the largest difference to the engine's log-probabilities, and the step."""

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        self.differences = [*getattr(self, "differences", []), self.difference(inputs)]
        return loss

    def difference(self, inputs):
        """Compute it again: the loss's own scores are used up."""
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        self._row_places = inputs.get("gem_support_row")
        with torch.no_grad():
            scores = self._get_per_token_logps_and_entropies(
                self.model, ids, mask, inputs["completion_ids"].shape[1]
            )
        self._row_places = None
        trained = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        return float((scores[0] - inputs["sampling_per_token_logps"])[trained].abs().max())


@pytest.fixture
def trained(make_trainer):
    """``trained(*overrides)``: a trainer after its steps, each with a single update."""

    def run(*overrides):
        trainer = make_trainer("algorithm.minibatches=1", *overrides, cls=Kept)
        trainer.train()
        return trainer

    return run


def test_at_the_first_update_they_are_the_engines(trained):
    over_drawn = trained(*DRAWN).differences
    over_all = trained(*CUT).differences
    print(f"over the drawn tokens {max(over_drawn):.2e}, over all {max(over_all):.2e}")
    assert len(over_drawn) == len(over_all) >= 2
    assert max(over_drawn) < 1e-5
    assert min(over_all) > 0.1


def test_several_rows_and_small_passes(trained):
    rewriting = ("context.history=last", "batch.micro_batch=2")
    assert max(trained(*DRAWN, *rewriting).differences) < 1e-5


def test_a_correction_weighs_by_one(trained):
    """Equal weights, equal sets: truncated importance sampling has nothing to correct."""
    trainer = trained(*DRAWN, "algorithm.rollout_correction=tis", "batch.group_size=2")
    batch = trainer.step_batch
    plain = sum(abs(batch.token_rows(len(batch.rows), 500)).sum(axis=1)) * batch.row_scale
    assert batch.installed == pytest.approx(plain, rel=1e-5)


def off_by_one(monkeypatch):
    """Each token gets the set of the one before it in the sequence."""
    plain = scoring.keep_mask
    monkeypatch.setattr(
        scoring, "keep_mask", lambda sets, *size: plain([[None, *s[:-1]] for s in sets], *size)
    )


def dropped_for_a_row(monkeypatch):
    """The first row of each pass is over all tokens."""
    plain = scoring.keep_mask
    monkeypatch.setattr(scoring, "keep_mask", lambda sets, *size: plain([[], *sets[1:]], *size))


def over_all_in_the_ratio(monkeypatch):
    """Only the old log-probabilities and the initial model's are over the set."""
    read = property(lambda self: self._row_places is None)
    monkeypatch.setattr(scoring.Scoring, "over_drawn", read)


@pytest.mark.parametrize("fault", [None, off_by_one, dropped_for_a_row, over_all_in_the_ratio])
def test_a_fault_in_the_sets_shows(monkeypatch, tmp_path, fault):
    """The parity suite sees it after one step; without a fault it sees nothing."""
    from gem_replays.trl import TRAITS, replay_run

    recipe = RUNS["rebn"].recipe(("algorithm.kl_in",), 1, DRAWN[:2] + DRAWN[3:])
    model = write_model(tmp_path / "model")
    if fault is not None:
        fault(monkeypatch)
    result = teacher_forced(recipe, model, replay_run, TRAITS)
    print(result.faults)
    assert bool(result.faults) == (fault is not None)


def test_sets_that_cut_nothing_off_change_nothing(tmp_path):
    """Also in a model of experts, whose routers have a loss of their own."""
    from gem_replays.trl import replay

    config = Qwen3MoeConfig(
        vocab_size=258, hidden_size=32, intermediate_size=32, moe_intermediate_size=16,
        num_experts=4, num_experts_per_tok=2, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=16, output_router_logits=True, router_aux_loss_coef=0.5,
        eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    episodes = frozen_episodes(16, group_size=2, support=True)
    for segment in (s for e in episodes for s in e.segments):
        segment.support = [None] * len(segment.token_ids)
    keys = ("batch.episodes=16", "batch.group_size=2", "algorithm.epochs=1")
    found = {
        support: replay(
            load_recipe(
                "guess-the-number-easy", "tiny", [*keys, *CUT, f"sampling.support={support}"]
            ),
            episodes,
            str(tmp_path),
        )
        for support in ("all", "drawn")
    }
    assert any("gate.weight" in name for name in found["all"].gradients)
    assert found["drawn"].loss == pytest.approx(found["all"].loss, abs=1e-6)
    cosine, norm = compare(found["drawn"].gradients, found["all"].gradients)
    assert cosine > 0.999999 and norm == pytest.approx(1.0, abs=1e-5)
