"""``sampling.support = "drawn"``: log-probabilities over the tokens that could be drawn.

The frozen episodes have random sets of about a tenth of the tokens. The reference restricts
its logits to them by code of its own (`gem_parity.reference_batch.cut_off`).
"""

from __future__ import annotations

import re
from array import array

import pytest
from msgspec.structs import replace
from transformers import AutoModelForCausalLM

from gem_core.errors import GemError, RecipeError
from gem_core.runs.recipe.load import recipe_from_dict
from gem_parity.bounds import WEIGHTS
from gem_parity.cases import RUNS
from gem_parity.frozen import frozen_episodes
from gem_parity.measure import measure
from gem_parity.reference import compare, reference
from gem_parity.replay import expected_rows
from gem_parity.replays import load_replay
from gem_parity.teacher_forced import teacher_forced

DRAWN = ("sampling.top_p=0.8", "sampling.top_k=20", "sampling.support=drawn")
SETTINGS = ("batch.episodes=16", "batch.group_size=2", "algorithm.epochs=1")
STEPS = 2


def batch(several=False):
    history = "window" if several else "append"
    return frozen_episodes(16, group_size=2, support=True, history=history)


def test_an_engine_that_reports_no_sets_is_refused(config, tiny):
    config.translate(tiny(*DRAWN[:2], "sampling.support=all"))
    config.translate(tiny(*DRAWN))
    with pytest.raises(RecipeError, match=r"sampling\.support = 'drawn' .*device = \"cpu\""):
        # With a top-k vLLM reports the sets, in TRL.
        on_gpu = ("hardware.device=gpu", "hardware.engine=default", "sampling.top_k=-1")
        config.translate(tiny(*DRAWN, *on_gpu))


NATIVE = {
    "rl2": {"+rollout.train_sampling_params.min_p": 0.5},
    "trl": {"min_p": 0.5, "repetition_penalty": 0.5, "cache_implementation": "static"},
}
"""Native keys that change the set without telling the engine, of trainers that have any."""


def test_native_keys_that_change_the_set_are_refused_with_it(config, tiny, trainer_name):
    for key, value in NATIVE.get(trainer_name, {}).items():
        table = {"trainer": {trainer_name: {key: value}}}
        config.translate(recipe_from_dict(tiny(*DRAWN[:2]).to_dict() | table))
        name = re.escape(key.removeprefix("+"))
        pattern = rf"^trainer\.{trainer_name}\.{name}: .*Leave it out"
        with pytest.raises(RecipeError, match=pattern):
            config.translate(recipe_from_dict(tiny(*DRAWN).to_dict() | table))


@pytest.mark.parametrize("several", [False, True])
def test_the_first_gradient_is_that_over_the_set(tiny, model_dir, package, several):
    adapter = load_replay(package.removeprefix("gem_"))
    history = ("context.history=window", "context.window=1") if several else ()
    recipe = tiny(*SETTINGS, *DRAWN, *history)
    model = AutoModelForCausalLM.from_pretrained(model_dir).float()
    expected = reference(recipe, expected_rows(recipe, batch(several)), model)
    found = measure(adapter.replay(recipe, batch(several), model_dir), expected)
    assert not found.faults and found.cosine > 0.999999 and abs(found.norm) < 1e-4

    over_all = replace(recipe, sampling=replace(recipe.sampling, support="all"))
    plain = adapter.replay(over_all, batch(several), model_dir)
    assert compare(plain.gradients, expected.gradients)[0] < 0.99  # another policy's gradient


@pytest.mark.parametrize("name", ["rebn", "ppo", "micro-batch 1"])
def test_weights_after_every_step(config, refused, model_dir, package, name):
    """With clip, KL term, entropy bonus, three epochs of two minibatches."""
    adapter = load_replay(package.removeprefix("gem_"))
    recipe = RUNS[name].recipe(list(refused), STEPS, DRAWN)
    config.translate(recipe)
    result = teacher_forced(recipe, model_dir, adapter.replay_run, adapter.TRAITS)
    assert not result.faults, "; ".join(result.faults)
    assert result.moved > 10 * WEIGHTS


def missing(segment):
    segment.support = None


def without_the_token(segment):
    _, place, _ = segment.spans[0]
    segment.support[place] = array("i", [segment.token_ids[place] + 1])


@pytest.mark.parametrize(
    ("damage", "message"),
    [(missing, "did not report which tokens"), (without_the_token, "is not among those")],
)
def test_an_episode_without_its_sets_is_named(tiny, model_dir, package, damage, message):
    adapter = load_replay(package.removeprefix("gem_"))
    episodes = batch()
    episode = next(e for e in episodes[1:] if any(e.segments[0].loss_mask))
    damage(episode.segments[0])
    with pytest.raises(GemError, match=rf"^{episode.env_id}, seed {episode.seed}, .*{message}"):
        adapter.replay(tiny(*SETTINGS, *DRAWN), episodes, model_dir)
