"""``gem-core train --trainer trl``: what cannot be trained is refused, and nothing is written."""

from __future__ import annotations

import pytest

from gem_core.cli import main

GUESS = "guess-the-number-easy"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--profile", "tiny", "--set", "model.path=/no/such"], "'/no/such' does not exist"),
        (["--profile", "tiny", "--set", "model.path=nobody/nothing"], "cannot be read: "),
        (["--profile", "paper"], "torch finds no GPU on this machine"),
    ],
)
def test_a_refused_run_is_one_line_and_leaves_nothing(
    tmp_path, capsys, monkeypatch, words, message
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    run = tmp_path / "run"
    code = main(["train", GUESS, "--trainer", "trl", *words, "--run", str(run)])
    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (2, 1) and message in error
    assert not run.exists()
