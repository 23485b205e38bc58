"""Oat on a CPU: the CPU backend is installed before any test module imports Oat."""

from __future__ import annotations

import pytest
import torch

from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_oat.cpu import install
from gem_parity.frozen import frozen_episodes

torch.set_num_threads(1)
install()

SMALL = [
    "batch.episodes=8",
    "train.steps=2",
    "train.save_every=0",
    "algorithm.epochs=1",
    "algorithm.lr=2e-3",
    "algorithm.lr_schedule=constant",
]


@pytest.fixture
def recipe():
    """``recipe(*overrides)``: a small run of the tiny profile."""
    return lambda *overrides: load_recipe("guess-the-number-easy", "tiny", [*SMALL, *overrides])


@pytest.fixture
def episodes():
    """The frozen batch, made anew for each use."""
    return lambda: frozen_episodes(16, group_size=2)


@pytest.fixture
def rows(episodes):
    """The frozen batch as Oat's rows; environments are numbered in the order of their names."""
    from gem_oat.rollout import to_native

    env_ids = ["frozen:dense", "frozen:terminal"]
    return [
        row
        for number, episode in enumerate(episodes())
        for row in to_native(episode, number, env_ids.index(episode.env_id))
    ]


@pytest.fixture
def learner(tmp_path):
    """``learner(recipe)``: Oat's learner and actor in this process, made but not run."""
    from gem_oat.cpu.in_process import make
    from gem_oat.launch import arguments

    def build(recipe, start=0, name="run", **kwargs):
        path = tmp_path / name
        run = RunDir(path) if path.exists() else RunDir.create(path, recipe, "oat")
        return make(arguments(recipe, run, start), **kwargs)

    return build
