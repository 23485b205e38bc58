"""WikiGame on the sample, on a file, and on a server with the API of MediaWiki."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from urllib.parse import parse_qs, urlsplit

import pytest

import gem_core
from gem_core.envs.games.wiki_pages import FileWiki, MediaWiki, file_wiki

EASY = "game:WikiGame-v0-easy"


def reachable(wiki: FileWiki, title: str) -> set[str]:
    queue = [title]
    for at in queue:
        queue += [link for link in wiki.pages[at].links if link not in queue]
    return set(queue)


def test_every_article_of_the_sample_can_be_reached_from_every_other() -> None:
    wiki = file_wiki(None)
    assert len(wiki.titles) > 100
    backwards = {t: [p.title for p in wiki.pages.values() if t in p.links] for t in wiki.titles}
    assert reachable(wiki, "Water") == set(wiki.titles)
    queue = ["Water"]
    for at in queue:
        queue += [t for t in backwards[at] if t not in queue]
    assert set(queue) == set(wiki.titles)
    assert all("[" not in p.text and p.title not in p.links for p in wiki.pages.values())


def test_following_links_costs_and_the_target_pays() -> None:
    env = gem_core.make(EASY)
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step("\\boxed{Nowhere}")
    assert (reward, terminated, info["error"]) == (-0.2, False, "invalid_action")
    _, reward, terminated, _, info = env.step("no answer")
    assert (reward, terminated, info["error"]) == (-0.2, False, "invalid_format")
    link = env._page.links[0]
    obs, reward, terminated, _, info = env.step(f"\\boxed{{{link.lower()}}}")
    assert (reward, terminated) == (-0.05, False) and repr(link) in obs
    assert f"You are on {link!r}" in info["suffix"]
    before = next(p.title for p in env._wiki.pages.values() if env._target in p.links)
    state = env.get_state()
    state["fields"]["_title"] = before
    env.set_state(state)
    _, reward, terminated, _, info = env.step(f"\\boxed{{{env._target}}}")
    assert (reward, terminated, info["success"]) == (1.0, True, True)


def test_start_and_target_are_apart() -> None:
    env = gem_core.make(EASY)
    starts = set()
    for seed in range(200):
        rules, _ = env.reset(seed=seed)
        assert env._target not in (*env._page.links, env._title)
        assert repr(env._title) in rules and repr(env._target) in rules
        starts.add(env._title)
    assert len(starts) > 60


def test_articles_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "wiki.txt"
    file.write_text("A | To [[B]].\nB | To [[C|the third]].\nC | To [[A]] and [[C]].\n")
    env = gem_core.make(EASY, path=str(file))
    pairs = set()
    for seed in range(20):
        env.reset(seed=seed)
        pairs.add((env._title, env._target))
    assert pairs == {("A", "C"), ("B", "A"), ("C", "B")}
    assert file_wiki(str(file)).pages["B"].text == "To the third."
    file.write_text("A | To [[D]].\n")
    with pytest.raises(ValueError, match="'D', which is missing"):
        FileWiki(file)
    file.write_text("A\n")
    with pytest.raises(ValueError, match=r"wiki\.txt:1: write"):
        FileWiki(file)


class Handler(BaseHTTPRequestHandler):
    """Answers the two queries of the game from the sample, in the form of MediaWiki 1.43."""

    def do_GET(self) -> None:
        query = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
        wiki = file_wiki(None)
        if query.get("list") == "allpages":
            titles = [t for t in sorted(wiki.titles) if t >= query["apfrom"]][:1]
            body = {"query": {"allpages": [{"pageid": 1, "ns": 0, "title": t} for t in titles]}}
        elif query["titles"] in wiki.pages:
            page = wiki.pages[query["titles"]]
            links = [{"ns": 0, "title": link} for link in page.links]
            entry = {"title": page.title, "extract": page.text, "links": links}
            body = {"query": {"pages": {"1": entry}}}
        else:
            body = {"query": {"pages": {"-1": {"title": query["titles"], "missing": ""}}}}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}/w/api.php"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def test_articles_of_a_server(server: str) -> None:
    env = gem_core.make(EASY, url=server)
    assert env.slow and not gem_core.make(EASY).slow
    env.reset(seed=3)
    start, target = env._title, env._target
    env.reset(seed=3)
    assert (env._title, env._target) == (start, target)
    link = env._page.links[0]
    assert f"You are on {link!r}" in env.step(f"\\boxed{{{link}}}")[4]["suffix"]
    wiki = MediaWiki(server)
    assert wiki.page("Nowhere") is None
    assert len({wiki.draw(Random(seed)) for seed in range(10)}) > 3


def test_a_server_that_is_not_there_is_an_error() -> None:
    env = gem_core.make(EASY, url="http://127.0.0.1:9/api.php")
    with pytest.raises(OSError, match="refused"):
        env.reset(seed=0)


def test_parameters_are_checked() -> None:
    with pytest.raises(ValueError, match="path or url"):
        gem_core.make(EASY, path="x", url="y")
    with pytest.raises(ValueError, match="must be a number"):
        gem_core.make(EASY, max_turns=None)
