"""The notebook of the walkthrough is what its script says, and a notebook of format 4."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import notebook  # noqa: E402

SCRIPT = notebook.SCRIPT
WRITTEN = json.loads(SCRIPT.with_suffix(".ipynb").read_text(encoding="utf-8"))
CELLS = WRITTEN["cells"]
NEEDED = (
    *("make", "make_vec", "Context", "EpisodeMachine", "play_many", "compute_advantages"),
    *("load_recipe", "run_experiment"),
)
"""What a loop of one's own needs, as in ``tests/test_public_names.py``."""


def code() -> str:
    return "\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code")


def test_it_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert notebook.main(["--check"]) == 0, capsys.readouterr().out


def test_a_notebook_that_differs_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "walk.py"
    script.write_text("# %%\nprint(1)\n")
    monkeypatch.setattr(notebook, "SCRIPT", script)
    assert notebook.main(["--check"]) == 1  # there is none
    assert notebook.main([]) == 0
    assert notebook.main(["--check"]) == 0
    script.write_text("# %%\nprint(2)\n")
    assert notebook.main(["--check"]) == 1
    assert "python scripts/notebook.py" in capsys.readouterr().out


def test_the_cells_have_the_statements_of_the_script_and_no_others() -> None:
    whole = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    assert ast.get_docstring(whole)
    assert len(whole.body) > 50
    assert ast.dump(ast.Module(whole.body[1:], [])) == ast.dump(
        ast.Module(ast.parse(code()).body, [])
    )


def test_it_is_a_notebook_of_format_4() -> None:
    """The required keys of nbformat 4.5, and no outputs."""
    assert (WRITTEN["nbformat"], WRITTEN["nbformat_minor"]) == (4, 5)
    assert WRITTEN["metadata"]["kernelspec"]["name"] == "python3"
    assert WRITTEN.keys() == {"cells", "metadata", "nbformat", "nbformat_minor"}
    common = {"cell_type", "id", "metadata", "source"}
    kinds = {"markdown": common, "code": common | {"execution_count", "outputs"}}
    for cell in CELLS:
        assert cell.keys() == kinds[cell["cell_type"]]
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", cell["id"])
        assert cell["source"] and all(isinstance(line, str) for line in cell["source"])
        assert cell["source"][0].strip() and cell["source"][-1] == cell["source"][-1].strip("\n")
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None
    assert len({cell["id"] for cell in CELLS}) == len(CELLS) > 12


def test_text_is_without_comment_marks_and_says_what_each_part_is() -> None:
    texts = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown"]
    titles = [text.splitlines()[0] for text in texts]
    assert titles[0].startswith("# ")
    assert [title.split(".")[0] for title in titles[1:]] == [f"## {k}" for k in range(1, 8)]
    assert [text for text in texts if "\n# " in text] == []


@pytest.mark.parametrize("name", NEEDED)
def test_the_names_for_a_loop_are_used_from_the_package_itself(name: str) -> None:
    assert f"gem_core.{name}(" in code()


def test_it_imports_what_the_pages_of_the_interface_name() -> None:
    """Away from the checkout there is nothing else to import."""
    interface = "\n".join(
        page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md")
    )
    imported = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(code()))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("gem_")
        for alias in node.names
    ]
    assert len(imported) == 3
    assert [name for name in imported if f"::: {name}\n" not in interface] == []
