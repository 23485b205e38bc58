"""Data sets of the Hugging Face Hub: whether it answers, what was loaded, and from which commit.

The package ``datasets`` retries an unreachable Hub for about 25 seconds per data set. Here one
question per process decides whether it answers; where it does not, only the cache is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Thread
from typing import Any

from gem_core.errors import DataError, MissingDependencyError

ANSWER_S = 5.0
"""Seconds that the Hub has for its first answer."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_IN_NAME = re.compile(r"[@/\\]([0-9a-f]{40})[/\\]")
_SWITCHES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
"""Settings of ``datasets.config`` that make it read its cache only, by version of the package."""
_silence: dict[str, str | None] = {}
"""Address of the Hub -> why it does not answer, ``None`` if it does."""


class DataUnavailableError(DataError):
    """Data that exist, as far as is known, but cannot be had on this machine now."""


class MissingDataPackageError(DataUnavailableError, MissingDependencyError):
    """The package that reads the data is not installed."""


def is_commit(revision: str | None) -> bool:
    """Return whether a revision is a full commit, which always means the same data."""
    return revision is not None and _COMMIT.fullmatch(revision) is not None


def read(
    dataset: str, subset: str | None, split: str | None, revision: str | None
) -> tuple[Any, str | None]:
    """Load from the Hub, or from its cache when offline; ``HF_*`` variables are honoured.

    Returns:
        The rows and their commit; ``None`` where it cannot be known.

    Raises:
        DataError: there is no such data set, or no such split in it.
        DataUnavailableError: the Hub cannot be reached, and its cache does not have the data in
            this revision.
        MissingDataPackageError: the package ``datasets`` is missing.
    """
    package = _import(dataset)
    silence = _why_silent(package)
    remedy = _remedy(dataset, subset, revision)
    try:
        with _cache_only(package) if silence else nullcontext():
            loaded = package.load_dataset(dataset, subset, revision=revision)
    except (ConnectionError, TimeoutError) as error:
        reason = silence or f"{error!s:.120}"
        _silence.setdefault(_address(package), reason)
        raise DataUnavailableError(
            f"It is not in the cache and the Hub cannot be reached ({reason}). {remedy}"
        ) from error
    except (FileNotFoundError, ValueError, RuntimeError) as error:
        if silence:
            raise DataUnavailableError(f"{error!s:.300} ({silence}). {remedy}") from error
        raise DataError(f"The Hub has no such data: {error}") from error
    rows = _one_split(loaded, dataset, split)
    commit = _commit(rows)
    if silence:
        _require_revision(revision, commit, remedy)
    elif is_commit(revision):
        commit = revision
    return rows, commit


def _import(dataset: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingDataPackageError(
            f"Reading {dataset!r} needs the package datasets: pip install 'gem-core[data]', "
            "or give the path of a .jsonl file as dataset=."
        ) from error
    return datasets


def _remedy(dataset: str, subset: str | None, revision: str | None) -> str:
    arguments = [repr(dataset)]
    if subset is not None:
        arguments.append(repr(subset))
    if revision is not None:
        arguments.append(f"revision={revision!r}")
    return (
        "Run once with a connection (and without HF_HUB_OFFLINE=1): python -c "
        f'"import datasets; datasets.load_dataset({", ".join(arguments)})"; or give the path of a '
        "local file as dataset=."
    )


def _why_silent(package: Any) -> str | None:
    """Return why the Hub cannot be asked, ``None`` if it answers; decided once per process."""
    from huggingface_hub import constants

    for name in _SWITCHES:
        if getattr(constants, name, False) or getattr(package.config, name, False):
            return f"{name} is set"
    address = _address(package)
    if address not in _silence:
        _silence[address] = _ask(address)
    return _silence[address]


def _address(package: Any) -> str:
    address: str = package.config.HF_ENDPOINT
    return address


def _ask(address: str) -> str | None:
    """Return why there is no answer from an address, ``None`` if there is one, of any kind."""
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    outcome: list[str | None] = [f"no answer from {address} within {ANSWER_S:.0f} s"]

    def ask() -> None:
        try:
            get_session().head(address, timeout=ANSWER_S)
        except Exception as error:  # of the HTTP library that this huggingface_hub uses
            outcome[0] = f"{type(error).__name__}: {error!s:.120}"
        else:
            outcome[0] = None

    # In a thread, because no time limit of a request covers the look-up of the name.
    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_S)
    return outcome[0]


@contextmanager
def _cache_only(package: Any) -> Iterator[None]:
    """Let ``datasets`` read its cache without asking the Hub first."""
    before = {n: getattr(package.config, n) for n in _SWITCHES if hasattr(package.config, n)}
    for name in before:
        setattr(package.config, name, True)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(package.config, name, value)


def _one_split(loaded: Any, dataset: str, split: str | None) -> Any:
    splits = list(loaded)
    if split is None and len(splits) == 1:
        return loaded[splits[0]]
    if split not in splits:
        raise DataError(
            f"{dataset!r} has the splits {', '.join(splits)}: give one of them as split= "
            f"(it is {split!r})."
        )
    return loaded[split]


def _commit(rows: Any) -> str | None:
    """Return the commit of the rows, from the names of downloaded or cached files."""
    names = [*(rows.info.download_checksums or {}), *(f["filename"] for f in rows.cache_files)]
    for name in names:
        commit = _IN_NAME.search(name)
        if commit is not None:
            return commit[1]
    return None


def _require_revision(revision: str | None, commit: str | None, remedy: str) -> None:
    """Check that the newest data in the cache, which is what is read, are those asked for.

    Raises:
        DataUnavailableError: they are others, or it cannot be known.
    """
    if revision in (None, "main") or revision == commit:
        return
    cached = f"the commit {commit}" if commit else "an unknown commit"
    raise DataUnavailableError(
        f"Without a connection the newest data in the cache are read, which are of {cached}, not "
        f"of the revision {revision!r}. {remedy}"
    )
