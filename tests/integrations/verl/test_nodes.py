"""A run on two nodes of a Ray cluster: one rank on each, one of which dies."""

from __future__ import annotations

import pytest

from gem_adapters.ray_cluster import ADDRESS
from gem_core.errors import RecipeError
from gem_core.training.experiment import run_experiment
from gem_verl.launch import session

from ... import ray_nodes


def test_without_a_cluster_nothing_is_done(tiny, tmp_path, monkeypatch):
    for address in (None, "", "local"):
        monkeypatch.delenv(ADDRESS, raising=False)
        if address is not None:
            monkeypatch.setenv(ADDRESS, address)
        with pytest.raises(RecipeError, match=r"nodes = 2: .* RAY_ADDRESS") as caught:
            run_experiment(tiny("hardware.nodes=2"), "verl", tmp_path / "run")
        assert "\n" not in str(caught.value)
        with pytest.raises(RecipeError, match="RAY_ADDRESS"), session(tiny("hardware.nodes=2")):
            pass  # as the script in recipes/ begins
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_node_that_dies_costs_a_restart_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    ray_nodes.require_that_a_node_may_die("verl", tmp_path)
