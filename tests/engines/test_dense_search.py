"""Dense retrieval with a real encoder, which the test makes."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from gem_core.errors import UnknownNameError
from gem_core.tools import Call
from gem_core.tools.search import SearchTool
from gem_core.tools.search.dense import DenseSearch, Encoder
from gem_core.tools.search.documents import Document

WORDS = ["harbour", "lamp", "oil", "river", "bridge", "stone", "crown", "island", "salt", "the"]
TEXTS = ["harbour lamp oil", "river bridge", "stone crown island", "salt", "the the the the the"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A small Bert with random weights, and its tokenizer of whole words."""
    folder = tmp_path_factory.mktemp("encoder")
    vocabulary = {word: n for n, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        type_vocab_size=1,
    )
    BertModel(config).eval().save_pretrained(folder)
    return folder


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "texts.jsonl"
    rows = [json.dumps({"title": "", "text": text}) for text in TEXTS]
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def found(tool, query):
    result = tool.run(Call("search", {"query": query}, 0, 0, "tag"), tool.start(), 60.0)
    assert result.error is None
    return result.text


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_text_is_nearest_to_itself_whatever_is_padded(encoder, corpus, pooling):
    tool = SearchTool(corpus=corpus, encoder=str(encoder), pooling=pooling, topk=1)
    for text in TEXTS[:4]:
        assert text in found(tool, f"\n{text}")


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_scores_are_the_cosines_of_single_texts(encoder, corpus, pooling):
    """The index encodes in padded batches; here each text is encoded by itself."""
    model = BertModel.from_pretrained(encoder).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(encoder)

    def vector(text):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            states = model(input_ids=ids).last_hidden_state[0]
        pick = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling].numpy()
        return pick / np.linalg.norm(pick)

    query = "salt river crown"
    scores = [float(vector(query) @ vector(text)) for text in TEXTS]
    order = [TEXTS[i] for i in np.argsort(scores)[::-1]]
    tool = SearchTool(corpus=corpus, encoder=str(encoder), pooling=pooling, topk=len(TEXTS))
    text = found(tool, query)
    assert sorted(order, key=text.index) == order


def test_vectors_are_float32_whatever_the_files_hold(encoder, corpus, tmp_path):
    """The same weights in files of bfloat16 and of float32 give the same vectors."""
    found = []
    model = BertModel.from_pretrained(encoder)
    for name, precision in [("half", torch.bfloat16), ("full", torch.float32)]:
        shutil.copytree(encoder, tmp_path / name)
        model.to(precision).save_pretrained(tmp_path / name)  # in place: rounded in both
        documents = [Document("", text) for text in TEXTS]
        search = DenseSearch(documents, Encoder(str(tmp_path / name)))
        found.append(search._vectors)
    assert np.array_equal(*found)


def test_prefixes_reach_queries_and_texts(encoder, corpus):
    plain = SearchTool(corpus=corpus, encoder=str(encoder), topk=5)
    mixed = SearchTool(corpus=corpus, encoder=str(encoder), topk=5, query_prefix="salt salt salt ")
    texts = SearchTool(corpus=corpus, encoder=str(encoder), topk=5, text_prefix="salt salt salt ")
    results = {found(tool, "river bridge") for tool in (plain, mixed, texts)}
    assert len(results) > 1
    assert plain.describe()["encoder"] != mixed.describe()["encoder"]


def test_contradicting_options_are_refused(encoder, corpus):
    with pytest.raises(ValueError, match="leave url and engine out"):
        SearchTool(encoder=str(encoder), url="http://127.0.0.1:1/retrieve")
    with pytest.raises(ValueError, match="go with encoder"):
        SearchTool(corpus=corpus, query_prefix="query: ")
    with pytest.raises(UnknownNameError, match="pooling"):
        SearchTool(corpus=corpus, encoder=str(encoder), pooling="max")
