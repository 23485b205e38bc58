"""``gem-core conform`` on the example trainer: what needs no torch, and what the report says."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from gem_conform.checks import CHECKS
from gem_core.cli import main

DECLARED = ("keys", "values", "unknown-keys")


def test_the_list_has_every_check_with_a_sentence(capsys):
    assert main(["conform", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == list(CHECKS)
    assert all(line.endswith(".") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trl", "--only", "gradiant"], "Did you mean 'gradient'?"),
        (["plian"], "Unknown trainer 'plian'"),
        ([], "gem-core list --kind trainers"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["conform", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_example_passes_and_the_report_says_so(plain):
    found = plain("--only", *DECLARED)
    assert found.code == 0, found.output
    assert [row["status"] for row in found.report["checks"]] == ["passed"] * 3
    assert "plain: 3 passed, 0 failed, 0 not applicable." in found.output
    page = (found.folder / "conformance.md").read_text(encoding="utf-8")
    for name in DECLARED:
        status, reason = found.outcome(name)
        assert f"## {name}: {status}\n\n{reason}\n" in page


def test_json_is_the_report(plain):
    found = plain("--only", "keys", "--json")
    assert json.loads(found.output[: found.output.rindex("}") + 1]) == found.report


@pytest.mark.parametrize(
    ("check", "words", "file", "old", "new"),
    [
        (
            "keys",
            "in no row of the key table: ['hardware.offload']",
            "key_table.py",
            '    refused("hardware.offload", _ONE_PROCESS),\n',
            "",
        ),
        (
            "values",
            "algorithm.kl_coef = 0.25: no effect",
            "config.py",
            '    refuse_keys(recipe, "plain", REFUSED)\n',
            "",
        ),
        (
            "values",
            "algorithm.lr_schedule = linear: no effect",
            "key_table.py",
            'copied("algorithm.lr_schedule", "lr_schedule")',
            'computed("algorithm.lr_schedule", "lr_schedule", lambda recipe: "cosine", "always")',
        ),
        (
            "values",
            "algorithm.clip_high = 0.45: refused without its name",
            "config.py",
            "    return TABLE.settings(recipe)",
            '    if recipe.algorithm.clip_high != 0.2:\n        raise RecipeError("no")\n'
            "    return TABLE.settings(recipe)",
        ),
        (
            "unknown-keys",
            "trainer.plain.no_such_key_of_any_trainer is accepted",
            "config.py",
            "native.keys() - NATIVE_DEFAULTS.keys()",
            "()",
        ),
        (
            "unknown-keys",
            "does not say: ['Did you mean'",
            "config.py",
            "no such argument.{hint}",
            "no such argument.",
        ),
        (
            "unknown-keys",
            "the refusal of lr (trainer.plain.lr: the adapter gives it no such argument.)",
            "config.py",
            '    refuse_native(recipe, "plain", NATIVE_OWNED)\n',
            "",
        ),
    ],
)
def test_a_fault_fails_its_check(plain, check, words, file, old, new):
    faults = [(file, old, new)]
    if "computed(" in new:
        faults.append((file, "import KeyTable, applied, copied", "import *  # noqa"))
    found = plain("--only", check, faults=faults)
    assert found.code == 1, found.output
    status, reason = found.outcome(check)
    assert status == "failed" and words in reason, reason


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed here")
def test_a_framework_that_is_missing_fails_the_declaration(plain):
    found = plain("--only", "declaration")
    assert found.code == 1
    status, reason = found.outcome("declaration")
    assert status == "failed" and "torch is not installed" in reason
