"""A run on two nodes of a Ray cluster: one rank on each, one of which dies."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gem_adapters.ray_cluster import ADDRESS
from gem_core.errors import RecipeError
from gem_core.training.experiment import run_experiment
from gem_openrlhf import launch

from ... import ray_nodes

TOGETHER = ("trainer.openrlhf.train.colocate_all=true", "trainer.openrlhf.vllm.num_engines=2")
"""A node has one GPU here, so that a rank of each model and an engine share it."""


def test_without_a_cluster_nothing_is_done(tiny, tmp_path, monkeypatch):
    monkeypatch.delenv(ADDRESS, raising=False)
    with pytest.raises(RecipeError, match=r"nodes = 2: .* RAY_ADDRESS"):
        run_experiment(tiny("hardware.nodes=2"), "openrlhf", tmp_path / "run")
    script = SimpleNamespace(recipe=tiny("hardware.nodes=2"))  # as the one in recipes/ begins
    with pytest.raises(RecipeError, match="RAY_ADDRESS"):
        launch.run(script, None)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_node_that_dies_costs_a_restart_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    ray_nodes.require_that_a_node_may_die("openrlhf", tmp_path, *TOGETHER)
