"""Data sets of the Hub: it is asked once per process; all of a run load one commit of them."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import datasets
import pytest
from huggingface_hub import constants

import gem_core
from gem_core.envs import _data_source, _hub
from gem_core.envs._data_source import SampleDataWarning, strict_data
from gem_core.envs._hub import DataUnavailableError, MissingDataPackageError
from gem_core.errors import DataError, MissingDependencyError

QUESTIONS = "qa:HotpotQA"
NAME = "axon-rl/HotpotQA"
OLD, NEW = "1" * 40, "2" * 40


def test_no_loading_script_is_run(tmp_path: Path) -> None:
    folder = tmp_path / "evil"
    folder.mkdir()
    marker = tmp_path / "marker"
    (folder / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    for dataset in (folder, folder / "evil.py"):
        with pytest.raises(DataError):
            gem_core.make(QUESTIONS, dataset=str(dataset), strict=True)
    assert not marker.exists()


def rows_of(commit: str | None) -> datasets.DatasetDict:
    """One split as ``datasets`` returns it; the answers tell the commit."""
    made = datasets.Dataset.from_list(
        [{"problem": f"What is {n}?", "answer": str(commit)} for n in range(9)]
    )
    if commit is not None:
        name = f"hf://datasets/{NAME}@{commit}/data/train.parquet"
        made.info.download_checksums = {name: {"num_bytes": 1, "checksum": None}}
    return datasets.DatasetDict({"train": made})


class Hub:
    """Stands in for the Hub and its cache: ``newest`` is what ``main`` means, or what is cached."""

    def __init__(self) -> None:
        self.newest: str | None = NEW
        self.answers = True
        self.asked: list[str] = []
        self.loaded: list[str | None] = []

    def ask(self, address: str) -> str | None:
        self.asked.append(address)
        return None if self.answers else "ConnectError: no route"

    def load(self, dataset: str, subset: str | None, *, revision: str | None) -> Any:
        self.loaded.append(revision)
        offline = any(getattr(datasets.config, name, False) for name in _hub._SWITCHES)
        assert offline is not self.answers  # datasets is told not to retry
        if self.newest is None:
            raise ConnectionError("no such thing in the cache")
        pinned = revision is not None and _hub.is_commit(revision) and not offline
        return rows_of(revision if pinned else self.newest)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A process that has loaded and asked nothing yet."""
    made = Hub()
    monkeypatch.setattr(_data_source, "_tables", {})
    monkeypatch.setattr(_data_source, "_absent", {})
    monkeypatch.setattr(_hub, "_silence", {})
    monkeypatch.setattr(_hub, "_ask", made.ask)
    for module in (constants, datasets.config):
        for name in _hub._SWITCHES:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, False)
    monkeypatch.setattr(datasets, "load_dataset", made.load)
    return made


def name_in(module: Any) -> str:
    """The switch for offline mode that a module has; old versions of ``datasets`` have another."""
    return next(name for name in _hub._SWITCHES if hasattr(module, name))


def commit_of(env: gem_core.Env) -> str:
    assert env.spec is not None and env.spec.data_revision is not None
    return env.spec.data_revision.removeprefix(f"{NAME}@")


def test_it_is_asked_once_by_all_environments_of_a_process(hub: Hub) -> None:
    hub.answers = False
    hub.newest = None
    for _ in range(3):
        for env_id in (QUESTIONS, "qa:NaturalQuestions", "math:GSM8K"):
            with pytest.raises(DataUnavailableError, match="no route"):
                gem_core.make(env_id, strict=True)
    assert len(hub.asked) == 1
    with pytest.warns(SampleDataWarning):
        assert gem_core.make(QUESTIONS).is_sample
    assert len(hub.asked) == 1


def test_an_answer_is_asked_for_once_too(hub: Hub) -> None:
    for env_id in (QUESTIONS, "qa:NaturalQuestions"):
        assert commit_of(gem_core.make(env_id, strict=True)).endswith(NEW)
    assert len(hub.asked) == 1 and hub.loaded == [None, None]


@pytest.mark.parametrize("module", [constants, datasets.config])
def test_offline_mode_is_honoured_without_asking(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    hub.answers = False  # else the stand-in wants to be asked
    monkeypatch.setattr(module, name_in(module), True)
    assert commit_of(gem_core.make(QUESTIONS)) == NEW  # from the cache
    assert hub.asked == []
    hub.newest = None
    with pytest.raises(DataUnavailableError, match=f"{name_in(module)} is set"):
        gem_core.make("qa:NaturalQuestions", strict=True)


def test_the_setting_of_the_package_is_restored(hub: Hub) -> None:
    hub.answers = False
    gem_core.make(QUESTIONS)
    assert getattr(datasets.config, name_in(datasets.config)) is False


def test_a_process_without_a_network_decides_in_seconds() -> None:
    """``datasets`` alone retries for about 25 s per data set."""
    program = (
        "import time, gem_core\n"
        "from gem_core.errors import DataError\n"
        "began = time.monotonic()\n"
        "for name in ('math:GSM8K', 'qa:HotpotQA', 'qa:NaturalQuestions'):\n"
        "    try:\n"
        "        gem_core.make(name, strict=True)\n"
        "    except DataError as error:\n"
        "        assert 'cannot be reached' in str(error), error\n"
        "    else:\n"
        "        raise SystemExit('data from nowhere')\n"
        "print(time.monotonic() - began)\n"
    )
    with socket.socket() as closed:  # a port that nobody listens to
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        environment = {**os.environ, "HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0"}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 20  # almost all of it is the import of datasets


@pytest.fixture
def silent_server() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_no_answer_is_waited_for_a_limited_time(
    silent_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(_hub, "ANSWER_S", 0.5)
    began = time.monotonic()
    assert _hub._ask(silent_server) is not None
    assert time.monotonic() - began < 5


def test_any_answer_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # it answers 501
    thread = threading.Thread(target=server.handle_request, daemon=True)
    thread.start()
    try:
        assert _hub._ask(f"http://127.0.0.1:{server.server_port}") is None
    finally:
        thread.join()
        server.server_close()


def test_nothing_is_replaced_where_data_are_strict(hub: Hub) -> None:
    hub.answers = False
    hub.newest = None
    with (
        strict_data(),
        pytest.raises(DataUnavailableError, match="load_dataset"),
    ):
        gem_core.make(QUESTIONS)
    with strict_data(), pytest.raises(DataError):
        gem_core.make(QUESTIONS, strict=False)
    with strict_data():
        assert gem_core.make(QUESTIONS, dataset="sample").is_sample
    with pytest.warns(SampleDataWarning):  # and outside as before
        gem_core.make(QUESTIONS)
    with strict_data(), pytest.raises(DataError):  # also after it was replaced outside
        gem_core.make(QUESTIONS)


def test_the_resolved_commit_is_recorded_and_loaded_again(hub: Hub) -> None:
    assert commit_of(gem_core.make(QUESTIONS)) == NEW
    with strict_data({NAME: OLD}):
        assert commit_of(gem_core.make(QUESTIONS)) == OLD
        assert commit_of(gem_core.make(QUESTIONS, revision="main")) == OLD  # main has moved on
        assert commit_of(gem_core.make(QUESTIONS, revision=NEW)) == NEW  # the recipe's own commit
    assert hub.loaded == [None, OLD]  # NEW is in memory since the first


def test_the_commit_that_was_asked_for_is_loaded_and_no_other(hub: Hub) -> None:
    assert commit_of(gem_core.make(QUESTIONS, revision=OLD)) == OLD
    hub.answers = False  # from here on only the cache, which has the newer one
    _hub._silence.clear()
    _data_source._tables.clear()
    with pytest.raises(DataUnavailableError, match=f"of the commit {NEW}, not of .*{OLD}"):
        gem_core.make(QUESTIONS, revision=OLD, strict=True)
    with pytest.raises(DataUnavailableError, match="revision='v1'"):
        gem_core.make(QUESTIONS, revision="v1", strict=True)
    assert commit_of(gem_core.make(QUESTIONS, revision=NEW, strict=True)) == NEW


def test_a_branch_is_never_recorded_as_if_it_identified_the_rows(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: rows_of(None))
    assert commit_of(gem_core.make(QUESTIONS, revision="main")).startswith("fingerprint-")


def test_a_copy_in_another_process_loads_the_same_commit(hub: Hub) -> None:
    env = gem_core.make(QUESTIONS)
    body = pickle.dumps(env)
    _data_source._tables.clear()
    hub.newest = OLD  # "main" means something else by now
    assert pickle.loads(body).data_revision == f"{NAME}@{NEW}"
    assert hub.loaded == [None, NEW]


def test_a_missing_package_is_an_error_of_both_kinds(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDataPackageError, match=r"pip install 'gem-core\[data\]'") as raised:
        gem_core.make(QUESTIONS, strict=True)
    assert isinstance(raised.value, DataError) and isinstance(raised.value, MissingDependencyError)
