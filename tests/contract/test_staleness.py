"""Old weights in a real run: each turn is sampled by those that the virtual clock gives it."""

from __future__ import annotations

from copy import deepcopy
from statistics import fmean

import pytest
import torch

from gem_adapters.versions import compute_version
from gem_core.training.tiny import model_path
from gem_parity.reference_metrics import ReferenceMetrics
from gem_parity.replays import load_replay

STEPS = 4
SETTINGS = (
    "sampling.staleness=2",
    "sampling.refresh_turns=2",
    "model.tiny.warm_start_steps=60",
    "batch.episodes=16",
    "algorithm.lr=2e-3",
    f"train.steps={STEPS}",
    "train.log_episodes=16",
    "eval.every=2",
    "eval.inside_episodes=4",
)


def logprobs(model, segment, start, end):
    """What a model gives to an action, one number per token."""
    ids = torch.tensor([segment.token_ids[:end]])
    with torch.no_grad():
        scores = model(input_ids=ids).logits[0, start - 1 : -1].float().log_softmax(-1)
    return scores.gather(-1, ids[0, start:, None])[:, 0].tolist()


def differences(model, episodes, version):
    """Mean differences to the engine of the turns with a version, under some weights."""
    return [
        fmean(abs(a - b) for a, b in zip(segment.logprobs[start:end], expected, strict=True))
        for episode in episodes
        for number, turn, start, end in episode.spans()
        if episode.turns[turn].version == version
        for segment in [episode.segments[number]]
        for expected in [logprobs(model, segment, start, end)]
    ]


@pytest.mark.slow("openrlhf", "rl2", "verl")
def test_a_reference_has_the_weights_of_each_version(train, trainer_name):
    status, output, run = train("stale", *SETTINGS)
    assert status == 0, output[-4000:]
    steps = {}
    for tags, episode in run.episodes():
        if tags["split"] == "train":
            steps.setdefault(tags["step"], []).append(episode)
    recipe = run.recipe
    reference = ReferenceMetrics(recipe, model_path(recipe), load_replay(trainer_name).TRAITS, {})
    models, seen = [], set()
    for step, row in enumerate(run.metrics(), start=1):
        models.append(deepcopy(reference.model).eval())
        batch = sorted(steps[step], key=lambda episode: episode.index)
        for episode in batch:
            clock = [compute_version(recipe, episode.index, turn.index) for turn in episode.turns]
            assert [turn.version for turn in episode.turns] == clock
        for version, model in enumerate(models):
            found = differences(model, batch, version)
            assert all(number < 1e-4 for number in found), f"step {step}, version {version}"
            if found and version < step - 1:
                assert fmean(differences(models[-1], batch, version)) > 1e-3
                seen.add((step, version))
        assert row["rollout/staleness_max"] == min(2, step - 1)
        assert (row["rollout/logprob_difference"] > 1e-3) is (step > 1)
        reference.metrics(batch)
    assert {(2, 0), (3, 0), (3, 1), (4, 1), (4, 2)} <= seen
    assert [row["step"] for row in run.evals()] == [2, 4]
