"""The search tool: a local corpus, real HTTP servers that fail, and the web's engines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from retrieval_server import RetrievalServer, serving

import gem_core
from gem_core.errors import DataError, GemError, UnknownNameError
from gem_core.tools import Call, ToolEnv, ToolResult
from gem_core.tools.search import SearchTool


@pytest.fixture
def server() -> Iterator[RetrievalServer]:
    with serving() as running:
        yield running


def ask(tool: SearchTool, query: str, seconds: float = 60.0) -> ToolResult:
    return tool.run(Call("search", {"query": query}, 0, 0, "tag"), tool.start(), seconds)


def test_the_shipped_corpus_answers_the_shipped_questions() -> None:
    tool = SearchTool(topk=1)
    env = gem_core.make("qa:Auction")
    for seed in range(30):
        question, _ = env.reset(seed=seed)
        answer = env.unwrapped.peek().removeprefix("<answer>").removesuffix("</answer>")
        assert answer not in question
        assert f"sold for {answer} crowns" in ask(tool, question.splitlines()[0]).text
    almanac = gem_core.make("qa:Almanac")
    found = 0
    for seed in range(60):
        question, _ = almanac.reset(seed=seed)
        answer = almanac.unwrapped.peek().removeprefix("<answer>").removesuffix("</answer>")
        assert answer not in question
        found += answer in ask(SearchTool(topk=3), question.splitlines()[0]).text
    assert 36 <= found < 60  # some need two searches


def test_the_ledger_takes_two_searches_and_no_two_questions_share_a_paragraph() -> None:
    tool = SearchTool(corpus="ledger", topk=1)
    assert not tool.slow
    env = gem_core.make("qa:Ledger")
    found = []
    for index in range(env.unwrapped.item_count):
        question = env.reset(options={"index": index})[0].splitlines()[0]
        amount = env.unwrapped.peek().removeprefix("<answer>").removesuffix("</answer>")
        entry = ask(tool, f"entry {question.split()[-1].rstrip('?')}").text
        account = entry.split()[-1].rstrip(".")
        paragraph = ask(tool, f"account {account}").text
        assert amount not in re.findall(r"\d+", question + entry)
        assert paragraph == f"[1] Account {account}: Account {account} holds {amount} crowns."
        found += [entry, paragraph]
    assert len(set(found)) == len(found) == 800


def test_ranks_results_and_what_is_not_found() -> None:
    tool = SearchTool(topk=2)
    result = ask(tool, "LOT 1049?")
    assert result.ok and result.text.startswith("[1] Lot 1049: ") and "\n[2] Lot " in result.text
    assert result.fields == {"found": 2, "cached": False}
    assert ask(tool, "lot 1049?").fields["cached"] is False
    assert ask(tool, "lot 1049?").fields["cached"] is True
    nothing = ask(tool, "zzz \ud800 qqq")
    assert nothing.ok and nothing.text == "[Nothing was found.]"


def test_a_corpus_of_ones_own(tmp_path: Path) -> None:
    rows = [
        {"id": "1", "contents": '"Osk"\nA river of Lint.'},
        {"title": "Mirrel", "text": "Salt."},
    ]
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    tool = SearchTool(corpus=str(path))
    assert ask(tool, "river").text == "[1] Osk: A river of Lint."
    assert tool.slow and not SearchTool().slow
    revision = tool.revision
    path.write_text(json.dumps({"title": "Osk", "text": "A brook, no more."}))
    changed = SearchTool(corpus=str(path))
    assert changed.revision != revision and "brook" in ask(changed, "brook").text
    path.write_text('{"name": "Osk"}')
    with pytest.raises(DataError, match="line 1: a document needs 'text'"):
        SearchTool(corpus=str(path)).start()
    with pytest.raises(DataError, match="There is no corpus"):
        SearchTool(corpus="missing.jsonl")
    with pytest.raises(UnknownNameError, match="Did you mean 'almanac'"):
        SearchTool(corpus="almanach")


def test_the_request_of_a_retrieval_server(server: RetrievalServer) -> None:
    tool = SearchTool(url=server.url, topk=2)
    result = ask(tool, "moon")
    assert result.text == "[1] About moon: Text 0.\n[2] About moon: Text 1."
    assert server.bodies == [{"queries": ["moon"], "topk": 2, "return_scores": True}]
    assert ask(tool, "moon").fields["cached"] and len(server.bodies) == 1
    assert tool.describe() == {"searches": "server", "url": server.url}
    forgetful = SearchTool(url=server.url, topk=2, remembered=0)
    assert not any(ask(forgetful, "sun").fields["cached"] for _ in range(2))


def test_queries_that_wait_share_requests(server: RetrievalServer) -> None:
    server.pause = 0.1
    tool = SearchTool(url=server.url, topk=1)
    tool.start()
    with ThreadPoolExecutor(40) as threads:
        results = list(threads.map(lambda n: ask(tool, f"query {n}"), range(40)))
    assert [r.text for r in results] == [f"[1] About query {n}: Text 0." for n in range(40)]
    assert len(server.bodies) <= 15 and max(len(body["queries"]) for body in server.bodies) >= 8


@pytest.mark.parametrize("fault", ["500", "garbage", "hang up"])
def test_a_request_that_fails_is_tried_again(server: RetrievalServer, fault: str) -> None:
    server.faults = [fault, fault]
    assert ask(SearchTool(url=server.url, topk=1), f"after {fault}").ok
    assert len(server.bodies) == 3
    server.faults = [fault] * 3
    result = ask(SearchTool(url=server.url, topk=1), f"in vain {fault}")
    assert result.error == ("bad_response" if fault == "garbage" else "unavailable")
    assert result.text.startswith("[The search failed: the server")


@pytest.mark.parametrize(("fault", "error"), [("404", "unavailable"), ("short", "bad_response")])
def test_a_request_that_is_refused_is_not_repeated(
    server: RetrievalServer, fault: str, error: str
) -> None:
    server.faults = [fault]
    assert ask(SearchTool(url=server.url, topk=1), fault).error == error
    assert len(server.bodies) == 1


@pytest.mark.parametrize("fault", ["stall", "drip"])
def test_a_server_that_stalls_meets_the_deadline(server: RetrievalServer, fault: str) -> None:
    server.faults = [fault]
    began = time.monotonic()
    result = ask(SearchTool(url=server.url, topk=1, seconds=0.4), fault)
    assert result.error == "timeout" and 0.3 < time.monotonic() - began < 25  # not 30 s
    assert ask(SearchTool(url=server.url, topk=1, seconds=20), "afterwards").ok


def test_no_server_and_the_budget_of_the_episode() -> None:
    with serving() as running:
        url = running.url
    result = ask(SearchTool(url=url, retries=1), "moon")
    assert result.error == "unavailable" and "cannot be reached" in result.text
    env = ToolEnv(gem_core.make("qa:Auction"), [SearchTool(url=url, retries=0)])
    env.reset(seed=0)
    obs, _, terminated, _, info = env.step("<search>lot</search>")
    assert "cannot be reached" in obs and not terminated and info["tool_failures"] == 1


def test_senders_end_when_nothing_waits(server: RetrievalServer) -> None:
    ask(SearchTool(url=server.url, topk=1), "the last one")
    deadline = time.monotonic() + 10
    while any(t.name == "gem-search" for t in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("engine", "keys"),
    [
        ("serpapi", {"SERPAPI_API_KEY": "k1"}),
        ("google", {"GOOGLE_API_KEY": "k1", "GOOGLE_CSE_ID": "k2"}),
    ],
)
def test_engines_of_the_web(
    server: RetrievalServer, monkeypatch: pytest.MonkeyPatch, engine: str, keys: dict[str, str]
) -> None:
    options: dict[str, Any] = {"engine": engine, "url": server.url, "topk": 2}
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in keys:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(GemError, match=f"needs the environment variables {next(iter(keys))}"):
        SearchTool(**options)
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    tool = SearchTool(**options)
    assert ask(tool, "the river").text == "[1] Osk: A river.\n[2] Osk: A river."
    (sent,) = server.bodies
    assert sent["q"] == ["the river"] and sent["num"] == ["2"]
    assert {text for texts in sent.values() for text in texts} >= set(keys.values())
    assert not any(key in json.dumps(tool.describe()) for key in keys.values())
    server.faults = ["500", "garbage", "500"]
    assert ask(tool, "again").error == "unavailable"
    server.faults = ["drip"]
    assert ask(tool, "slowly", seconds=0.4).error == "timeout"  # it drips without end


def test_contradictory_options_are_refused() -> None:
    for options in ({"corpus": "almanac", "url": "http://x"}, {"topk": 0}, {"seconds": 0.0}):
        with pytest.raises(ValueError, match=r"give one of them|must be positive"):
            SearchTool(**options)  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="engine"):
        SearchTool(engine="gogle")


def test_a_search_leaves_the_gpu_to_the_training(tmp_path: Path) -> None:
    """bm25s imports a JAX that is installed, which takes most of a GPU's memory at once."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("", "utf-8")
    (tmp_path / "jax" / "lax.py").write_text("def top_k(*_): print('JAX was called')\n", "utf-8")
    searches = (
        "import sys; from gem_core.tools.search.local import local_search;"
        "found = local_search('ledger').search('a the of 1 lot account', 1, 1.0);"
        "print(len(found), 'jax' in sys.modules);"
    )
    for program, printed in (
        (f"{searches} import jax.lax", ["1 False"]),
        (f"import jax.lax; {searches}", ["JAX was called", "1 True"]),  # the program's own
    ):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert done.stdout.split("\n")[:-1] == printed, done.stderr
