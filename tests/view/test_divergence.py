"""The first token at which episodes differ, and the texts of tokens."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gem_view.divergence import find_divergence, first_difference
from gem_view.pieces import Pieces, byte_alphabet, read_pieces

from .conftest import make_episode

SEQUENCES = st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=2, max_size=4)


@given(SEQUENCES)
def test_the_first_difference_is_where_the_shared_beginning_ends(sequences):
    position = first_difference(sequences)
    if position is None:
        assert all(sequence == sequences[0] for sequence in sequences)
    else:
        assert all(s[:position] == sequences[0][:position] for s in sequences)
        assert any(s[: position + 1] != sequences[0][: position + 1] for s in sequences)


def segments(*parts):
    record = make_episode(0, 7, 0).to_dict()
    record["segments"] = [
        {"token_ids": ids, "loss_mask": [0] * len(ids), "logprobs": None, "spans": spans}
        for ids, spans in parts
    ]
    return record


def test_it_is_found_in_a_later_segment_with_the_turn_that_has_it():
    first = segments(([1, 2, 3], [(0, 2, 3)]), ([4, 5, 6], [(1, 1, 3)]))
    second = segments(([1, 2, 3], [(0, 2, 3)]), ([4, 5, 9], [(1, 1, 3)]))
    found = find_divergence([first, second, first])
    assert found == {
        "unit": "token",
        "position": 5,
        "segment": 1,
        "offset": 2,
        "turn": 1,
        "ids": [6, 9, 6],
    }
    assert find_divergence([first, first]) is None


def test_one_that_ended_earlier_parts_at_its_end():
    found = find_divergence([segments(([1, 2], [(0, 1, 2)])), segments(([1, 2, 3], [(0, 1, 2)]))])
    assert (found["position"], found["turn"], found["ids"]) == (2, -1, [None, 3])


def test_without_tokens_the_texts_are_compared():
    first = {**make_episode(0, 7, 0).to_dict(), "segments": []}
    second = {**make_episode(0, 9, 0).to_dict(), "segments": []}
    assert find_divergence([first, second]) == {"unit": "text", "position": 3, "turn": 1}
    assert find_divergence([first, first]) is None


@given(st.text(max_size=40), st.randoms())
def test_the_texts_of_tokens_are_together_the_whole_text(text, random):
    data = text.encode()
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(3)) if data else []
    ends = [0, *cuts, len(data)]
    vocabulary = {k: data[a:b] for k, (a, b) in enumerate(pairwise(ends))}
    assert "".join(Pieces(vocabulary).texts(range(len(vocabulary)))) == text


def test_every_byte_has_a_character_and_other_vocabularies_are_not_guessed(tmp_path):
    assert sorted(byte_alphabet().values()) == list(range(256))
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"vocab": {"a": 0}}, "decoder": {"type": "Metaspace"}}))
    assert read_pieces(path) is None
    added = [{"id": 1, "content": "<|end|>"}]
    data = {
        "model": {"vocab": {"Ġa": 0}},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": added,
    }
    path.write_text(json.dumps(data))
    assert read_pieces(path).texts([0, 1, 5]) == [" a", "<|end|>", "\ufffd"]


def test_a_vocabulary_with_names_of_bytes_is_read_too(tmp_path):
    decoders = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    data = {
        "model": {"vocab": {"▁a▁": 0, "<0xC3>": 1, "<0xBC>": 2, "<0xbg>": 3}},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "added_tokens": [{"id": 4, "content": "<▁>"}],
    }
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data))
    texts = [" a ", "", "ü", "", "\ufffd<0xbg>", "<▁>"]
    assert read_pieces(path).texts([0, 1, 2, 1, 3, 4]) == texts
    for change in ({"content": "  "}, {"pattern": {"Regex": "a"}}, {"type": "Strip"}):
        data["decoder"]["decoders"] = [{**decoders[0], **change}, *decoders[1:]]
        path.write_text(json.dumps(data))
        assert read_pieces(path) is None
