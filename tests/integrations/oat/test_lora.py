"""LoRA: only adapters are trained; the actor and the exported model have them merged."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gem_core.errors import RecipeError
from gem_core.policies.models.weights import missing_weights
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.resolved import resolve_run
from gem_core.training.tiny import model_path
from gem_oat import launch
from gem_oat.config import translate
from gem_oat.cpu.in_process import InProcessLearner
from gem_oat.learner import GemLearner

LORA = ("model.lora.rank=4", "model.lora.alpha=8", "algorithm.lr=0.01")


class Watched(InProcessLearner):
    """Notes, at every hand-over, how far the actor's weights are from the merged ones."""

    def sync_params_to_actors(self):
        before = {n: w.clone() for n, w in self._policy.named_parameters() if "lora_" not in n}
        super().sync_params_to_actors()
        after = dict(self._policy.named_parameters())
        assert all(torch.equal(weight, after[name]) for name, weight in before.items())
        prompt = torch.arange(3, 40)[None]
        own = logprobs(self._policy.eval(), prompt)
        theirs = logprobs(self.actors[0].actor.llm.model, prompt)
        self._policy.train()
        self.apart = [*getattr(self, "apart", []), (own - theirs).abs().max().item()]


def logprobs(model, ids):
    with torch.no_grad():
        return model(input_ids=ids).logits.log_softmax(-1)


def test_an_export_without_a_step_is_the_start_model(learner, recipe, tmp_path):
    made = learner(recipe(*LORA))
    made._init(made.args, made.actors)
    made.export()
    start = AutoModelForCausalLM.from_pretrained(model_path(recipe())).state_dict()
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model").state_dict()
    assert start.keys() == exported.keys()
    assert all(torch.equal(start[name], exported[name]) for name in start)


@pytest.mark.parametrize("targets", [[], ["q_proj", "down_proj"]])
def test_actor_and_export_compute_what_the_learner_does(learner, recipe, tmp_path, targets):
    names = [f"model.lora.targets={targets}"] if targets else []
    made = learner(recipe(*LORA, "train.steps=3", *names), learner=Watched)
    made.run()
    policy = made._policy.eval()
    trained = {name for name, weight in policy.named_parameters() if weight.requires_grad}
    assert trained and all("lora_" in name for name in trained)
    assert {name.split(".")[-4] for name in trained} == set(targets or LINEAR)
    # Log-probabilities of down to -20, summed up in another order.
    assert len(made.apart) == 3 and max(made.apart) < 3e-5
    folder = tmp_path / "run" / "model"
    assert not missing_weights(str(folder))
    prompt = torch.tensor([AutoTokenizer.from_pretrained(folder).encode("a guess from 1 to 50")])
    own = logprobs(policy, prompt)
    with policy.disable_adapter():
        before = logprobs(policy, prompt)
    reloaded = AutoModelForCausalLM.from_pretrained(folder)
    torch.testing.assert_close(logprobs(reloaded, prompt), own, atol=2e-5, rtol=0)
    assert (own - before).abs().max() > 1e-3, "training changed nothing: the test shows nothing"


LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def test_a_killed_run_continues_its_adapters(recipe, tmp_path, monkeypatch):
    small = recipe(*LORA, "train.steps=2", "train.save_every=1")
    whole = RunDir.create(tmp_path / "whole", small, "oat")
    launch.run(resolve_run(small, "oat"), whole)
    cut = RunDir.create(tmp_path / "cut", small, "oat")
    learn = GemLearner.learn

    def killed(self, learning_round):
        if self.steps_done == 1:
            raise KeyboardInterrupt
        self.steps_done = 1
        return learn(self, learning_round)

    with monkeypatch.context() as patch:
        patch.setattr(GemLearner, "steps_done", 0, raising=False)
        patch.setattr(GemLearner, "learn", killed)
        with pytest.raises(KeyboardInterrupt):
            launch.run(resolve_run(small, "oat"), cut)
    launch.run(resolve_run(small, "oat"), cut, resume=True)
    expected, resumed = (
        AutoModelForCausalLM.from_pretrained(run.model).state_dict() for run in (whole, cut)
    )
    for name in expected:
        torch.testing.assert_close(resumed[name], expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (["model.lora.alpha=0.5"], "whole numbers"),
        (["algorithm.estimator=gae"], "value head would stay at zero"),
        (["trainer.oat.zero_stage=3"], "not gathered"),
        (["trainer.oat.lora_dropout=0.1"], "without dropout"),
    ],
)
def test_what_adapters_cannot_do_is_refused(recipe, keys, text):
    with pytest.raises(RecipeError, match=text):
        translate(recipe("model.lora.rank=4", *keys))
