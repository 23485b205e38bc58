"""Each fault of Oat that the adapter guards against: the fault itself, and that it is caught."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta

import oat.learners.rl
import oat.utils.distributed
import pytest
import torch
import transformers
from oat.algorithms.ppo import PPOLearner
from oat.utils.launcher import get_free_port
from oat.utils.lm_head import FusedLinear

import gem_core.runs.trainers
from gem_core.errors import GemError, MissingDependencyError, UnknownNameError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.recipe import SamplingConfig
from gem_core.runs.resolved import resolve_run
from gem_oat import _compat, launch
from gem_oat.cpu import in_process, install
from gem_oat.values import REAL_VARIABLE


def fused_gradient(batch):
    hidden = torch.randn(batch, 9, 16, requires_grad=True)
    head = torch.randn(30, 16, requires_grad=True)
    ids = torch.randint(0, 30, (batch, 9))
    logps, _ = FusedLinear(compute_entropy=True)(
        (hidden * 1.0)[:, :-1], head, ids[:, 1:], temperature=1.0
    )
    logps.sum().backward()
    return hidden.grad


def test_oats_fused_head_still_drops_the_gradient_of_the_body():
    """When this fails, Oat is repaired: allow the fused head for any micro-batch."""
    assert fused_gradient(1) is not None and fused_gradient(2) is None


def test_a_fused_head_with_two_rows_is_stopped_before_the_update(recipe, learner):
    made = learner(recipe("batch.micro_batch=1"))
    assert made.args.use_fused_lm_head
    made.args.gem = made.args.gem._replace(recipe=recipe("batch.micro_batch=2"))
    with pytest.raises(GemError, match="no gradient with 2 or more rows"):
        made.run()
    assert made.model.model.global_steps == 0


def test_version_strings_no_longer_break_the_weight_group():
    """torch 2.10 and later: Oat takes "2.13" for older than "2.6" and passes a lost argument."""
    port = get_free_port()
    group = oat.utils.distributed.init_process_group(
        backend="gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        world_size=1,
        rank=0,
        group_name="gem-test",
        timeout=timedelta(seconds=30),
    )
    assert group.size() == 1
    helper = oat.utils.distributed._new_process_group_helper
    _compat.fix_process_group(oat.utils.distributed)
    assert oat.utils.distributed._new_process_group_helper is helper, "wrapped twice"
    with pytest.raises(TypeError, match="pg_options"):
        helper.__closure__[0].cell_contents(
            1, 0, [], "gloo", torch.distributed.HashStore(), group_name="x", pg_options=None
        )


def test_the_critic_has_every_schedule():
    """Oat gives ``min_lr`` to the critic's schedule; most of transformers' do not take it."""
    weights = [torch.nn.Parameter(torch.zeros(1))]
    keywords = {"num_warmup_steps": 0, "num_training_steps": 4}
    for name in ("constant_with_warmup", "linear", "cosine", "cosine_with_min_lr"):
        least = {"scheduler_specific_kwargs": {"min_lr": 1e-4}}
        optimizer = torch.optim.AdamW(weights, lr=1e-3)
        oat.learners.rl.get_scheduler(name, optimizer, **keywords, **least)
    with pytest.raises(TypeError, match="min_lr"):
        transformers.get_scheduler("linear", optimizer, **keywords, **least)


def test_the_data_set_is_as_long_as_the_run(recipe, learner):
    """GEM's own has 1e9 items, 46 GB of indices per rank in torch's sampler."""
    made = learner(recipe("train.steps=5"), start=0)
    made._init(made.args, made.actors)
    assert len(made.prompts_dataset) == 5 and made.max_steps == 5
    assert [batch[0][0] for batch in made.prompts_dataloader] == [f"{n}/0/1" for n in range(5)]


def test_a_stale_row_is_never_trained_on(recipe, learner, rows):
    made = learner(recipe())
    made._init(made.args, made.actors)
    made.steps = 0
    made.process_feedback_data(rows[:9])
    made.process_feedback_data(rows[10:14])
    assert list(made.pi_buffer) == rows[10:14]
    made.process_feedback_data(rows)
    assert list(made.pi_buffer) == rows, "Oat's buffer length cut the batch"


def test_advantages_that_are_not_gem_cores_stop_before_the_update(recipe, learner, monkeypatch):
    """Oat's own advantage with one sample per prompt is identically 0, without an error."""
    rewards = torch.tensor([[0.0, 1.0], [0.0, 0.3]])
    made = learner(recipe())
    own = PPOLearner.compute_monte_carlo_advantages(made, rewards, None)
    assert own.tolist() == [0.0, 0.0]
    monkeypatch.setattr(
        type(made), "compute_monte_carlo_advantages", PPOLearner.compute_monte_carlo_advantages
    )
    with pytest.raises(GemError, match="did not ask gem_core for advantages"):
        made.run()
    assert made.model.model.global_steps == 0


def test_a_resumed_actor_has_the_checkpoints_weights(recipe, learner):
    """Oat's own resume loads the learner and lets the actor sample from the first weights."""
    small = recipe("train.save_every=1")
    learner(small).run()
    again = learner(small, start=1)
    again._init(again.args, again.actors)
    mine = dict(again.model.model.module.named_parameters())
    for name, weight in again.actors[0].actor.llm.model.named_parameters():
        assert torch.equal(weight, mine[name]), name
    first = learner(small)
    first._init(first.args, first.actors)
    started = dict(first.model.model.module.named_parameters())
    assert any(not torch.equal(started[name], mine[name]) for name in mine)


def test_the_cpu_backend_refuses_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(GemError, match="does not run beside a GPU"):
        install()


def test_a_gpu_recipe_on_the_wrong_python_says_which(recipe, tmp_path):
    gpu = recipe("hardware.device=gpu", "hardware.engine=vllm")
    run = RunDir.create(tmp_path / "run", gpu, "oat")
    assert sys.version_info[:2] != (3, 10)
    with pytest.raises(
        MissingDependencyError, match=r"Python >=3\.10,<3\.11; this is 3\.11.*python3\.10 -m venv"
    ):
        launch.run(resolve_run(gpu, "oat"), run)


@pytest.mark.parametrize(
    ("visible", "number", "seen"),
    [
        ("4, 5,6", 2, "4,5"),
        ("3", 1, "3"),
        ("0,1,2,3,4,5,6,7", 8, "0,1,2,3,4,5,6,7"),
        (None, 1, None),
    ],
)
def test_oat_sees_as_many_gpus_as_the_recipe_has(monkeypatch, visible, number, seen):
    """It starts a learner on every one that it sees."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    _compat.see_gpus(number)
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == seen


def test_gpus_by_another_name_than_a_number_are_refused(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8a2b")
    with pytest.raises(GemError, match=r"CUDA_VISIBLE_DEVICES=GPU-8a2b: Oat takes .* by number"):
        _compat.see_gpus(1)


def test_a_run_that_leaves_no_model_is_an_error(recipe, tmp_path, monkeypatch):
    """Oat's processes can end without an exception that reaches the launcher."""
    run = RunDir.create(tmp_path / "run", recipe(), "oat")
    monkeypatch.setattr(in_process, "launch", lambda args: None)
    with pytest.raises(GemError, match=r"ended before step 2.*--resume"):
        launch.run(resolve_run(recipe(), "oat"), run)


def test_missing_parts_of_the_gpu_stack_are_named(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    monkeypatch.setattr(gem_core.runs.trainers, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"vllm is missing: pip.*launchpad is missing"):
        _compat.require_gpu_stack()


def test_a_method_that_takes_something_else_is_named():
    _compat.check_private_signatures()
    other = {"oat.algorithms.ppo:PPOLearner.learning_step": "self trajectory step"}
    with pytest.raises(
        MissingDependencyError, match=r"learning_step takes \(self trajectory\), not .*oat-llm>=0"
    ):
        _compat.check_private_signatures(other)


def test_an_untested_oat_is_refused_at_import():
    code = (
        "import importlib.metadata as m; real = m.version; "
        "m.version = lambda name: '0.9.0' if name == 'oat-llm' else real(name); "
        "import gem_oat.config, gem_oat._compat"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode and "oat-llm 0.9.0 is outside the tested range" in done.stderr


@pytest.mark.parametrize(
    ("sampling", "before", "after"),
    [
        ({}, None, None),
        ({}, "1", "1"),
        ({"temperature": 0.7}, None, "0"),
        ({"top_p": 0.9}, None, "0"),
        ({"top_k": 5}, "0", "0"),
    ],
)
def test_vllm_reports_log_probabilities_of_what_it_samples(monkeypatch, sampling, before, after):
    """vLLM 0.8's V1 engine reports those at temperature 1 (benchmarks/engines)."""
    monkeypatch.setenv("VLLM_USE_V1", "restored after the test")
    monkeypatch.delenv("VLLM_USE_V1")
    if before is not None:
        monkeypatch.setenv("VLLM_USE_V1", before)
    _compat.report_what_is_sampled(SamplingConfig(**sampling))
    assert os.environ.get("VLLM_USE_V1") == after


def test_the_v1_engine_is_refused_at_another_temperature(monkeypatch):
    monkeypatch.setenv("VLLM_USE_V1", "1")
    with pytest.raises(GemError, match=r"VLLM_USE_V1=1.*sampling\.temperature = 1"):
        _compat.report_what_is_sampled(SamplingConfig(temperature=0.7))


def test_an_actor_chooses_the_engine_before_it_is_built(recipe, learner, monkeypatch):
    monkeypatch.setenv("VLLM_USE_V1", "1")
    made = learner(recipe("sampling.temperature=0.7"))
    with pytest.raises(GemError, match="VLLM_USE_V1"):
        made._init(made.args, made.actors)
    assert not hasattr(made.actors[0].actor, "llm")


def test_what_is_to_be_real_must_be_known_and_installed(recipe, tmp_path, monkeypatch):
    run = RunDir.create(tmp_path / "run", recipe(), "oat")
    monkeypatch.setenv(REAL_VARIABLE, "vlm")
    with pytest.raises(UnknownNameError, match="vllm"):
        launch.run(resolve_run(recipe(), "oat"), run)
    monkeypatch.setenv(REAL_VARIABLE, "vllm,launchpad")
    for name in ("vllm", "launchpad"):  # the stand-ins, which have no module specification
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(
        MissingDependencyError, match=r"make_env\.py launchpad;.*make_env\.py oat-vllm"
    ):
        launch.run(resolve_run(recipe("hardware.engine=vllm"), "oat"), run)
