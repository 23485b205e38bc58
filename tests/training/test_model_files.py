"""A trained model keeps the configuration and tokenizer of its origin, and its own precision."""

from __future__ import annotations

import json

import pytest
from huggingface_hub import constants

from gem_core.errors import RunError
from gem_core.policies.models.files import copy_source_files
from gem_core.runs.generation_config import GENERATION, write_eos_ids

SHAPE = {"model_type": "qwen3", "vocab_size": 8, "hidden_size": 4, "num_hidden_layers": 1}
OLD = {**SHAPE, "rope_theta": 1e6, "torch_dtype": "bfloat16"}
NEW = {**SHAPE, "rope_parameters": {"rope_theta": 1e6}, "dtype": "float32"}


def folder(path, config, **files):
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


@pytest.fixture
def trained(tmp_path):
    files = {"tokenizer_config__json": "new", "added_tokens__json": "new", "weights": "w"}
    return folder(tmp_path / "trained", NEW, **files)


def check(trained):
    config = json.loads((trained / "config.json").read_text())
    assert config == {**OLD, "torch_dtype": "float32", "dtype": "float32"}
    assert (trained / "tokenizer_config.json").read_text() == "old"
    assert not (trained / "added_tokens.json").exists(), "not the origin's"
    assert (trained / "weights").read_text() == "w"


def test_the_origins_files_come_back(tmp_path, trained):
    origin = folder(tmp_path / "origin", OLD, tokenizer_config__json="old")
    copy_source_files(str(origin), None, trained)
    check(trained)


def test_how_the_trainer_sampled_is_not_how_the_model_samples(tmp_path, trained):
    (trained / GENERATION).write_text('{"temperature": 0.3}')
    origin = folder(tmp_path / "origin", OLD, tokenizer_config__json="old")
    copy_source_files(str(origin), None, trained)
    assert not (trained / GENERATION).exists()
    (origin / GENERATION).write_text('{"top_k": 64, "eos_token_id": 1}')
    copy_source_files(str(origin), None, trained)
    write_eos_ids(trained, [1, 106])
    assert json.loads((trained / GENERATION).read_text()) == {"top_k": 64, "eos_token_id": [1, 106]}


def test_an_origin_on_the_hub_is_found_in_the_cache(tmp_path, trained, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repo = tmp_path / "hub" / "models--some--model"
    folder(repo / "snapshots" / "abc", OLD, tokenizer_config__json="old")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc")
    copy_source_files("some/model", None, trained)
    check(trained)


def test_a_model_of_another_shape_is_refused(tmp_path, trained):
    origin = folder(tmp_path / "origin", {**OLD, "vocab_size": 9})
    with pytest.raises(RunError, match="vocab_size: 9 -> 8"):
        copy_source_files(str(origin), None, trained)
