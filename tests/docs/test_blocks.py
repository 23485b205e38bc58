"""Every block of code of every page is run, checked, another test's, or exempt with a reason."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

from gem_core.cli import main
from gem_core.env.registration.references import trust
from gem_core.runs.recipe.load import recipe_from_dict
from gem_yaml import read_yaml

sys.path.insert(0, str(Path(__file__).parent))
from command_rules import check_line, check_syntax, lines_of
from page_blocks import EXEMPT, ROOT, Block, all_blocks, blocks, exemption, pages
from python_runner import missing

RUNNER = Path(__file__).with_name("python_runner.py")
KINDS = {"bash", "sh", "indented", "toml", "python", "text", "yaml"}
FOUND = all_blocks()
OF_OTHER_PACKAGES = {
    "gem_core.envs.bridges.as_gymnasium": "make test-bridges",
    "gem_core.envs.bridges.as_verifiers": "make test-verifiers",
}
"""Blocks of packages that the core's environment lacks -> which target runs them, by this file."""


def of(*kinds: str) -> list[Block]:
    return [block for block in FOUND if block.kind in kinds]


def where(block: Block) -> str:
    return block.where


def test_every_block_has_a_test_and_every_exemption_a_block() -> None:
    assert [block.where for block in FOUND if block.kind not in KINDS] == []
    exempt = {exemption(block) for page in pages() for block in blocks(page)} - {None}
    assert exempt == set(EXEMPT) and len(EXEMPT) <= 3


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
    block: Block, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [one for one in of("bash") if one.page == block.page and one.line < block.line]
    program, *rest = shlex.split(before[-1].text)
    assert program == "gem-core" and main(rest) == 0
    assert capsys.readouterr().out == block.text


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
