"""No key and no password is in a file of an evaluation, from the first write on."""

from __future__ import annotations

import json
import sys

import pytest

from gem_core.cli import main
from gem_core.evaluation.folder import EvalDir
from gem_core.runs.directory.files import read_object
from gem_core.runs.redaction import MARK, redact_command, redact_text
from gem_view.api import Viewer
from gem_view.export import collect

from .common import GAME
from .server import GOOD, Server, http

KEYS = ("wonderland-1", "opensesame-2", "looking-glass-3", "sk-abcdefgh12345678")
BODY = json.dumps(
    {"user_key": KEYS[0], "extra": {"headers": {"Authorization": f"Bearer {KEYS[1]}"}}, "top_k": 3}
)


def run(monkeypatch, *words):
    """Run the command as a program: the words are also the command line that is recorded."""
    monkeypatch.setattr(sys, "argv", ["gem-core", *words])
    return main(list(words))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def require_clean(folder):
    for name, data in files(folder).items():
        for key in KEYS:
            assert key.encode() not in data, (name, key)


def repeating(number, body):
    """A server whose refusals repeat what it got."""
    text = f"key {KEYS[2]} and {body['user_key']}, not {KEYS[3]}, at http://me:{KEYS[0]}@host/"
    return [http(400, {"error": {"message": text}})]


def evaluate(monkeypatch, server, out, *words):
    words = ("--tasks", "2", "--body", BODY, "--model", "m", "--attempts", "1", *words)
    return run(monkeypatch, "eval", GAME, "--base-url", server.url, "--out", str(out), *words)


def test_keys_are_in_no_file_and_in_no_message(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", KEYS[2])
    monkeypatch.setenv("GEM_CORE_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "out"
    with Server(repeating) as server:
        assert evaluate(monkeypatch, server, out, "--system", f"Use {KEYS[3]}.") == 2
    assert server.bodies[0]["user_key"] == KEYS[0]  # they are sent
    assert any(KEYS[2] in head for head in server.heads)
    require_clean(out)
    folder = EvalDir(out)
    assert folder.plan["model"]["body"] == {
        "user_key": MARK,
        "extra": {"headers": {"Authorization": MARK}},
        "top_k": 3,
    }
    assert MARK in folder.rows()[0].error.message
    shown = json.dumps(collect(Viewer([out]), 10)) + "".join(capsys.readouterr())
    assert not any(key in shown for key in KEYS)


def test_an_evaluation_is_resumed_with_another_key(monkeypatch, tmp_path):
    """A key is not part of what is evaluated: keys are changed while an evaluation stands."""
    out = tmp_path / "out"
    with Server(lambda number, body: [GOOD]) as server:
        assert evaluate(monkeypatch, server, out) == 0
        other = BODY.replace(KEYS[0], "another-key")
        words = ("--resume", "--body", other)
        assert evaluate(monkeypatch, server, out, *words) == 0
        changed = BODY.replace("3", "4")
        assert evaluate(monkeypatch, server, out, "--resume", "--body", changed) == 2


def test_an_evaluation_of_an_older_version_is_cleaned_when_it_is_resumed(monkeypatch, tmp_path):
    out = tmp_path / "out"
    with Server(lambda number, body: [GOOD]) as server:
        assert evaluate(monkeypatch, server, out) == 0
        plan = read_object(out / "eval.json")
        plan["model"]["body"] = json.loads(BODY)
        (out / "eval.json").write_text(json.dumps(plan))
        assert evaluate(monkeypatch, server, out, "--resume") == 0
    require_clean(out)


@pytest.mark.parametrize(
    "url",
    [f"http://me:{KEYS[0]}@127.0.0.1:1/v1", f"htp://me:{KEYS[0]}@h", f"http://h?key={KEYS[1]}"],
)
def test_a_password_in_an_address_leaves_no_folder(monkeypatch, tmp_path, capsys, url):
    words = ("--tasks", "1", "--model", "m", "--out", str(tmp_path / "out"))
    assert run(monkeypatch, "eval", GAME, "--base-url", url, *words) == 2
    assert not (tmp_path / "out").exists()
    assert not any(key in "".join(capsys.readouterr()) for key in KEYS)


def test_a_key_in_the_place_of_a_variables_name_is_not_repeated(monkeypatch, tmp_path, capsys):
    words = ("--base-url", "http://127.0.0.1:1", "--model", "m", "--api-key-env", KEYS[3])
    assert run(monkeypatch, "eval", GAME, *words, "--out", str(tmp_path / "out")) == 2
    assert not (tmp_path / "out").exists()
    assert KEYS[3] not in "".join(capsys.readouterr())


def test_the_viewer_hides_what_an_older_version_recorded(monkeypatch, tmp_path):
    out = tmp_path / "out"
    assert run(monkeypatch, "eval", GAME, "--player", "expert", "--out", str(out)) == 0
    info = read_object(out / "run.json")
    info["command"] += ["--body", BODY, f"--base-url=http://me:{KEYS[1]}@h/v1"]
    (out / "run.json").write_text(json.dumps(info))
    shown = json.dumps(Viewer([out]).run({"run": "0"}))
    assert MARK in shown and not any(key in shown for key in KEYS)


def test_secrets_of_the_environment_are_taken_out_of_texts(monkeypatch):
    monkeypatch.setenv("SOME_SERVICE_TOKEN", "a-very-own-form")
    assert redact_text("refused: a-very-own-form") == f"refused: {MARK}"
    command = ["x", "--set", "trainer.trl.hub_token=abc", "--set", "env.0.max_turns=3"]
    assert redact_command(command)[2:] == [
        f"trainer.trl.hub_token={MARK}",
        "--set",
        "env.0.max_turns=3",
    ]
    assert redact_command(["--body", "{'api_key': 1"]) == ["--body", MARK]  # no JSON
