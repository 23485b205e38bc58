"""The example is short and repeatable, and its update equals the reference's."""

from __future__ import annotations

import csv
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from gem_core.runs.recipe.load import load_recipe
from gem_parity.frozen import frozen_episodes
from gem_parity.reference import compare, reference
from gem_parity.replay import expected_rows

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "minimal_loop.py"
QUICK = ["model.tiny.warm_start_steps=80", "model.tiny.warm_start_batch=16"]
SMALL = ["batch.episodes=24", "train.steps=3"]


@pytest.fixture(scope="module")
def loop():
    spec = importlib.util.spec_from_file_location("minimal_loop", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", autouse=True)
def quick_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEM_CORE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def restore_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def recipe(*overrides):
    return load_recipe("guess-the-number-easy", "tiny", [*QUICK, *SMALL, *overrides])


@pytest.fixture(scope="module")
def played(loop):
    """A model and a batch of episodes that it sampled."""
    folder = loop.model_path(recipe())
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    factory = loop.gem_core.MachineFactory(recipe(), tokenizer)
    policy = loop.HFPolicy(model, factory.stop_ids, seed=0)
    tasks = loop.gem_core.step_tasks(recipe(), 0)
    return model, loop.gem_core.play_batch([factory(task) for task in tasks], policy)


def gradient(loop, model, episodes, *, on_policy):
    """Loss and gradients of the example's first update on ``episodes``."""
    model.zero_grad(set_to_none=True)
    ids, acted, old, advantages = loop.to_tensors(episodes, recipe())
    new = loop.action_logprobs(model, ids, acted)
    loss = loop.ppo_loss(new, old if on_policy else new.detach(), advantages, recipe())
    loss.backward()
    named = model.named_parameters()
    return loss.item(), {name: p.grad.double().numpy().copy() for name, p in named}


def assert_reference(update, model, episodes):
    loss, gradients = update
    expected = reference(recipe(), expected_rows(recipe(), episodes), model)
    cosine, ratio = compare(gradients, expected.gradients)
    assert loss == pytest.approx(expected.loss, rel=1e-4, abs=1e-5)
    assert cosine > 0.999999
    assert ratio == pytest.approx(1.0, abs=1e-4)


def test_it_fits_on_two_screens():
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) <= 120


def test_the_update_on_sampled_episodes_is_the_reference(loop, played):
    """The log-probabilities are the sampler's: the ratio must be 1 without a second forward."""
    model, episodes = played
    assert 0 < sum(episode.success for episode in episodes) < len(episodes)
    assert_reference(gradient(loop, model, episodes, on_policy=True), model, episodes)


def test_the_update_on_awkward_episodes_is_the_reference(loop, played):
    """Limits, cut actions and environments that raise; their tokens are random, not sampled."""
    model = played[0]
    episodes = frozen_episodes()
    assert any(episode.stop_reason.failed for episode in episodes)
    assert_reference(gradient(loop, model, episodes, on_policy=False), model, episodes)


def test_every_action_token_has_the_advantage_of_its_turn(loop):
    episodes = frozen_episodes()
    _, _, _, advantages = loop.to_tensors(episodes, recipe())
    rows = expected_rows(recipe(), episodes)
    expected = np.concatenate([r.advantages[np.array(r.loss_mask, dtype=bool)] for r in rows])
    np.testing.assert_allclose(advantages.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [(1.5, 1.0, False), (1.5, -1.0, True), (0.5, 1.0, True), (0.5, -1.0, False), (1.1, 1.0, True)],
)
def test_the_clip_stops_a_ratio_that_went_far_enough(loop, ratio, advantage, moves):
    new = torch.tensor([float(np.log(ratio))], requires_grad=True)
    loop.ppo_loss(new, torch.zeros(1), torch.tensor([advantage]), recipe()).backward()
    assert bool(new.grad.abs().item() > 0) is moves


def test_two_runs_give_the_same_numbers(loop, monkeypatch):
    losses = []
    original = loop.ppo_loss

    def record(*arguments):
        losses.append(original(*arguments))
        return losses[-1]

    monkeypatch.setattr(loop, "ppo_loss", record)
    curves = [loop.train(recipe()) for _ in range(2)]
    values = [loss.item() for loss in losses]
    updates = 3 * recipe().algorithm.epochs
    assert len(curves[0]) == 3
    assert curves[0] == curves[1]
    assert values[:updates] == values[updates:]
    assert len(set(values[:updates])) == updates  # each update changed the weights


def test_the_curve_is_saved(loop, tmp_path):
    loop.save([0.25, 0.5], tmp_path / "new" / "folder")
    written = (tmp_path / "new" / "folder" / "curve.csv").read_text(encoding="utf-8")
    assert written == "step,success\n1,0.2500\n2,0.5000\n"
    assert (tmp_path / "new" / "folder" / "curve.png").stat().st_size > 1000


@pytest.mark.slow
def test_success_rises(tmp_path, monkeypatch):
    """The command of the documentation, with its defaults."""
    monkeypatch.delenv("GEM_CORE_CACHE")
    command = [sys.executable, str(SCRIPT), "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with (tmp_path / "curve.csv").open(encoding="utf-8") as file:
        rates = [float(row["success"]) for row in csv.DictReader(file)]
    assert rates[0] < 0.6
    assert sum(rates[-5:]) / 5 >= 0.85
