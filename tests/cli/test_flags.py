"""``--version``, ``--json``, ``-v`` and ``-q``, ``check``, and what `show` shows."""

from __future__ import annotations

import json
import logging

import pytest

import gem_core
from gem_core.cli import main
from gem_core.env.interface import INFO_ERRORS
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe

GUESS = "guess-the-number-easy"
GAME = "game:GuessTheNumber-v0-easy"
ENVIRONMENT = """
from gem_core import Env

class Task(Env):
    _state_fields = ("turn",)
    def __init__(self, error=None):
        self.error = error
    def _reset(self, options):
        self.turn = self.rng.random()
        return f"say something, {self.turn}", {}
    def _step(self, action):
        info = {"success": True} | ({"error": self.error} if self.error else {})
        return "ok", 1.0, True, False, info
    def random_action(self, rng):
        return "a"
"""


def test_version_by_both_ways(process, capsys):
    done = process("--version")
    assert (done.returncode, done.stdout) == (0, f"gem-core {gem_core.__version__}\n")
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == done.stdout


def test_list_as_json(gem):
    code, out, error = gem("list", "guess", "--json")
    assert (code, error) == (0, "")
    said = json.loads(out)
    assert said["kind"] == "environments" and GAME in said["names"]


def test_show_as_json(gem):
    said = json.loads(gem("show", GUESS, "--episodes", 2, "--json")[1])
    assert said["recipe"]["algorithm.lr"] == {
        "value": 1e-6,
        "source": "arXiv 2510.01051 Table 3: 1e-6, constant",
    }
    (shown,) = said["environments"]
    assert shown["id"] == GAME and shown["players"]["expert"]["success"] == 1.0
    assert shown["prompt"].startswith("<|im_start|>user\n") and shown["note"] == ""
    (one,) = json.loads(gem("show", GAME, "--episodes", 2, "--json")[1])["environments"]
    assert one["prompt"] == shown["prompt"]


def test_plan_as_json(gem):
    command = ("plan", GUESS, "--trainer", "trl", "--profile", "paper", "--json", "--gpus")
    code, out, _ = gem(*command, "1x80")
    said = json.loads(out)
    assert code == 0 and said["fits"] and said["total"] == sum(said["parts"].values())
    assert (said["gpus"], said["capacity"]) == (1, 80 * 10**9)
    code, out, _ = gem(*command, "1x2")
    assert code == 1 and not json.loads(out)["fits"] and json.loads(out)["problems"]


def test_report_as_json_has_null_for_what_is_no_number(gem, tmp_path):
    run = RunDir.create(tmp_path / "run", load_recipe(GUESS, "tiny"), "trl")
    code, out, _ = gem("report", run.path, "--json")
    (row,) = json.loads(out)["runs"]
    assert code == 0 and row["finished"] is False and row["result"] is None
    run.finish({"format": 2, "after": {"success/mean": float("nan")}, "commit": None})
    (row,) = json.loads(gem("report", run.path, "--json")[1])["runs"]
    assert row["result"]["after"] == {"success/mean": None}


def test_nothing_but_json_reaches_the_standard_output(gem, monkeypatch):
    def chatty():
        print("a package prints at its import")
        return ["x"]

    monkeypatch.setitem(__import__("gem_core.cli.browse").cli.browse._NAMES, "trainers", chatty)
    code, out, error = gem("list", "--kind", "trainers", "--json")
    assert (code, json.loads(out)["names"]) == (0, ["x"])
    assert error == "a package prints at its import\n"


def test_quiet_and_verbose_set_the_level_of_the_logger(gem):
    levels = {}
    for flag in ("-q", "-v", None):
        gem("list", "guess", *([flag] if flag else []))
        levels[flag] = logging.getLogger("gem_core").level
    assert levels == {"-q": logging.ERROR, "-v": logging.DEBUG, None: logging.WARNING}
    with pytest.raises(SystemExit):
        gem("list", "-q", "-v")


def test_a_quiet_evaluation_prints_its_result_only(gem):
    command = ("eval", GAME, "--player", "expert", "--tasks", 2)
    assert "2/2 items" in gem(*command)[2]
    code, out, error = gem(*command, "-q")
    assert (code, error) == (0, "") and "player:expert: 2 items" in out


def test_check_names_each_check(gem):
    code, out, _ = gem("check", GAME, "--skip", "process", "threads")
    assert code == 0
    assert "passed   determinism: A seed gives the same episode again" in out
    assert "skipped  process" in out and out.endswith("all 17 checks passed.\n")
    code, out, _ = gem("check", GAME, "--skip", "process", "threads", "-q")
    assert (code, out) == (0, f"{GAME}: all 17 checks passed.\n")


def test_check_of_a_class_of_this_directory(gem, tmp_path):
    (tmp_path / "my_task.py").write_text(ENVIRONMENT)
    assert gem("check", "my_task:Task")[0] == 0
    code, out, _ = gem("check", "my_task:Task", "--parameters", '{"error": "bad move"}', "-q")
    assert code == 1 and out.startswith("FAILED   api: ")
    assert "info['error'] is 'bad move'; it must be absent, or one of 'invalid_format'" in out
    assert gem("check", "my_task:Task", "--parameters", '{"error": "invalid_action"}')[0] == 0


def test_the_help_of_check_names_the_errors_of_an_info(capsys):
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in INFO_ERRORS)


def test_show_says_where_the_template_of_a_tokenizer_is_missing(gem, monkeypatch):
    monkeypatch.setattr("gem_core.policies.models.source._present", lambda _: False)
    keys = ("--set", "context.template=chat", "--episodes", 1)
    code, out, _ = gem("show", GUESS, *keys)
    assert code == 0 and "template chat ---\nYou are playing Guess The Number." in out
    assert "Without the chat template: " in out and "--model" in out
    code, _, error = gem("show", GAME, "--model", "nobody/nothing")
    assert code == 2 and "pip install 'gem-core[hf]'" in error
