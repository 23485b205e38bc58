"""A copy of a model with only the tokens that some texts need.

Most of the parameters of a small model are its embedding. A token stays if it occurs in the encoded
texts, if byte-pair encoding makes it on the way to such a token, or if it is a byte, a printable
ASCII character or a special token that the configuration names. So every text can still be encoded,
and the given ones are encoded by the same tokens: only merges that they never use are lost.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gem_core.errors import DataError, GemError
from gem_core.policies.models.weights import load_model

TOLERANCE = 1e-4
"""Largest difference of a log-probability, in nats, between a model and its copy."""
_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
_CHECKED = 8
"""Texts on which the copy is compared with the model."""
_SHORT, _LENGTH = 16, 128
"""Tokens of such a text: at least, unless all are shorter, and at most."""


def trim(source: Path, folder: Path, texts: Sequence[str]) -> dict[str, Any]:
    """Write the copy and compare it with the model.

    Args:
        source: folder of a model with a ``tokenizer.json`` of byte-pair encoding.
        folder: an existing empty directory.
        texts: at least one.

    Returns:
        ``tokens`` that stay, ``of`` how many, ``compared`` positions, and the largest
        ``difference`` of a log-probability among the tokens that stay.

    Raises:
        DataError: the model has another kind of tokenizer or of file.
        GemError: the copy encodes a text otherwise, or gives other log-probabilities.
    """
    from tokenizers import Tokenizer

    content = _json(source / "tokenizer.json")
    if content["model"]["type"] != "BPE" or not (source / "model.safetensors").exists():
        raise DataError(
            f"{source} has no byte-pair encoding or not one file of weights: use it whole."
        )
    whole = Tokenizer.from_file(str(source / "tokenizer.json"))
    before = [whole.encode(text, add_special_tokens=False).ids for text in texts]
    config = _json(source / "config.json")
    vocab: dict[str, int] = content["model"]["vocab"]
    names = {number: token for token, number in vocab.items()}
    used = {names[n] for n in {n for ids in before for n in ids} | {config[k] for k in _IDS}}
    kept = sorted(vocab[token] for token in needed(content, used))
    new = {old: number for number, old in enumerate(kept)}
    (folder / "tokenizer.json").write_text(
        json.dumps(_smaller(content, new), ensure_ascii=False), "utf-8"
    )
    for name in ("config.json", "generation_config.json"):
        data = {k: new[v] if k in _IDS else v for k, v in _json(source / name).items()}
        if "vocab_size" in data:
            data["vocab_size"] = len(kept)
        (folder / name).write_text(json.dumps(data, indent=2) + "\n", "utf-8")
    shutil.copyfile(source / "tokenizer_config.json", folder / "tokenizer_config.json")
    _cut_weights(source, folder, kept)
    copy = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text, ids in zip(texts, before, strict=True):
        if copy.encode(text, add_special_tokens=False).ids != [new[n] for n in ids]:
            raise GemError(
                f"The trimmed vocabulary changes the tokens of {text[:60]!r}: report this."
            )
    facts = {"tokens": len(kept), "of": len(vocab)}
    return {**facts, **_compare(source, folder, _spread(before), kept)}


def needed(content: Mapping[str, Any], used: Iterable[str]) -> set[str]:
    """Return the tokens that stay.

    Args:
        content: of ``tokenizer.json``.
        used: tokens of the texts, and special ones.
    """
    vocab, listed = content["model"]["vocab"], content["model"]["merges"]
    ranks = {(left, right): n for n, (left, right) in enumerate(listed)}
    keep = set(used) | {content["model"]["unk_token"]}
    keep |= {token for token in vocab if len(token) == 6 and token.startswith("<0x")}
    signs = [*map(chr, range(32, 127)), "\n", "\t", "\u2581"]  # the last stands for a space
    keep |= {sign for sign in signs if sign in vocab}
    for token in keep - {token["content"] for token in content["added_tokens"]}:
        keep.update(step for step in _steps(token, ranks) if step in vocab)
    return keep


def _steps(token: str, ranks: Mapping[tuple[str, str], int]) -> set[str]:
    """Return what byte-pair encoding makes while it encodes the text of a token."""
    parts = list(token)
    seen = set(parts)
    while len(parts) > 1:
        pairs = [(ranks.get((a, b)), n) for n, (a, b) in enumerate(pairwise(parts))]
        best = min(((rank, n) for rank, n in pairs if rank is not None), default=None)
        if best is None:
            break
        at = best[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        seen.add(parts[at])
    return seen


def _smaller(content: Mapping[str, Any], new: Mapping[int, int]) -> dict[str, Any]:
    """Return ``tokenizer.json`` with the tokens of ``new`` alone: old number -> new one."""
    model = content["model"]
    vocab = {token: new[n] for token, n in model["vocab"].items() if n in new}
    merges = [
        m for m in model["merges"] if m[0] in vocab and m[1] in vocab and m[0] + m[1] in vocab
    ]
    added = [{**t, "id": new[t["id"]]} for t in content["added_tokens"] if t["id"] in new]
    processor = json.loads(json.dumps(content["post_processor"]))
    for special in processor["special_tokens"].values():
        special["ids"] = [new[n] for n in special["ids"]]
    return {
        **content,
        "added_tokens": added,
        "post_processor": processor,
        "model": {**model, "vocab": vocab, "merges": merges},
    }


def _cut_weights(source: Path, folder: Path, kept: Sequence[int]) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(source / "model.safetensors")
    rows = torch.tensor(kept)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        if name in weights:
            weights[name] = weights[name][rows].contiguous()
    target = folder / "model.safetensors"
    save_file(weights, target, metadata={"format": "pt"})
    target.chmod(0o644)  # safetensors makes it for its owner only


def _spread(encoded: Sequence[list[int]]) -> list[list[int]]:
    """Return the beginnings of some of the encoded texts, from the first to the last."""
    shortest = min(_SHORT, max(map(len, encoded)))
    found = [ids[:_LENGTH] for ids in encoded if len(ids) >= shortest]
    return found[:: math.ceil(len(found) / _CHECKED)]


def _compare(
    source: Path, folder: Path, encoded: Sequence[list[int]], kept: Sequence[int]
) -> dict[str, Any]:
    """Compare log-probabilities among the tokens that stay, given that it is one of them."""
    import torch

    new = {old: number for number, old in enumerate(kept)}
    rows = torch.tensor(kept)
    whole = [logits[:, rows].log_softmax(-1) for logits in _logits(source, encoded)]
    copy = _logits(folder, [[new[n] for n in ids] for ids in encoded])
    pairs = [(a - b.log_softmax(-1)).abs().max() for a, b in zip(whole, copy, strict=True)]
    difference = max(map(float, pairs))
    if not difference <= TOLERANCE:
        raise GemError(
            f"Log-probabilities of the trimmed copy differ from the model's by {difference:.1e}: "
            "use the whole model, and report this."
        )
    return {"compared": sum(map(len, encoded)), "difference": difference}


def _logits(folder: Path, encoded: Iterable[list[int]]) -> Iterable[Any]:
    import torch

    model = load_model(folder).eval()
    with torch.no_grad():
        for ids in encoded:
            yield model(torch.tensor([ids])).logits[0]


def _json(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content
