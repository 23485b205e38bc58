"""What a search finds, and how its files and servers write it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gem_core.errors import DataError, unknown

CORPORA = Path(__file__).resolve().parents[2] / "envs" / "data" / "corpora"


class Document(NamedTuple):
    """A paragraph of a corpus, or a page of the web in brief.

    Attributes:
        title: its title, maybe empty.
        text: its text.
    """

    title: str
    text: str


class SearchError(Exception):
    """A search that failed; the agent is told.

    Attributes:
        kind: ``"timeout"``, ``"unavailable"`` or ``"bad_response"``.
    """

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


def document_of(row: Any) -> Document:
    """Return the document that a row of a corpus, or an entry of a server's answer, describes.

    Understood are ``{"title": ..., "text": ...}``, and ``{"contents": ...}`` with the title, maybe
    in quotes, on the first line, as the corpora of Search-R1 have it.

    Raises:
        ValueError: it is neither.

    >>> document_of({"id": "7", "contents": '"Osk"\\nA river.'})
    Document(title='Osk', text='A river.')
    """
    if isinstance(row, Mapping):
        if isinstance(row.get("text"), str):
            return Document(str(row.get("title") or ""), row["text"])
        if isinstance(row.get("contents"), str):
            title, line_end, text = row["contents"].partition("\n")
            if not line_end:
                return Document("", title)
            return Document(title.strip().strip('"'), text)
    raise ValueError("a document needs 'text' and 'title', or 'contents'")


def format_documents(documents: Sequence[Document]) -> str:
    """Return documents as the agent reads them.

    >>> format_documents([Document("Osk", "A river."), Document("", "A town.")])
    '[1] Osk: A river.\\n[2] A town.'
    """
    return "\n".join(
        f"[{number}] {f'{title}: ' if title else ''}{text}"
        for number, (title, text) in enumerate(documents, start=1)
    )


def corpus_path(corpus: str) -> Path:
    """Return the file of a corpus: a path ending in ``.jsonl``, or the name of a shipped one.

    Raises:
        DataError: there is no such file.
        UnknownNameError: no corpus of this name is shipped.
    """
    if not corpus.endswith(".jsonl"):
        known = sorted(path.stem for path in CORPORA.glob("*.jsonl"))
        if corpus not in known:
            listing = f"There are {', '.join(known)}; or give the path of a .jsonl file."
            raise unknown("corpus", corpus, known, listing)
        return CORPORA / f"{corpus}.jsonl"
    path = Path(corpus).expanduser().resolve()
    if not path.is_file():
        raise DataError(f"There is no corpus {corpus!r}: give the path of a .jsonl file.")
    return path


def read_corpus(path: Path) -> list[Document]:
    """Read a corpus, one JSON object a line.

    Raises:
        DataError: a line is not a document.
    """
    documents = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    documents.append(document_of(json.loads(line)))
                except ValueError as error:
                    raise DataError(f"{path}, line {number}: {error}.") from None
    if not documents:
        raise DataError(f"{path} has no documents.")
    return documents
