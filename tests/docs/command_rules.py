"""What checks a line of a shell block that is not run: each line must satisfy one rule."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from fnmatch import fnmatch
from pathlib import Path
from unittest.mock import patch

from page_blocks import ROOT

import gem_core
from gem_core.cli import main
from gem_core.cli.parser import build_parser
from gem_core.errors import RunError
from gem_core.runs import trainers
from gem_core.runs.recipe.load import load_recipe
from gem_models.catalogue import MODELS
from gem_trl.vllm import require_server

OF_THE_READER = {
    "my_package.tasks:Task",
    "my:Change-v0",
    "my-envs/recipe.toml",
    "my-recipe.toml",
    "NAME",
    "plain",
    "torchrl",
}
"""Names that a reader makes, or fills in."""
FOLDERS = {"runs", "evals", "controls", "DIR"}
"""Folders of runs, in the examples."""
BASELINES = {path.stem for path in (ROOT / "recipes" / "baselines").glob("*.toml")}
EXTRAS = set(
    re.findall(
        r"^([\w-]+) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
)
NAMED = ("baseline", "name", "env", "run")
NAMED_LISTS = ("baselines", "sources")
"""Arguments whose values are names of gem-core."""
SYNTAX = {"done", "[ $? -eq 75 ] || break"}
"""Parts of a loop; `bash -n` reads the whole block."""
VARIABLE = re.compile(r"(export )?[A-Z_]+=(\S*|\$\([^()]*\))")
TARGETS = {
    name
    for head in re.findall(
        r"^([a-z][^:=\n]*):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    for name in head.split()
}


def lines_of(text: str) -> Iterator[str]:
    """Yield the commands of a block: continued lines joined, loops and ``&&`` taken apart."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in line.partition(" #")[0].split(" && "):
            command = re.sub(r"^until (.*); do$", r"\1", part.strip())
            if command and not command.startswith("#"):
                yield command


def check_syntax(text: str) -> None:
    """Have a shell read a block."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr + text


def check_line(line: str) -> None:
    """Check one command of a page; the error says what is wrong with it."""
    if line in SYNTAX or VARIABLE.fullmatch(line):
        return
    if "vllm serve" in line:
        check_vllm(line)
        return
    words = shlex.split(line)
    variables = {}
    while re.fullmatch(r"[A-Z_]+=\S+", words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value.replace(":PORT", ":29500")  # which the reader fills in
    if words[0] == "gem-core" or words[:3] == [words[0], "-m", "gem_core.cli"]:
        with patch.dict(os.environ, variables):
            check_gem_core(words[1 if words[0] == "gem-core" else 3 :])
    elif words[0] == "make":
        wrong = [word for word in words[1:] if "=" not in word and not is_target(word)]
        assert not wrong, f"no target of the Makefile: {wrong}"
    elif words[0] == "pip":
        check_pip(words)
    elif words[0] == "python":
        check_python(words[1:])
    elif words[0] == "pytest":
        assert words[1:] == ["my-envs"], line
    else:
        made = re.fullmatch(r"python3\.\d+ -m venv [\w.-]+|\. [\w./-]+/bin/activate", line)
        assert made, f"no rule checks this line: {line}"


def is_target(word: str) -> bool:
    """Return whether the Makefile has a target, also one of its patterns."""
    trainer = word.partition("-")[2] in trainers.trainer_names()
    return word in TARGETS or (word.split("-")[0] in ("env", "test", "slow") and trainer)


def check_gem_core(words: list[str]) -> None:
    """Have gem-core's parser read a command; the baselines and environments it names must exist."""
    try:
        run = vars(build_parser().parse_args(words))
    except SystemExit as refused:
        raise AssertionError(f"gem-core refuses these arguments: {words}") from refused
    named = [run[key] for key in NAMED if isinstance(run.get(key), str)]
    named += [one for key in NAMED_LISTS for one in run.get(key) or []]
    assert not (wrong := [one for one in named if not is_known(one)]), f"unknown names: {wrong}"
    of_the_reader = {run.get("baseline"), run.get("trainer")} & {*OF_THE_READER, None}
    if words[0] == "train" and not of_the_reader:
        check_training(words)


def check_training(words: list[str]) -> None:
    """Have a command check itself: 1 is one that this machine lacks something for, as its trainer.

    A recipe that is refused is 2, and what no adapter has is none of ``--trainer``.
    """
    heard = io.StringIO()
    with redirect_stdout(heard), redirect_stderr(heard):
        code = main([*words, "--dry-run"])
    assert code in (0, 1) and heard.getvalue().startswith("Dry run of "), heard.getvalue()


def is_known(name: str) -> bool:
    """Return whether a name is an environment, a pattern, a baseline, a run, or the reader's."""
    if name in OF_THE_READER or name.partition("/")[0] in FOLDERS:
        return True
    names = [*gem_core.list_envs(), *BASELINES, *MODELS]
    return any(fnmatch(one, name) for one in names)


def check_pip(words: list[str]) -> None:
    """Check what is installed: gem-core with extras that it has, or packages of the checkout."""
    assert words[1] == "install", words
    for word in words[2:]:
        named = re.fullmatch(
            r"(?:gem-core|\.|my-envs)(?:\[([\w,-]+)\])?|dist/gem_core-(.*)-py3.*", word
        )
        if word == "-e" or (word.startswith("examples/") and (ROOT / word).is_dir()):
            continue
        assert named, f"no rule checks what is installed: {word}"
        wanted = set((named[1] or "").split(",")) - {""}
        assert wanted <= {*EXTRAS, "test"}, word
        assert named[2] in (None, gem_core.__version__), word


def check_vllm(line: str) -> None:
    """Compare a command that starts vLLM's server with the one that TRL's adapter asks for.

    `make test-engines` starts a real server with these options.
    """
    recipe = load_recipe("guess-the-number-easy", "paper")
    unfit = {"dtype": "", "logprobs_mode": "", "max_model_len": 0}
    try:
        require_server(recipe, {"model_config": unfit}, 1)
    except RunError as asked:
        command = str(asked).partition("start it with ")[2].replace("len 1", "len TOKENS")
    assert sorted(shlex.split(line)) == sorted(shlex.split(command)), f"the adapter asks: {command}"


def check_python(words: list[str]) -> None:
    """Check a script of the checkout, or a module: it exists and has the options that are given."""
    if words[0] == "-m":
        spec = importlib.util.find_spec(words[1])
        assert spec and spec.origin, words
        source = Path(spec.origin)
    else:
        source = ROOT / words[0]
    text = source.read_text(encoding="utf-8")
    text += (ROOT / "gem_core/training/script.py").read_text(encoding="utf-8")
    own = source.with_name("command_line.py")  # where a script's options have a file of their own
    text += own.read_text(encoding="utf-8") if own.exists() else ""
    options = [word for word in words if word.startswith("--")]
    assert not (wrong := [one for one in options if f'"{one}"' not in text]), (words, wrong)
