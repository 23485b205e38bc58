"""``gem-core completion``: what the scripts complete, in a real bash where they are run."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("shtab", reason="the extra completion")

import gem_core
from gem_completion.names import NAMES, kinds_of
from gem_completion.options import SHELLS
from gem_completion.script import completion_script
from gem_core.cli import main
from gem_core.cli.parser import build_parser
from gem_core.runs.recipe.files import shipped
from gem_core.runs.trainers import trainer_names

CALL = """
source "$1"; shift
COMP_LINE=$1; COMP_POINT=${#1}; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_gem_core_complete gem-core "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    return {shell: completion_script(build_parser(), shell) for shell in SHELLS}


@pytest.fixture(scope="module")
def bash(scripts: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "gem-core.bash"
    file.write_text(scripts["bash"] + "\n")
    return file


def words_of(line: str) -> list[str]:
    """Take a line apart as bash does for a completion: ``:`` and ``=`` are words of their own."""
    words = [word for part in line.split() for word in re.findall(r"[:=]+|[^:=]+", part)]
    return [*words, ""] if line.endswith(" ") else words


def completed(bash: Path, line: str, folder: Path | None = None) -> set[str]:
    command = ["bash", "--norc", "-c", CALL, "bash", str(bash), line, *words_of(line)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True)
    assert "command not found" not in done.stderr, done.stderr
    return set(done.stdout.split())


def test_subcommands_and_options(bash: Path) -> None:
    assert {"train", "eval", "completion", "export"} <= completed(bash, "gem-core ")
    assert completed(bash, "gem-core compl") == {"completion"}
    assert completed(bash, "gem-core completion ") == set(SHELLS)
    assert completed(bash, "gem-core train --res") == {"--resume"}
    assert {"get", "list", "path"} <= completed(bash, "gem-core model ")
    assert "estimators" in completed(bash, "gem-core list --kind ")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("gem-core train ", "baselines"),
        ("gem-core show ", "environments"),
        ("gem-core play ", "environments"),
        ("gem-core eval ", "baselines"),
        ("gem-core train x --trainer ", "trainers"),
        ("gem-core compare --trainers trl ", "trainers"),
        ("gem-core compare --algorithms ", "estimators"),
        ("gem-core conform ", "trainers"),
        ("gem-core train x --profile ", "profiles"),
        ("gem-core plan x --set ", "keys"),
        ("gem-core serve --environments ", "environments"),
    ],
)
def test_names(bash: Path, tmp_path: Path, line: str, kind: str) -> None:
    assert set(NAMES[kind]()) <= completed(bash, line, tmp_path)


def test_the_kinds_have_the_names_of_gem_core() -> None:
    names = {kind: set(function()) for kind, function in NAMES.items()}
    assert names["environments"] == set(gem_core.list_envs())
    assert names["trainers"] == set(trainer_names())
    assert names["baselines"] == set(shipped("baselines"))
    assert {"seed=", "algorithm.lr=", "env.0.max_turns=", "eval.env.0.id="} <= names["keys"]
    assert "algorithm.estimator=rebn" in names["keys"] and "env=" not in names["keys"]


def test_what_follows_a_colon_or_an_equals_sign(bash: Path) -> None:
    found = completed(bash, "gem-core show game:GuessTheNumber-v0-e")
    assert found == {"GuessTheNumber-v0-easy"}
    wanted = {name.partition(":")[2] for name in gem_core.list_envs("game:*")}
    assert completed(bash, "gem-core show game:") == wanted
    assert completed(bash, "gem-core train x --set algorithm.estimator=reb") == {"rebn"}
    assert completed(bash, "gem-core train x --set train.steps=3 --trainer tr") == {"trl"}
    assert completed(bash, "gem-core play game:Sudoku-v0-easy --pla") >= {"--player", "--plain"}
    assert completed(bash, "gem-core train x --set algorithm.l") >= {"algorithm.lr="}


def test_files_beside_names(bash: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "runs").mkdir()
    assert completed(bash, "gem-core train mi", tmp_path) >= {"mine.yaml"}
    assert completed(bash, "gem-core report ", tmp_path) == {"runs"}
    assert completed(bash, "gem-core eval run", tmp_path) == {"runs"}


def test_an_interactive_bash_completes(bash: Path) -> None:
    child, terminal = pty.fork()
    if child == 0:
        variables = {"PATH": os.environ["PATH"], "TERM": "dumb", "INPUTRC": "/dev/null", "PS1": ""}
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], variables)
    lines = [
        f"source {shlex.quote(str(bash))}",
        "gem-core() { printf '<%s>' \"$@\"; echo; }",
        "gem-core show game:GuessTheNumber-v0-ea\t",
        "gem-core train x --set algorithm.gam\t0.5",
        "exit",
    ]
    os.write(terminal, "".join(f"{line}\n" for line in lines).encode())
    said = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # the terminal has gone: bash ended
            break
        if not chunk:
            break
        said += chunk
    os.close(terminal)
    os.waitpid(child, 0)
    assert b"<show><game:GuessTheNumber-v0-easy>" in said, said
    assert b"<--set><algorithm.gamma=0.5>" in said, said


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(
    shell: str, scripts: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == scripts[shell] + "\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_reads_the_script(shell: str, scripts: dict[str, str], tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = tmp_path / "script"
    file.write_text(scripts[shell] + "\n")
    done = subprocess.run([shell, "-n", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_has_every_name_in_functions_of_ours(
    shell: str, scripts: dict[str, str]
) -> None:
    begin = r"function (_gem_core_\w+)$" if shell == "fish" else r"(_gem_core_\w+)\(\) \{$"
    defined = set(re.findall(rf"^{begin}", scripts[shell], re.MULTILINE)) - {"_gem_core_complete"}
    called = set(re.findall(r"(?<!\w)_gem_core_[a-z_]+", scripts[shell])) - {"_gem_core_complete"}
    assert defined == called and defined
    for kind, function in NAMES.items():
        assert all(name in scripts[shell] for name in function()), kind


def test_every_argument_with_names_is_completed() -> None:
    """A metavar of ours without a kind would complete nothing, and nobody would notice."""
    parser = build_parser()
    subcommands = next(a for a in parser._actions if isinstance(a.choices, dict)).choices
    train = {action.dest: kinds_of(action) for action in subcommands["train"]._actions}
    assert train["baseline"] == ("baselines", "files") and train["origin"] == ("folders",)
    assert train["trainer"] == ("trainers",) and train["overrides"] == ("keys",)
    assert train["resume"] == () and train["verbose"] == ()
