"""Every block of code of every page is run, checked, or another test's."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import tomllib

from gem_core.cli import main
from gem_core.env.registration.references import trust
from gem_core.evaluation import measure as measuring
from gem_core.evaluation.stats import wilson
from gem_core.results.data import data_lines
from gem_core.results.log_lines import evaluation_in_words, training_in_words
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.environments.description import describe_environments
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_core.runs.splits import run_envs
from gem_core.runs.task_overlap import overlap_in_words, task_overlap
from gem_core.training.greedy import evaluate_greedily
from gem_yaml import read_yaml

sys.path.insert(0, str(Path(__file__).parent))
from command_rules import check_line, check_syntax, lines_of
from page_blocks import ROOT, Block, all_blocks, blocks
from python_runner import missing

RUNNER = Path(__file__).with_name("python_runner.py")
KINDS = {"bash", "sh", "indented", "toml", "python", "text", "yaml"}
FOUND = all_blocks()
MEASURED = ROOT / "benchmarks/learn/results/sokoban-easy/trl/rebn/seed0.json"
"""The run whose first lines docs/start.md shows."""
OF_OTHER_PACKAGES = {
    "gem_bridges.as_gymnasium": "make test-bridges",
    "gem_bridges.as_inspect": "make test-inspect",
    "gem_bridges.as_verifiers": "make test-verifiers",
    "openenv.core": "make test-bridges",
}
"""Blocks of packages that the core's environment lacks -> which target runs them: by this file, or,
where a block needs a server, `tests/bridges/packages/test_openenv.py`."""


def of(*kinds: str) -> list[Block]:
    return [block for block in FOUND if block.kind in kinds]


def where(block: Block) -> str:
    return block.where


def test_every_block_has_a_test() -> None:
    assert [block.where for block in FOUND if block.kind not in KINDS] == []


@pytest.mark.parametrize("block", of("bash", "sh", "indented"), ids=where)
def test_a_shell_and_gem_core_read_every_command(block: Block) -> None:
    check_syntax(block.text)
    lines = [*lines_of(block.text)]
    assert lines
    for line in lines:
        check_line(line)


@pytest.mark.parametrize("block", of("toml"), ids=where)
def test_tables_of_a_recipe_are_loaded(block: Block) -> None:
    data = {"name": "page", "env": [{"id": "game:GuessTheNumber-v0-easy"}]}
    with trust(True):
        recipe_from_dict({**data, **tomllib.loads(block.text)})


@pytest.mark.parametrize("block", of("yaml"), ids=where)
def test_recipes_in_yaml_are_loaded(block: Block) -> None:
    recipe_from_dict(read_yaml(block.text))


@pytest.mark.parametrize("page", sorted({block.page for block in of("python")}))
def test_the_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    command = [sys.executable, str(RUNNER), page, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = [one for one in of("python") if one.page == page and not missing(one.text)]
    assert done.stdout.splitlines()[-1].split() == [str(block.line) for block in expected]


def test_what_needs_another_package_is_known() -> None:
    left = [block for block in of("python") if missing(block.text)]
    assert all(any(name in one.text for name in OF_OTHER_PACKAGES) for one in left), left


@pytest.mark.parametrize("block", of("text"), ids=where)
def test_an_output_is_that_of_the_command_before_it(
    block: Block,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    before = [one for one in of("bash") if one.page == block.page and one.line < block.line]
    if before[-1].text == "make quickstart\n":
        assert quickstart_begins(monkeypatch, tmp_path) == block.text
        return
    program, *rest = shlex.split(before[-1].text)
    assert program == "gem-core" and main(rest) == 0
    assert capsys.readouterr().out == block.text


def quickstart_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Return the first lines of the quickstart whose outcomes are committed, as a run writes them.

    The run itself takes minutes and needs TRL: the outcomes of its evaluations are read, its
    environments are made and its tasks are counted again.
    """
    cell = json.loads(MEASURED.read_text(encoding="utf-8"))
    recipe = load_recipe("sokoban-easy", "learn")
    envs = run_envs(recipe)
    played, version = cell["before"], cell["versions"]["transformers"]
    low, high = wilson(played["sampled"].count("1"), len(played["sampled"]))
    row = {
        "success/mean": played["sampled"].count("1") / len(played["sampled"]),
        "success/low": low,
        "success/high": high,
        "episodes": len(played["sampled"]),
    }
    lines = data_lines(describe_environments(recipe, envs=envs))
    lines.append(evaluation_in_words("before", row, f"transformers {version}"))
    # The evaluation gives the outcomes of the cell; what is written of them is the run's own.
    monkeypatch.setattr(measuring, "measure", lambda *_: ({}, "hf", played["greedy"]))
    run = RunDir.create(tmp_path / "run", recipe, "trl", "error")
    resolved = SimpleNamespace(recipe=recipe, envs=envs, trainer=SimpleNamespace(name="trl"))
    evaluate_greedily(run, resolved, "model", "before", lines.append)
    lines.append(overlap_in_words(task_overlap(recipe, envs)))
    lines.append(training_in_words(recipe, cell["trainer"], Path("runs/quickstart")))
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("gem-core evaluate x", "refuses these arguments"),
        ("gem-core show game:Sudoko-v0-easy", "unknown names"),
        ("gem-core train guess-the-number-easy --trainer trl --set algorithm.lrr=1", "lrr"),
        ("make docz", "no target of the Makefile"),
        ("pip install 'gem-core[maths]'", "maths"),
        ("pip install requests", "no rule checks what is installed"),
        ("python recipes/trl/train.py --rum x", "--rum"),
        ("python recipes/none.py", "none.py"),
        ("curl https://a.example", "no rule checks this line"),
        ("vllm serve MODEL --dtype bfloat16 --max-model-len TOKENS", "VLLM_SERVER_DEV_MODE=1"),
    ],
)
def test_a_wrong_command_is_found(line: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        check_line(line)


def test_blocks_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "a\n\n    make x\n    y\n\n- b\n\n  ```bash\n  z\n  ```\n\n~~~text\n```\nq\n~~~\n"
    page.write_text(text)
    assert [(one.line, one.kind) for one in blocks(page, tmp_path)] == [
        (3, "indented"),
        (8, "bash"),
        (12, "text"),
    ]
    assert blocks(page, tmp_path)[0].text == "make x\ny\n"


def test_the_root_of_the_pages_is_the_checkout() -> None:
    assert (ROOT / "zensical.toml").is_file()
