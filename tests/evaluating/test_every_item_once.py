"""Every item once, whatever happens to the server or to the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from gem_core.env.registration import register
from gem_core.episodes.data import StopReason
from gem_core.errors import GemError, RunError
from gem_core.evaluation.contenders import EndpointModel, ScriptedPlayer
from gem_core.evaluation.folder import ITEMS, EvalDir
from gem_core.evaluation.plan import read_subject
from gem_core.policies.endpoint.policy import EndpointConfig
from gem_core.policies.failures import KINDS, EndpointError

from .common import GAME, HARD, endpoint, evaluated, indices
from .server import BAD, GOOD, Server, chat, http, unreliable

NONE = "None of the {} items has a result"


def test_every_item_has_a_result_or_a_typed_error(tmp_path):
    with Server(unreliable(1)) as server:
        result, folder = evaluated(tmp_path / "e", contender=endpoint(server), tasks=60)
        served = len(server.bodies)
    rows = folder.rows()
    assert sorted(indices(folder)) == list(range(60))
    kinds = Counter(row.error.kind if row.error else "result" for row in rows)
    assert kinds.keys() <= {"result", *KINDS} and kinds["result"] and len(kinds) >= 4
    assert result["errors"] == {kind: n for kind, n in kinds.items() if kind != "result"}
    assert result["metrics"]["episodes"] == kinds["result"]
    # A request that the client gave up before the server had read it was made, but not served.
    assert result["usage"]["requests"] >= served > result["usage"]["retries"] > 0


def test_three_kills_lose_and_repeat_nothing(tmp_path):
    """The command, ended by SIGKILL in the middle, three times."""
    count = 150
    out = tmp_path / "e"
    with Server(unreliable(2)) as server:
        command = [sys.executable, "-m", "gem_core.cli", "eval", GAME, "--tasks", str(count)]
        command += ["--base-url", server.url, "--model", "m", "--attempts", "2", "--timeout", "0.4"]
        command += ["--concurrency", "24", "--out", str(out), "--resume"]
        before = b""
        for at_least in (10, 45, 80):
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            while len(now := _content(out / ITEMS).splitlines()) < at_least:
                assert process.poll() is None, "it ended by itself"
                time.sleep(0.01)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert len(now) < count
            content = _content(out / ITEMS)
            assert content.startswith(before)
            before = content[: content.rfind(b"\n") + 1]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120)
    folder = EvalDir(out)
    assert _content(out / ITEMS).startswith(before)
    assert sorted(indices(folder)) == list(range(count))
    assert sorted(e.index for _, e in folder.run.episodes()) == list(range(count))
    result = json.loads(done.stdout)
    errors = sum(result["errors"].values())
    assert result["items"] == count == errors + result["metrics"]["episodes"]
    assert done.returncode == (1 if errors else 0)


def _content(path):
    return path.read_bytes() if path.exists() else b""


def test_a_line_that_was_cut_is_played_again(tmp_path):
    out = tmp_path / "e"
    first, folder = evaluated(out)
    path = out / ITEMS
    path.write_bytes(path.read_bytes()[:-20])
    assert len(folder.rows()) == 4
    again, _ = evaluated(out, if_exists="resume")
    assert sorted(indices(folder)) == list(range(5))
    assert again["metrics"]["success/mean"] == first["metrics"]["success/mean"]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b'{"item"\n', *lines[1:]]))
    with pytest.raises(RunError, match="is not JSON"):
        folder.rows()


def test_a_second_process_is_kept_out(tmp_path):
    out = tmp_path / "e"
    evaluated(out)
    subject = read_subject([GAME])
    plan = EvalDir(out).plan
    with (
        EvalDir(out).open(subject.recipe, plan, "resume"),
        pytest.raises(RunError, match="in use by process"),
    ):
        evaluated(out, if_exists="resume")


def test_another_evaluation_is_not_continued(tmp_path):
    out = tmp_path / "e"
    evaluated(out)
    for options in ({"tasks": 6}, {"samples": 2}, {"contender": ScriptedPlayer("expert")}):
        with pytest.raises(RunError, match=r"is another evaluation \(it differs in"):
            evaluated(out, if_exists="resume", **options)
    with pytest.raises(RunError, match="already holds a run"):
        evaluated(out)
    result, _ = evaluated(out, tasks=2, if_exists="overwrite")
    assert result["items"] == 2


def test_items_with_errors_are_played_again_when_asked(tmp_path):
    out = tmp_path / "e"
    with Server(lambda n, body: BAD["refused"]) as server:
        with pytest.raises(GemError, match=NONE.format(5)):
            evaluated(out, contender=endpoint(server))
        port = server.port
    assert {row.error.kind for row in EvalDir(out).rows()} == {"refused"}
    with Server(lambda n, body: [GOOD]) as server:
        plan = json.loads((out / "eval.json").read_text().replace(str(port), str(server.port)))
        (out / "eval.json").write_text(json.dumps(plan))
        with pytest.raises(GemError, match=NONE.format(5)):
            evaluated(out, contender=endpoint(server), if_exists="resume")
        assert not server.bodies and not (out / "result.json").exists()
        result, folder = evaluated(
            out, contender=endpoint(server), if_exists="resume", retry_errors=True
        )
    assert result["errors"] == {} and result["metrics"]["episodes"] == 5
    assert [row.item for row in folder.rows()] == list(range(5))


def test_a_wrong_key_stops_at_once_and_can_be_resumed(tmp_path):
    out = tmp_path / "e"
    answers = [[GOOD]] * 8 + [[http(401, {"error": "key"})]] * 1000
    with Server(lambda n, body: answers[n]) as server:
        with pytest.raises(EndpointError, match="401"):
            evaluated(out, contender=endpoint(server, concurrency=2), tasks=40)
        assert 0 < len(EvalDir(out).rows()) < 40
        answers[:] = [[GOOD]] * 1000
        evaluated(out, contender=endpoint(server), tasks=40, if_exists="resume")
    assert sorted(indices(EvalDir(out))) == list(range(40))


def test_seconds_and_tokens_of_an_item_are_limited(tmp_path):
    with Server(lambda n, body: [2.0, GOOD]) as server:
        slow, folder = evaluated(
            tmp_path / "slow",
            contender=EndpointModel(EndpointConfig(base_url=server.url, model="m")),
            overrides=["limits.episode_deadline_s=0.1"],
        )
    assert {row.stop for row in folder.rows()} == {StopReason.DEADLINE.value}
    assert slow["errors"] == {} and slow["metrics"]["success/mean"] == 0
    with Server(lambda n, body: [http(200, chat("\\boxed{51}"))]) as server:
        _, folder = evaluated(tmp_path / "long", (HARD,), endpoint(server, item_tokens=30), tasks=3)
    stops = {(row.stop, row.turns, row.usage.prompt_tokens) for row in folder.rows()}
    assert stops <= {("truncated_tokens", 3, 30), ("terminated", 1, 10), ("terminated", 2, 20)}
    assert ("truncated_tokens", 3, 30) in stops


def test_a_broken_environment_is_an_error_of_its_items(tmp_path):
    register("test:FailsAtSix-v0", "gem_parity.frozen:_Scripted", turns=1, dense=0, raises=1)
    with pytest.raises(GemError, match=f"{NONE.format(3)}.*scripted fault"):
        evaluated(tmp_path / "e", ("test:FailsAtSix-v0",), contender=_Speaker(), tasks=3)
    assert {row.error.kind for row in EvalDir(tmp_path / "e").rows()} == {"env_error"}


class _Speaker(ScriptedPlayer):
    """Answers the same at each turn."""

    def __init__(self):
        super().__init__("random")

    def play(self, recipe, items, record):
        with Server(lambda n, body: [GOOD]) as server:
            endpoint(server).play(recipe, items, record)


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_prompt_of_text_has_the_end_of_each_action_once(tmp_path, reason):
    answer = http(200, {"choices": [{"text": "\\boxed{11}", "finish_reason": reason}]})
    with Server(lambda n, body: [answer]) as server:
        evaluated(
            tmp_path / "e",
            (HARD,),
            endpoint(server, api="completions"),
            tasks=1,
            overrides=["context.template=qwen3_game", "limits.cut_action=pass"],
        )
    first, second = (body["prompt"] for body in server.bodies[:2])
    assert second.startswith(first + "\\boxed{11}<|im_end|>\n<|im_start|>user\nObservation: ")
    assert second.endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert server.bodies[0]["stop"] == ["<|im_end|>"]
