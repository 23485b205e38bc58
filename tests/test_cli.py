"""The command line: exit codes, one-line errors, suggested names, light imports."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys

import pytest

from gem_core.cli import main
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.trainers import get_trainer, list_trainers


@pytest.fixture
def gem(capsys):
    """``gem("list", "guess")`` -> (exit code, stdout, stderr)."""

    def run(*argv):
        code = main([str(part) for part in argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def run_dir(tmp_path):
    """``run_dir(name, seed, ...)``: a finished run of ten steps, written through RunDir."""

    def make(name="a", seed=0, finished=True):
        recipe = load_recipe("guess-the-number-easy", "tiny", [f"seed={seed}", "train.steps=10"])
        run = RunDir.create(tmp_path / name, recipe, "trl")
        evaluation = {"success/mean": 0.5, "success/low": 0.4, "success/high": 0.6}
        run.log_eval(0, "before", evaluation)
        for step in range(1, 11):
            run.log(step, {"success/mean": 0.05 * step, "reward/mean": 0.1 * step})
        if finished:
            run.finish(
                {
                    "format": 1,
                    "name": recipe.name,
                    "trainer": "trl",
                    "estimator": "rebn",
                    "seed": seed,
                    "steps": 10,
                    "before": evaluation,
                    "after": None,
                    "seconds": {"train": 12.4},
                }
            )
        return run

    return make


def test_list(gem):
    code, out, _ = gem("list", "guess")
    assert code == 0
    assert "game:GuessTheNumber-v0-easy" in out.split()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("baselines", "guess-the-number-easy"),
        ("profiles", "tiny"),
        ("trainers", "trl"),
        ("estimators", "rebn"),
        ("templates", "chat"),
    ],
)
def test_list_kinds(gem, kind, name):
    assert name in gem("list", "--kind", kind)[1].split()
    assert gem("list", "nothing-like-it", "--kind", kind)[1] == ""


def test_list_imports_nothing_heavy():
    script = (
        "import sys; from gem_core.cli import main; main(['list']);"
        "print(sorted({'torch', 'transformers', 'numpy', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_show_an_environment(gem):
    code, out, _ = gem("show", "game:GuessTheNumber-v0-easy", "--episodes", "20")
    assert code == 0
    assert "<|im_start|>user\n" in out
    assert '"max_turns": 4' in out
    assert re.search(r"^expert +success 1.000", out, re.MULTILINE)
    assert re.search(r"^within-hints  success 0", out, re.MULTILINE)
    assert "(20 episodes)" in out


def test_show_a_baseline_cites_the_source_of_its_values(gem):
    code, out, _ = gem("show", "guess-the-number-easy", "--episodes", "2")
    assert code == 0
    assert "algorithm.lr = 1e-06  # arXiv 2510.01051 Table 3" in out
    _, tiny, _ = gem("show", "guess-the-number-easy", "--profile", "tiny", "--episodes", "2")
    _, other, _ = gem(
        "show", "guess-the-number-easy", "--set", "eval.env.0.id=game:TowerofHanoi-v0-easy"
    )
    assert 'eval.env = [{"id": "game:TowerofHanoi-v0-easy"' in other
    assert other.count("\ngame:") == 2  # both environments are shown
    (rate,) = [line for line in tiny.splitlines() if line.startswith("algorithm.lr ")]
    assert "#" not in rate  # the profile's value is not the paper's


def test_show_has_what_the_agent_is_told_of_its_tools(gem):
    one = ("show", "guess-the-number-easy", "--episodes", "1", "--set")
    code, out, _ = gem(*one, 'env.0.tools=["python"]', "--set", "env.0.tool_use.calls=3")
    assert code == 0 and "You may use tools, up to 3 times" in out
    assert "<python>" in out.partition("--- first prompt")[2]
    code, _, err = gem(*one, 'env.0.tools=[{ name = "python", second = 1 }]')
    assert code == 2 and "Did you mean 'seconds'?" in err


@pytest.mark.parametrize("name", ["game:GuesTheNumber-v0-easy", "guess-the-numbr-easy"])
def test_show_guesses_what_was_meant(gem, name):
    code, out, err = gem("show", name)
    assert (code, out) == (2, "")
    assert "Did you mean" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        ("train", "guess-the-number-easi", "--trainer", "trl"),
        ("train", "guess-the-number-easy", "--trainer", "tlr"),
        ("train", "guess-the-number-easy", "--trainer", "trl", "--set", "algorithm.gama=1"),
        ("train", "guess-the-number-easy", "--trainer", "trl", "--profile", "tinny"),
        ("doctor", "--trainer", "ver"),
        ("play", "game:Mastermind-v0-esay"),
    ],
)
def test_misspelt_names_are_one_line_with_a_guess(gem, argv):
    code, _, err = gem(*argv)
    assert code == 2
    assert "Did you mean" in err
    assert err.count("\n") == 1


def test_an_unknown_verb_is_a_usage_error(gem):
    with pytest.raises(SystemExit) as stopped:
        gem("trian")
    assert stopped.value.code == 2


def test_resume_and_overwrite_exclude_each_other(gem):
    with pytest.raises(SystemExit):
        gem("train", "x", "--trainer", "trl", "--resume", "--overwrite")


def test_defects_are_not_swallowed(gem, monkeypatch):
    def broken(_):
        raise ZeroDivisionError

    monkeypatch.setattr("gem_core.cli.browse.list_names", broken)
    with pytest.raises(ZeroDivisionError):
        gem("list")


def test_doctor_lists_every_trainer_and_fails_where_none_is_installed(gem, monkeypatch):
    monkeypatch.setattr("gem_preflight.readiness.probe.installed_version", lambda _: None)
    code, out, _ = gem("doctor")
    assert code == 1
    for name, trainer in list_trainers().items():
        assert name in out
        assert trainer.tested_range in out
    assert "sandbox level" in out


def test_doctor_reports_missing_trainers_with_its_exit_code(gem, monkeypatch):
    monkeypatch.setattr("gem_preflight.readiness.probe.installed_version", lambda _: None)
    code, out, _ = gem("doctor", "--trainer", "trl", "verl", "--device", "cpu")
    assert code == 1
    assert "trl: trl is not installed\n    make env-trl" in out
    assert "verl: verl is not installed\n    make env-verl" in out
    code, out, _ = gem("doctor", "--trainer", "trl", "--device", "gpu", "--json")
    (said,) = json.loads(out)["trainers"]
    assert code == 1
    assert said["problems"][0] == {
        "text": "trl is not installed",
        "fix": get_trainer("trl").install,
    }


@pytest.mark.parametrize("option", [("--gpus", "8x80"), ("--profile", "tiny"), ("--set", "seed=1")])
def test_options_of_a_recipe_need_a_recipe(gem, option):
    code, _, err = gem("doctor", "--trainer", "trl", *option)
    assert code == 2
    assert f"{option[0]} belongs to a recipe: give --recipe BASELINE, too." in err


def test_watching_the_expert(gem):
    code, out, _ = gem("play", "game:GuessTheNumber-v0-easy", "--player", "expert")
    assert code == 0
    assert "> \\boxed{5}" in out
    assert out.splitlines()[-1].startswith("Solved in")


def test_a_person_need_not_type_the_answer_format(gem, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("5\n\\boxed{7}\n"))
    code, out, _ = gem("play", "game:GuessTheNumber-v0-easy")
    assert code == 0
    assert "you guessed 5" in out or "5 is the number" in out
    assert "was not understood" not in out


def test_raw_lines_are_sent_as_they_are(gem, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("5\n"))
    assert "was not understood" in gem("play", "game:GuessTheNumber-v0-easy", "--raw")[1]


def test_train_needs_a_recipe_or_a_run(gem):
    code, _, error = gem("train", "--trainer", "trl")
    assert code == 2 and "--from RUN" in error


def test_training_continues_from_a_run(gem, run_dir, monkeypatch, tmp_path):
    started = []
    monkeypatch.setattr(
        "gem_core.training.experiment.run_experiment", lambda *a, **_: started.append(a)
    )
    run = run_dir()
    code, _, error = gem("train", "--trainer", "oat", "--from", run.path)
    assert code == 2 and "no model yet" in error and not started
    run.model.mkdir()
    (run.model / "config.json").write_text("{}")
    path = tmp_path / "next"
    sets = ("--set", "train.steps=3", "--run", path)
    assert gem("train", "--trainer", "oat", "--from", run.path, *sets)[0] == 0
    ((recipe, trainer, target, _),) = started
    assert (trainer, target) == ("oat", path)
    assert (recipe.train.start, recipe.train.steps, recipe.seed) == (10, 3, 0)
    assert recipe.model.path == str(run.model.resolve())
    code, _, error = gem("train", "--trainer", "oat", "--from", run.path, "--profile", "tiny")
    assert code == 2 and "--profile" in error


@pytest.mark.parametrize(
    ("env_id", "typed", "answer"),
    [
        ("multi:Nim-v0-hard", "1 1\n", "The first player played 1 1."),
        ("webshop:train-text", "search[lamp]\n", "products found"),
        ("multi:ReturnsDesk-v0", "say[Which order?]\n", "Customer: "),
        ("eval:CodeContest", "```python\nprint(1)\n\nprint(2)\n```\n", "[reward 0]"),
        ("eval:CodeContest", "print(1)\n", "[reward -0.1]"),
        ("eval:Bamboogle", "Paris\n", "[reward 0]"),
    ],
)
@pytest.mark.filterwarnings("ignore::gem_core.envs._data_source.SampleDataWarning")
def test_a_person_plays_what_is_not_a_game(gem, monkeypatch, env_id, typed, answer):
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    code, out, _ = gem("play", env_id)
    assert code == 0 and answer in out
    assert ("not understood" in out or "No answer" in out) == ("-0.1" in answer)


def test_report_of_runs(gem, run_dir, tmp_path):
    run_dir("a", seed=0), run_dir("b", seed=1)
    code, out, _ = gem("report", tmp_path / "a", tmp_path / "b", "--png", tmp_path / "c" / "x.png")
    assert code == 0
    assert (tmp_path / "c" / "x.png").read_bytes().startswith(b"\x89PNG")
    lines = out.splitlines()
    assert lines[0].split()[:4] == ["recipe", "trainer", "estimator", "seed"]
    assert "0.500 [0.400, 0.600]" in lines[1]
    assert lines[1].split()[3:5] == ["0", "10"]


def test_report_as_markdown(gem, run_dir, tmp_path):
    run_dir("a")
    out = gem("report", tmp_path / "a", "--markdown")[1]
    assert out.splitlines()[1] == "|---|---|---|---|---|---|---|---|"
    assert "| guess-the-number-easy | trl | rebn | 0 | 10 |" in out


def test_report_counts_what_is_not_finished(gem, run_dir, tmp_path):
    run_dir("a"), run_dir("b", finished=False)
    assert "1 of 2 runs are not finished" in gem("report", tmp_path / "a", tmp_path / "b")[1]


def test_report_tells_which_data_each_run_had(gem, run_dir, tmp_path):
    sample = {"id": "math:GSM8K", "fingerprint": "00c0ffee", "items": 60, "sample": True}
    sample.update(kwargs={"part": "train"}, used_in=["train"], data_revision="sample-1")
    for name in ("a", "b"):
        run_dir(name).record({"environments": [sample]})
    run_dir("c")  # of an older version: nothing is recorded
    out = gem("report", tmp_path / "a", tmp_path / "b", tmp_path / "c")[1]
    line = "math:GSM8K (train): 00c0ffee, part 'train' of 60 items, sample-1, built-in SAMPLE\n"
    assert out.count(line) == 1


def test_report_of_something_else(gem, tmp_path):
    code, _, err = gem("report", tmp_path)
    assert code == 2
    assert "not a run directory" in err


def test_a_closed_pipe_is_no_error():
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    script = f"{sys.executable} -m gem_core.cli list | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, env=environ
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_module_and_entry_point_are_the_same_command():
    done = subprocess.run(
        [sys.executable, "-m", "gem_core.cli", "list", "--kind", "profiles"],
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == sorted(done.stdout.split())
    assert json.dumps(done.returncode) == "0"
