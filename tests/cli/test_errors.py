"""What a user can correct is one line that says what to do; a defect keeps its traceback."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys

import pytest

from gem_core.cli import main
from gem_core.cli.expected import in_one_line
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe

GUESS = "guess-the-number-easy"
GAME = "game:GuessTheNumber-v0-easy"


@pytest.fixture
def bad(tmp_path, monkeypatch):
    """A directory of things that are not what a command needs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"\n')
    (tmp_path / "broken.toml").write_text("[[env]]\nid=")
    (tmp_path / "recipe.json").write_text('{"name": "x"}')
    (tmp_path / "broken.yaml").write_text("name: [x\n")
    run = RunDir.create(tmp_path / "cut", load_recipe(GUESS, "tiny"), "trl")
    RunDir.create(tmp_path / "run", run.recipe, "trl")
    (run.path / "run.json").write_text('{"trainer": "tr')
    return tmp_path


RECIPES = [
    ("missing.toml", "missing.toml: No such file or directory"),
    ("folder.toml", "folder.toml: Is a directory"),
    ("latin.toml", "latin.toml is not UTF-8 text (byte 0xe9 at position 8): save it as UTF-8."),
    ("broken.toml", "broken.toml is not valid TOML: "),
    ("missing.yaml", "missing.yaml: No such file or directory"),
    ("broken.yaml", "broken.yaml: not valid YAML: line 2: "),
]
NO_RECIPE = [
    ("recipe.json", "recipe.json: a recipe is a TOML file; write it as TOML and name it"),
    ("other.json", "There is no file other.json, and a recipe is a TOML file"),
    ("guess-the-numbr", "`gem-core list --kind baselines` lists them"),
]
READERS = [
    ("train", "{}", "--trainer", "trl"),
    ("plan", "{}", "--trainer", "trl", "--gpus", "1x80"),
    ("compare", "--dry-run", "--trainers", "trl", "--baselines", "{}"),
    ("doctor", "--trainer", "trl", "--recipe", "{}"),
    ("serve", "--recipe", "{}"),
]


def one_line(said: tuple[int, str, str], code: int = 2) -> str:
    assert said[0] == code, said
    assert said[2].startswith("gem-core: ") and said[2].count("\n") == 1, said[2]
    return said[2]


@pytest.mark.parametrize(("source", "message"), [*RECIPES, *NO_RECIPE])
@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
def test_a_recipe_that_cannot_be_read(gem, bad, monkeypatch, command, source, message):
    monkeypatch.setattr("gem_compare.runner.trainer_python", lambda _: sys.executable)
    if command[0] == "serve":
        pytest.importorskip("uvicorn")
    assert message in one_line(gem(*(part.format(source) for part in command)))


@pytest.mark.parametrize(("source", "message"), RECIPES)
@pytest.mark.parametrize("command", ["show", "eval"])
def test_a_recipe_beside_ids_that_cannot_be_read(gem, bad, command, source, message):
    assert message in one_line(gem(command, source))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("list", "zzz*"), "None of the environments match 'zzz*'"),
        (("list", "sudokoo", "--kind", "environments"), "Did you mean"),
        (("list", "tinny", "--kind", "profiles"), "Did you mean 'tiny'?"),
        (("show", ""), "`gem-core list` lists all names"),
        (("show", GAME, "--set", "seed=1"), "--set belongs to a recipe"),
        (("show", GUESS, "--set", "env.5.max_turns=1"), "the recipe has one env table, env.0"),
        (("play", "nope"), "Unknown environment 'nope'"),
        (("check", "game:Guess"), "`gem-core list` lists all ids"),
        (("check", "os:nothing"), "Module 'os' has no class 'nothing'"),
        (("check", GAME, "--parameters", "{"), "--parameters is not JSON"),
        (("check", GAME, "--parameters", '{"max_tuns": 2}'), "Did you mean 'max_turns'?"),
        (("check", GAME, "--skip", "proces"), "Did you mean 'process'?"),
        (("eval", "empty"), "no run directory and no recipe"),
        (("eval", GAME, "--player", "expert", "--tasks", 1, "--out", "file"), "file"),
        (("eval", GAME, "--player", "expert", "--tasks", 1, "--out", "file/x"), "Not a directory"),
        (("eval", "--table", "file"), "no finished evaluation"),
        (("eval", "--rescore", "empty"), "not a run directory"),
        (("eval", "--compare", "empty", "file"), "not the directory of an evaluation"),
        (("report", "empty"), "not a run directory"),
        (("report", "cut"), "cut/run.json is not JSON"),
        (("track", "file"), "not a run directory"),
        (("view", "file", "--export", "x.html"), "not a directory"),
        (("view", "run", "--export", "file/x.html"), "file"),
        (("compare", "--report-only", "--out", "missing"), "missing"),
        (("compare", "--out", "file", "--allow-dirty"), "file: File exists."),
        (("serve", "--environments", "zzz*"), "No environment matches zzz*"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_one_line(gem, bad, command, message):
    if command[0] == "serve":
        pytest.importorskip("uvicorn")
    assert message in one_line(gem(*command))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("serve", "--port", "99999"), "99999 is not a port, 0 to 65535"),
        (("view", "--port", "x"), "'x' is not a whole number"),
        (("show", GAME, "--episodes", "0"), "0 is not at least 1"),
        (("serve", "--idle", "nan"), "'nan' is not a positive number of seconds"),
    ],
)
def test_numbers_are_checked_before_a_command_begins(capsys, command, message):
    with pytest.raises(SystemExit) as ended:
        main(list(command))
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_the_line_has_a_traceback_where_it_is_asked_for(gem, bad, monkeypatch):
    for command in (("-v", "show", "nope"), ("show", "nope", "-v")):
        code, _, error = gem(*command)
        assert code == 2 and error.startswith("Traceback") and "\ngem-core: Unknown" in error
    one_line(gem("show", "nope"))  # not remembered
    monkeypatch.setenv("GEM_CORE_DEBUG", "1")
    assert gem("show", "nope")[2].startswith("Traceback")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device. Free some"),
        (OSError(errno.EADDRINUSE, "Address already in use"), "Choose another --port"),
        (PermissionError(errno.EACCES, "Permission denied", "a"), "a: Permission denied. Change"),
        (ModuleNotFoundError("x", name="surely_missing.part"), "package surely_missing is missing"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "not UTF-8 text (byte 0xff"),
    ],
)
def test_what_the_system_says_is_one_line(error, line):
    assert line in in_one_line(error)


@pytest.mark.parametrize(
    "defect",
    [
        OSError("of a library"),
        BrokenPipeError(errno.EPIPE, "Broken pipe"),
        ModuleNotFoundError("x", name="gem_core.nothing"),
        ModuleNotFoundError("x", name="json.nothing"),
        KeyError("x"),
        ValueError("x"),
        AssertionError(),
    ],
)
def test_a_defect_is_raised(monkeypatch, defect):
    def broken(_):
        raise defect

    assert in_one_line(defect) is None
    monkeypatch.setattr("gem_core.cli.browse.list_names", broken)
    with pytest.raises(type(defect)):
        main(["list"])


@pytest.mark.parametrize("folder", ["/proc/nothing/x", "/sys/x"])
def test_a_directory_that_may_not_be_written_to(gem, folder):
    command = ("eval", GAME, "--player", "expert", "--tasks", 1, "--out", folder)
    assert folder.removesuffix("/x") in one_line(gem(*command))


def test_a_disk_that_is_full(process):
    """``/dev/full`` refuses what is written to it: the result of the command is lost."""
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "gem_core", "list"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("gem-core: No space left on device. Free some space")


def test_a_reader_that_goes_is_no_error(tmp_path):
    for command in ("list", "show --help", "list --json"):
        script = f"{sys.executable} -m gem_core {command} | true"
        done = subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True)
        assert (done.returncode, done.stderr) == (0, b""), command


@pytest.fixture
def sigint():
    """Processes that are started have the signal: it is ignored below a shell's ``&``."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.SIGINT
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_is_one_line(sigint):
    """A person at the prompt of ``gem-core play`` presses Ctrl-C."""
    command = [sys.executable, "-m", "gem_core", "play", GAME, "--plain"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as playing:
        shown = ""
        while "> " not in shown:
            shown += playing.stdout.read(1)
        playing.send_signal(sigint)
        _, error = playing.communicate(timeout=60)
    assert (playing.returncode, error) == (130, "gem-core: interrupted by Ctrl-C.\n")


def test_a_bad_row_is_named_with_its_file_and_line(gem, tmp_path):
    first = '{"problem": "1+1?", "answer": "2"}\n\n'
    rows = {
        "text.jsonl": ("not json\n", "not JSON"),
        "key.jsonl": ('{"problem": "2+2?"}', "no value in the column 'answer'"),
        "null.jsonl": ('{"problem": "2+2?", "answer": null}', "no value in the column 'answer'"),
    }
    for name, (row, message) in rows.items():
        (tmp_path / name).write_text(first + row)
        source = ("math:GSM8K", "--set", f"env.0.kwargs.dataset={name}")
        code, out, _ = gem("eval", *source, "--player", "random")
        assert code == 1 and "1 items have no result: env_error; the first: " in out
        assert f"{name}, line 3: {message}" in out
