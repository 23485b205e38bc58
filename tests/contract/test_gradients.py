"""A gradient that is not finite stops a run in its step, in each trainer, and is named."""

from __future__ import annotations

import re

import pytest

SABOTAGE = '''
import functools
import importlib.abc
import importlib.util
import os
import sys

MODULE = "transformers.models.qwen3.modeling_qwen3"


class Finder(importlib.abc.MetaPathFinder):
    """Changes the module of the tiny model when it is imported."""

    def find_spec(self, name, path, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_change(module):
            load(module)
            change(module)

        spec.loader.exec_module = load_and_change
        return spec


def change(module):
    """Make the gradients of the policy, or of the critic, infinite; values stay as they are."""
    policy_init = module.Qwen3ForCausalLM.__init__
    body_forward = module.Qwen3Model.forward

    @functools.wraps(policy_init)
    def mark(self, *args, **kwargs):
        policy_init(self, *args, **kwargs)
        self.model.is_of_policy = True

    @functools.wraps(body_forward)
    def forward(self, *args, **kwargs):
        output = body_forward(self, *args, **kwargs)
        model = "policy" if getattr(self, "is_of_policy", False) else "critic"
        if model == os.environ["GEM_TEST_BROKEN"] and output[0].requires_grad:
            output[0].register_hook(lambda gradient: gradient * float("inf"))
        return output

    module.Qwen3ForCausalLM.__init__ = mark
    module.Qwen3Model.forward = forward


sys.meta_path.insert(0, Finder())
'''


@pytest.mark.slow("openrlhf", "rl2", "verl")
@pytest.mark.parametrize(
    ("model", "estimator", "name"),
    [("policy", "rebn", "grad_norm"), ("critic", "gae", "grad_norm/critic")],
)
def test_a_gradient_that_is_not_finite_stops_the_run(
    train, package_path, monkeypatch, model, estimator, name
):
    package_path("sitecustomize", SABOTAGE)
    monkeypatch.setenv("GEM_TEST_BROKEN", model)
    status, output, run = train(
        "run", f"algorithm.estimator={estimator}", "model.tiny.warm_start_steps=0"
    )
    assert status != 0 and not run.model.exists()
    assert re.search(rf"\b{name} is (nan|inf) in step 1", output), output[-4000:]
    assert run.metrics() == []
