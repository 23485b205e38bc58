"""gem-core's sampler, made by verl's trainer from the run's configuration, without Ray."""

from __future__ import annotations

import pytest
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from gem_core.errors import GemError
from gem_core.runs.directory.run_dir import RunDir
from gem_verl.advantages import install
from gem_verl.cpu.local import configuration


@pytest.fixture
def make_sampler(tiny, model_dir, tmp_path):
    """``make_sampler()``: what verl's trainer does before it starts its workers."""
    recipe = tiny()
    run = RunDir.create(tmp_path / "run", recipe, "verl")

    def make():
        trainer = object.__new__(PPOTrainerSync)
        trainer.config = configuration(recipe, model_dir, **{"+data.gem_run": str(run.path)})
        trainer.trainer_mode = trainer.config.trainer.v1.trainer_mode
        return trainer._build_replay_buffer()

    return make


def test_it_is_the_sampler_that_verl_makes(make_sampler):
    assert type(make_sampler()).__name__ == "GemSampler"


def test_an_estimator_of_another_plugin_is_refused_before_the_first_step(make_sampler, monkeypatch):
    install()
    monkeypatch.setitem(ADV_ESTIMATOR_REGISTRY, "gem_rebn", lambda **_: None)
    with pytest.raises((GemError, ValueError), match="gem_rebn"):
        make_sampler()
