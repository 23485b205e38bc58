"""Adapters that are merged in what leaves the trainer, and revisions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from gem_core.errors import RecipeError
from gem_core.runs.directory.run_dir import RunDir
from gem_openrlhf import launch
from gem_openrlhf.cpu.in_process import InProcess
from gem_openrlhf.lora import merged
from gem_parity.frozen import frozen_episodes

BATCH = ("batch.episodes=16", "batch.group_size=2", "algorithm.lr=0.05", "train.steps=3")
LORA = ("model.lora.rank=4", "model.lora.alpha=8")


def exported(trainer, folder):
    """The model that OpenRLHF's actor writes, as everybody loads it; all its weights are there."""
    trainer.args.ckpt.output_dir = str(folder)
    trainer.actor.save_model()
    model, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    return model


def logprobs(model, ids):
    scores = torch.log_softmax(model(ids).logits[:, :-1].float(), -1)
    return scores.gather(2, ids[:, 1:, None])[..., 0].detach()


@pytest.mark.parametrize("targets", [(), ("q_proj", "down_proj")])
def test_adapters_are_trained_and_the_model_is_exported_whole(tiny, model_dir, tmp_path, targets):
    names = [f"model.lora.targets={json.dumps(targets)}"] if targets else []
    trainer = InProcess(tiny(*BATCH, *LORA, *names), model_dir)
    start = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    before = exported(trainer, tmp_path / "before")
    for name, weight in before.named_parameters():
        assert torch.equal(weight, start.get_parameter(name)), name
    for seed in range(3):
        trainer.train(trainer.experiences(frozen_episodes(16, group_size=2, seed=seed)))
    trained = {name.split(".")[-4] for name in trainer.steps[0] if ".lora_" in name}
    assert len(trainer.steps[0]) == sum(".lora_" in name for name in trainer.steps[0])
    assert trained == set(targets) if targets else len(trained) == 7 and "lm_head" not in trained
    ids = torch.randint(3, 250, (4, 20), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    own = trainer.actor.forward(ids, mask[:, 1:], mask)
    after = logprobs(exported(trainer, tmp_path / "after"), ids)
    assert (own - after).abs().max() < 1e-5
    assert (own - logprobs(start, ids)).abs().max() > 0.05  # and it learned something


def test_the_engine_gets_whole_weights_under_the_models_own_names(tiny, model_dir):
    trainer = InProcess(tiny(*BATCH, *LORA), model_dir)
    trainer.train(trainer.experiences(frozen_episodes(16, group_size=2)))
    model = trainer.actor.actor.model.module
    sent = []

    class Engine:
        """Keeps what OpenRLHF tells an engine."""

        class update_weight:
            @staticmethod
            def remote(name, **_):
                sent.append([name, None])

    class Group:
        """Keeps what OpenRLHF sends it."""

        def broadcast(self, weight, **_):
            sent[-1][1] = weight.clone()

    trainer.actor.trainer.vllm_engines = [Engine]
    trainer.actor.trainer._model_update_group = Group()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("openrlhf.trainer.ray.ppo_actor.ray.get", lambda references: references)
        trainer.actor.broadcast_to_vllm()
    start = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    shapes = {name: weight.shape for name, weight in start.named_parameters()}
    assert {name: weight.shape for name, weight in sent} == shapes
    model.merge_adapter()
    names = {name.replace(".base_layer", ""): weight for name, weight in model.named_parameters()}
    for name, weight in sent:
        assert torch.allclose(weight, names[f"base_model.model.{name}"], atol=1e-7), name
    changed = [name for name, weight in sent if not torch.equal(weight, start.get_parameter(name))]
    assert len(changed) == 14  # seven linear layers in each of two blocks


def test_a_model_without_adapters_is_sent_as_it_is(tiny, model_dir):
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    with merged(model):
        assert "named_parameters" not in vars(model)


@pytest.fixture
def hub(untrained, tmp_path, monkeypatch):
    """A cache of Hugging Face with two versions of ``org/tiny``, of 64 and 96 positions."""
    cache = tmp_path / "hub"
    model = cache / "models--org--tiny"
    for revision, positions in (("main", 64), ("v2", 96)):
        commit = f"{positions:040d}"
        shutil.copytree(untrained, model / "snapshots" / commit)
        config = model / "snapshots" / commit / "config.json"
        data = json.loads(config.read_text()) | {"max_position_embeddings": positions}
        config.write_text(json.dumps(data))
        (model / "refs").mkdir(exist_ok=True)
        (model / "refs" / revision).write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.parametrize(("revision", "positions"), [("v2", 96), ("main", 64)])
def test_the_revision_of_the_recipe_is_what_openrlhf_loads(
    tiny, tmp_path, hub, revision, positions
):
    recipe = tiny("model.path=org/tiny", f"model.revision={revision}")
    run = RunDir.create(tmp_path / "run", recipe, "openrlhf")
    paths = launch.run_flags(recipe, run)
    folder = Path(paths["actor.model_name_or_path"])
    config = json.loads((folder / "config.json").read_text())
    assert config["max_position_embeddings"] == positions
    assert not launch.has_several_rows(recipe)


def test_a_directory_has_no_revisions(tiny, untrained):
    assert launch.model_source(tiny(f"model.path={untrained}")) == untrained
    with pytest.raises(RecipeError, match=r"model\.revision = 'v2' .* a directory has no revis"):
        tiny(f"model.path={untrained}", "model.revision=v2")
