"""What a run asks its servers before it begins: the same environments, data, access."""

from __future__ import annotations

import logging
import sys

import pytest
from playing import GUESS, Actions, played, recipe_of
from served import TOKEN, Relay, Unavailable

from gem_core.episodes.data import StopReason
from gem_core.episodes.rollout import play_batch
from gem_core.errors import DataError, GemError, MissingDependencyError, RecipeError
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.environments import pools as run_pools
from gem_core.runs.environments.data import make_for_run
from gem_core.runs.environments.description import describe_environments, in_run
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.runs.task_overlap import task_overlap
from gem_core.runs.tasks import MachineFactory

SECRET = "a-secret-token"


def test_a_run_records_what_the_server_plays(serve, tmp_path):
    data = tmp_path / "rows.jsonl"
    data.write_text('{"problem": "1 + 1?", "answer": "2"}\n')
    table = {"id": "qa:HotpotQA", "kwargs": {"dataset": str(data), "part": "all"}}
    allowed = [("qa:HotpotQA", {"dataset": str(data)})]
    server = serve(allowed=allowed)
    relay = Relay(server.port)
    recipe = recipe_of(relay.url, table, eval={"episodes": 0})
    rows = describe_environments(recipe)
    assert rows == describe_environments(recipe_of(None, table, eval={"episodes": 0}))
    assert rows[0]["items"] == 1 and not rows[0]["sample"] and rows[0]["data_revision"]
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    with in_run(run, rows):
        env = MachineFactory(run.recipe).train(0).env
        env.reset(seed=0)
        assert env.spec.fingerprint() == rows[0]["fingerprint"]
        env.close()
        make_for_run(recipe.env[0], "env.0").close()  # what is made here is compared with it
        server.wait_for("sessions", 0)
        server.kill()
        data.write_text('{"problem": "1 + 2?", "answer": "3"}\n')
        relay.port = serve(allowed=allowed).port  # another server at the same address
        (episode,) = play_batch([MachineFactory(run.recipe).train(0)], Actions())
        assert episode.stop_reason is StopReason.ENV_ERROR
        assert "DataError: qa:HotpotQA: " in episode.error
    with pytest.raises(DataError, match="put the same data in place, or start a new run"):
        describe_environments(recipe, run)
    relay.close()


def test_a_server_with_another_environment_is_refused(serve):
    server = serve(turns=7)
    with pytest.raises(DataError, match="another environment under this id"):
        describe_environments(recipe_of(server.url))
    (episode,) = played(play_batch, recipe_of(server.url), 1)
    assert "another environment under this id" in episode.error
    server.wait_for("sessions", 0)


def test_a_sample_that_nobody_asked_for_is_refused(server):
    """The server has no connection to the Hub, so it falls back to the sample."""
    with pytest.raises(DataError, match="only the small built-in sample"):
        describe_environments(recipe_of(server.url, {"id": "math:GSM8K"}))
    sample = {"id": "math:GSM8K", "kwargs": {"dataset": "sample"}}
    assert describe_environments(recipe_of(server.url, sample))[0]["sample"]


def test_servers_with_different_data_are_refused(serve, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.jsonl").write_text(f'{{"problem": "{name}?", "answer": "2"}}\n')
    table = {"id": "qa:HotpotQA", "kwargs": {"dataset": "rows.jsonl", "part": "all"}}
    allowed = [("qa:HotpotQA", table["kwargs"])]
    one, two = (serve(folder=tmp_path / name, allowed=allowed) for name in ("one", "two"))
    assert describe_environments(recipe_of([one.url], table))[0]["items"] == 1
    with pytest.raises(DataError, match=r"the servers of workers.address differ: .* same data"):
        describe_environments(recipe_of([one.url, two.url], table))


@pytest.mark.parametrize("given", [None, "wrong"])
def test_a_wrong_token_is_refused_before_the_run(serve, monkeypatch, given):
    server = serve(token=SECRET)
    if given is not None:
        monkeypatch.setenv(TOKEN, given)
    with pytest.raises(RecipeError, match=f"401.*is {TOKEN} set to its token"):
        describe_environments(recipe_of(server.url))


def test_the_token_is_in_no_message_log_or_record(serve, monkeypatch, caplog, tmp_path):
    server = serve(token=SECRET)
    monkeypatch.setenv(TOKEN, SECRET)
    caplog.set_level(logging.DEBUG)
    recipe = recipe_of(server.url)
    with in_run(RunDir.create(tmp_path / "run", recipe, "trl")):
        (episode,) = played(play_batch, recipe, 1)
    assert episode.stop_reason is StopReason.TERMINATED
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert written and not any(SECRET in text for text in [*written, caplog.text])


def test_what_cannot_be_served_is_refused_before_the_run(serve, impatient):
    server = serve(environments=["game:Guess*"], parameters=False)
    with pytest.raises(RecipeError, match="no environment 'faulty:Env-v0' here; --environments"):
        describe_environments(recipe_of(server.url))
    table = {"id": GUESS, "kwargs": {"max_turns": 3}}
    with pytest.raises(RecipeError, match="start it with --parameters"):
        describe_environments(recipe_of(server.url, table))
    declared_only = serve(environments=["qa:*"])
    table = {"id": "qa:HotpotQA", "kwargs": {"dataset": "rows.jsonl"}}
    with pytest.raises(RecipeError, match=r"dataset must be 'sample', .*--recipe"):
        describe_environments(recipe_of(declared_only.url, table))
    server.kill()
    with pytest.raises(RecipeError, match=r"No server at .*\. Start it \(gem-core serve\)"):
        describe_environments(recipe_of(server.url, {"id": GUESS}))
    with pytest.raises(RecipeError, match="No server at"):
        describe_environments(recipe_of([serve().url, server.url], {"id": GUESS}))


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "websockets.asyncio.client", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'gem-core\[server\]'"):
        describe_environments(recipe_of("http://127.0.0.1:9"))


def test_what_cannot_be_made_here_is_played_and_not_compared(server, tmp_path):
    """The tasks of evaluation and training are counted here where the environment is installed."""
    data = tmp_path / "rows.jsonl"
    data.write_text('{"problem": "1 + 1?", "answer": "2"}\n')
    table = {"id": "qa:HotpotQA", "kwargs": {"dataset": str(data), "part": "all"}}
    recipe = recipe_of(server.url, table, eval={"episodes": 2})
    assert task_overlap(recipe)["distinct"] == 1
    there = {"id": "math:GSM8K", "kwargs": {"dataset": str(tmp_path / "there.jsonl")}}
    assert task_overlap(recipe_of(server.url, there)) is None
    with pytest.raises(DataError):
        task_overlap(recipe_of(None, there))


def test_a_proxy_without_its_server_is_told(impatient):
    proxy = Unavailable()
    with pytest.raises(RecipeError, match="503"):
        describe_environments(recipe_of(proxy.url))
    (episode,) = played(play_batch, recipe_of(proxy.url), 1)
    assert episode.stop_reason is StopReason.ENV_ERROR and "503" in episode.error
    run_pools.close_run_pools(None)
    proxy.close()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"address": None}, r"workers.address: .* start one \(gem-core serve\) and set"),
        ({"address": []}, "workers.address: .* needs the address of a server"),
        ({"address": "127.0.0.1:8000"}, "workers.address: .* is no address"),
        ({"address": "http://127.0.0.1:x"}, "workers.address: .* is no address"),
        ({"address": "http://me:secret@127.0.0.1:80"}, "workers.address: .* GEM_CORE_SERVER_TOKEN"),
        ({"number": 2}, "workers.number: a server has no worker processes of this run; leave it"),
        ({"max_restarts": 5}, "workers.max_restarts: a run does not restart servers; leave it out"),
        ({"backend": "ray", "address": ["a:1", "b:1"]}, "workers.address: several .* name one"),
    ],
)
def test_impossible_combinations_are_refused_at_load(table, message):
    workers = {"backend": "server", "address": "http://127.0.0.1:8000", **table}
    with pytest.raises(RecipeError, match=message) as caught:
        recipe_from_dict({"name": "w", "env": [{"id": GUESS}], "workers": workers})
    assert "secret" not in str(caught.value)


def test_tools_are_refused_at_load():
    tools = {"id": "qa:Auction", "tools": ["search"]}
    with pytest.raises(RecipeError, match=r"env.0.tools: .* workers.backend = \"process\""):
        recipe_of("http://127.0.0.1:8000", tools)
    with pytest.raises(RecipeError, match=r"eval.env.0.tools: "):
        recipe_of("http://127.0.0.1:8000", eval={"env": [tools]})


def test_a_token_does_not_leave_the_machine_unencrypted(monkeypatch):
    monkeypatch.setenv(TOKEN, SECRET)
    with pytest.raises(GemError, match="unencrypted"):
        describe_environments(recipe_of("http://192.0.2.1:8000"))
