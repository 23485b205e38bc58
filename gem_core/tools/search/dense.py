"""Dense retrieval over a local corpus: an encoder of transformers and an exact search."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from gem_core.errors import MissingDependencyError
from gem_core.tools.search.documents import Document, corpus_path, read_corpus
from gem_core.tools.search.local import revision_of

Pooling = Literal["mean", "cls", "last"]
POOLINGS: tuple[str, ...] = ("mean", "cls", "last")
_BATCH = 32
_MOST_TOKENS = 512


class Encoder(NamedTuple):
    """How texts become vectors.

    Attributes:
        path: a local directory or a Hugging Face id.
        revision: commit, tag or branch of a Hugging Face id.
        pooling: what stands for a text: the mean of its tokens, the first or the last.
        query_prefix: put before queries, ``"query: "`` for E5.
        text_prefix: put before the texts of the corpus, ``"passage: "`` for E5.
    """

    path: str
    revision: str | None = None
    pooling: Pooling = "mean"
    query_prefix: str = ""
    text_prefix: str = ""


class DenseSearch:
    """A corpus and the vectors of its texts, in memory.

    The score is the cosine; every text is compared, so there is no error of an approximate index,
    and a corpus of millions of texts belongs on a retrieval server.

    Raises:
        MissingDependencyError: torch or transformers is not installed.
    """

    def __init__(self, documents: list[Document], encoder: Encoder):
        require_transformers()
        from transformers import AutoModel, AutoTokenizer, __version__

        self._documents = documents
        self._encoder = encoder
        self._lock = threading.Lock()
        path, revision = encoder.path, encoder.revision or "main"
        self._tokenizer: Any = AutoTokenizer.from_pretrained(path, revision=revision)
        self._tokenizer.padding_side = "right"
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        # In float32 under every trainer: transformers 5 takes the precision of the files otherwise.
        precision = {"dtype": "float32"} if int(__version__.split(".")[0]) >= 5 else {}
        model = AutoModel.from_pretrained(path, revision=revision, **precision)
        self._model: Any = model.eval()
        texts = [f"{encoder.text_prefix}{d.title}\n{d.text}" for d in documents]
        self._vectors = self._encode(texts)

    def search(self, query: str, topk: int, seconds: float) -> list[Document]:
        """Return the best documents; those of equal score are in the order of the corpus.

        It waits for nothing, whatever ``seconds`` is.
        """
        vector = self._encode([f"{self._encoder.query_prefix}{query}"])[0]
        ranked = (-(self._vectors @ vector)).argsort(kind="stable")[:topk]
        return [self._documents[i] for i in ranked.tolist()]

    def _encode(self, texts: Sequence[str]) -> Any:
        """Return one vector of length 1 for each text, [texts, hidden] in float32."""
        import numpy as np
        import torch

        rows = []
        with self._lock, torch.inference_mode():
            for first in range(0, len(texts), _BATCH):
                inputs = self._tokenizer(
                    list(texts[first : first + _BATCH]),
                    padding=True,
                    truncation=True,
                    max_length=_MOST_TOKENS,
                    return_tensors="pt",
                )
                fields = {name: inputs[name] for name in ("input_ids", "attention_mask")}
                states = self._model(**fields).last_hidden_state
                pooled = _pool(states, inputs["attention_mask"], self._encoder.pooling)
                rows.append(torch.nn.functional.normalize(pooled, dim=-1).numpy())
        return np.concatenate(rows)


def _pool(states: Any, mask: Any, pooling: Pooling) -> Any:
    """Return one vector for each row of ``states``, [rows, tokens, hidden]."""
    if pooling == "cls":
        return states[:, 0]
    if pooling == "last":
        return states[range(len(states)), mask.sum(1) - 1]
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1)


def require_transformers() -> None:
    """Check that what encodes is installed.

    Raises:
        MissingDependencyError: it is not.
    """
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "Dense retrieval over a local corpus needs transformers and torch: "
            "pip install 'gem-core[hf]'. A retrieval server (the option url) needs neither."
        ) from error


_lock = threading.Lock()
_indexes: dict[tuple[str, Encoder], DenseSearch] = {}


def dense_search(corpus: str, encoder: Encoder) -> DenseSearch:
    """Return the vectors of a corpus, made at the first call of the process.

    Raises:
        DataError: the corpus cannot be read.
        MissingDependencyError: torch or transformers is not installed.
    """
    key = revision_of(corpus), encoder
    with _lock:
        if key not in _indexes:
            _indexes[key] = DenseSearch(read_corpus(corpus_path(corpus)), encoder)
        return _indexes[key]
