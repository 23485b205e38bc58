"""Truncated importance sampling in the real package: the gradient of the first update."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from gem_core.errors import RecipeError
from gem_core.runs.recipe.load import recipe_from_dict
from gem_parity.frozen import frozen_episodes
from gem_parity.reference import compare, reference
from gem_parity.reference_batch import cut_off
from gem_parity.replay import expected_rows
from gem_parity.replays import load_replay

CAP = 0.006
"""The frozen episodes say that their tokens were likely, and the random model that they were not:
weights are between 0.003 and 0.02."""
SETTINGS = ("batch.episodes=16", "batch.group_size=2", "algorithm.epochs=1")
TIS = ("algorithm.rollout_correction=tis", f"algorithm.rollout_cap={CAP}")
DRAWN = ("sampling.top_p=0.8", "sampling.support=drawn")


def weighted(rows, episodes, model, cap=CAP):
    """Multiply the advantage of each token by its weight; return also the share that was cut."""
    cut = []
    segments = [s for episode in episodes for s in episode.segments if any(s.loss_mask)]
    for row, segment in zip(rows, segments, strict=True):
        assert row.token_ids == segment.token_ids
        ids = torch.tensor([row.token_ids])
        logits = model(input_ids=ids).logits[0, :-1].float()
        logits = torch.log_softmax(logits + cut_off([row.support], logits.shape)[0], dim=-1)
        logprobs = logits.gather(1, ids[0, 1:, None])[:, 0].detach().double().numpy()
        ratio = np.exp(logprobs - np.array(segment.logprobs[1:]))
        mask = np.array(row.loss_mask[1:], dtype=bool)
        cut += (ratio > cap)[mask].tolist()
        row.advantages[1:] *= np.where(mask, np.minimum(ratio, cap), 1.0)
    return rows, np.mean(cut)


def test_each_token_is_weighted_by_its_truncated_ratio(package, tiny, model_dir, episodes):
    adapter = load_replay(package.removeprefix("gem_"))
    model = AutoModelForCausalLM.from_pretrained(model_dir).float()
    recipe = tiny(*SETTINGS, *TIS)
    rows, cut = weighted(expected_rows(recipe, episodes()), episodes(), model)
    assert 0.1 < cut < 0.9
    expected = reference(recipe, rows, model)
    replayed = adapter.replay(recipe, episodes(), model_dir)
    cosine, norm = compare(replayed.gradients, expected.gradients)
    assert cosine > 0.9999 and norm == pytest.approx(1.0, rel=1e-3)

    plain = adapter.replay(tiny(*SETTINGS), episodes(), model_dir)
    assert compare(plain.gradients, expected.gradients)[1] > 10  # by default there is no weight


def test_the_weights_are_among_the_tokens_that_could_be_drawn(package, tiny, model_dir):
    """The sets hold about twenty tokens, so that weights are about ten times as large."""
    adapter = load_replay(package.removeprefix("gem_"))
    model = AutoModelForCausalLM.from_pretrained(model_dir).float()
    recipe = tiny(*SETTINGS, *DRAWN, TIS[0], "algorithm.rollout_cap=0.1")
    episodes = frozen_episodes(16, group_size=2, support=True)
    rows, cut = weighted(expected_rows(recipe, episodes), episodes, model, 0.1)
    assert 0.1 < cut < 0.9
    replayed = adapter.replay(recipe, episodes, model_dir)
    cosine, norm = compare(replayed.gradients, reference(recipe, rows, model).gradients)
    assert cosine > 0.9999 and norm == pytest.approx(1.0, rel=1e-3)


NATIVE = {
    "trl": ({"min_p": 0.1}, {"generation_kwargs": {"typical_p": 0.9}}),
    "rl2": ({"+rollout.train_sampling_params.min_p": 0.1},),
}
"""Native keys that change the probabilities, of trainers that have any."""


def with_native(recipe, trainer, table):
    """``recipe`` with ``table`` as ``[trainer.<trainer>]``."""
    return recipe_from_dict(recipe.to_dict() | {"trainer": {trainer: table}})


@pytest.mark.parametrize("key", ["sampling.top_p=0.9", "sampling.top_k=5"])
def test_a_correction_is_refused_where_the_engine_samples_from_a_part(config, tiny, key):
    name = key.partition("=")[0]
    with pytest.raises(RecipeError, match=rf"^{re.escape(name)}.*rollout_correction"):
        config.translate(tiny(key, *TIS))
    config.translate(tiny(key))
    config.translate(tiny(key, "sampling.support=drawn", *TIS))
    config.translate(tiny(*TIS, "sampling.top_p=1", "sampling.top_k=-1"))


def test_native_keys_that_change_the_probabilities_are_refused_with_it(config, tiny, trainer_name):
    for table in NATIVE.get(trainer_name, ()):
        config.translate(with_native(tiny(), trainer_name, table))
        with pytest.raises(RecipeError, match=r"^trainer\..*rollout_correction"):
            config.translate(with_native(tiny(*TIS), trainer_name, table))
