"""``benchmarks/gpu/run.py`` where trainers fail: it records each, and goes on."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / "gpu"
PROGRAM = FOLDER / "run.py"
sys.path.insert(0, str(FOLDER))
from watch import GpuWatch  # noqa: E402

VERDICT = {
    "python": "3.11.7",
    "trainers": [{"ready": True, "version": "1", "state": "ready on GPU", "problems": []}],
}
MISSING = {"text": "vllm is not installed", "fix": "pip install vllm==0.29.0"}


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def interpreters(tmp_path):
    """Programs in the place of interpreters: one crashes, one hangs, one is not ready."""
    ready, verdict = tmp_path / "ready.json", tmp_path / "verdict.json"
    ready.write_text(json.dumps(VERDICT))
    refused = {**VERDICT["trainers"][0], "ready": False, "state": "x", "problems": [MISSING]}
    verdict.write_text(json.dumps({**VERDICT, "trainers": [refused]}))
    asked = f'case "$*" in *doctor*) cat {ready}; exit 0;; esac\n'
    return {
        "trl": script(tmp_path / "crashes", f"{asked}echo CUDA out of memory >&2; exit 3"),
        "verl": script(tmp_path / "hangs", f"{asked}echo loading; sleep 600"),
        "rl2": script(tmp_path / "refuses", f"cat {verdict}; exit 1"),
    }


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), "--allow-dirty", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environ}, timeout=300
    )


def test_each_failure_is_recorded_and_the_others_go_on(tmp_path, interpreters):
    out = tmp_path / "out"
    given = [f"--python={name}={path}" for name, path in interpreters.items()]
    trainers = ("--trainers", "trl", "verl", "oat", "rl2")
    done = run("--cpu", "--start-minutes", "0.03", "--out", str(out), *trainers, *given,
               GEM_CORE_ENVS=str(tmp_path / "none"))  # fmt: skip
    assert done.returncode == 1, done.stderr
    said = {name: json.loads((out / f"{name}.json").read_text()) for name in trainers[1:]}
    status = {name: row["status"] for name, row in said.items()}
    assert status == {"trl": "failed", "verl": "late", "oat": "no environment", "rl2": "not ready"}
    assert said["trl"]["log"] == ["CUDA out of memory"] and said["trl"]["exit"] == 3
    assert said["verl"]["log"] == ["loading"] and said["verl"]["exit"] is None
    assert said["verl"]["first_step_s"] is None
    assert said["rl2"]["log"] == ["vllm is not installed  pip install vllm==0.29.0"]
    page = (out / "summary.md").read_text()
    assert "## trl: failed" in page and "CUDA out of memory" in page and "pip install vllm" in page
    machine = json.loads((out / "machine.json").read_text())
    known = {"platform", "processor", "cores", "gpus", "commit", "rehearsal", "variables"}
    assert set(machine) == known | {"started", "random_model"} and machine["rehearsal"] is True
    assert page.splitlines()[2].startswith("**Rehearsal on a CPU, not a GPU result:")


FIRST_STEP = "for run; do :; done; mkdir -p $run; echo '{}' > $run/metrics.jsonl"
"""In a program: what a trainer has written after its first step."""


@pytest.fixture
def card(tmp_path, monkeypatch):
    """A machine with GPUs whose memory is in use while a process lives that has put its id down."""
    taken = tmp_path / "taken"
    used = f"if kill -0 $(cat {taken}); then echo 70000; else echo 500; fi"
    lists = f'echo "$*" >> {tmp_path}/asked; case "$*" in *-lms*) exec sleep 600;; esac'
    names = 'case "$*" in *query-gpu=name*) echo "NVIDIA X"; exit 0;; esac'
    binaries = tmp_path / "bin"
    binaries.mkdir()
    script(binaries / "nvidia-smi", f"{lists}; {names}; {{ {used}; }} 2>/dev/null")
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    return ["--model", str(model), "--out", str(tmp_path / "out")]


def trainer(tmp_path, name, text):
    """An interpreter in which the doctor is content and the trainer does ``text``."""
    verdict = tmp_path / "ready.json"
    verdict.write_text(json.dumps(VERDICT))
    path = script(tmp_path / name, f'case "$*" in *doctor*) cat {verdict}; exit 0;; esac\n{text}')
    return f"--python={name}={path}"


def test_the_next_trainer_finds_the_memory_free_that_a_killed_one_held(tmp_path, card):
    """The first starts a process in a session of its own, as Ray does, which ignores SIGTERM."""
    holder = f"trap '' TERM; echo $$ > {tmp_path}/taken; while :; do sleep 1; done"
    held = f"until [ -s {tmp_path}/taken ]; do :; done; {FIRST_STEP}; sleep 600"
    given = [
        trainer(tmp_path, "trl", f'setsid sh -c "{holder}" & {held}'.replace("$$", "\\$\\$")),
        trainer(tmp_path, "verl", "nvidia-smi -i 0 --query-gpu=memory.used; exit 3"),
    ]
    done = run(*card, "--minutes", "0", "--trainers", "trl", "verl", *given)
    assert done.returncode == 1, done.stderr
    first, second = (json.loads((tmp_path / f"out/{n}.json").read_text()) for n in ("trl", "verl"))
    assert first["status"] == "late" and first["exit"] is None and first["left"] >= 1
    assert first["first_step_s"] > 0
    assert first["memory"] == {"before_mib": 500, "after_mib": 500, "free": True}
    assert second["log"] == ["500"]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "taken").read_text()), 0)


def test_a_slow_start_is_no_hang(tmp_path, card):
    """No minute is left after the first step, and any number before it."""
    slow = trainer(tmp_path, "trl", "echo compiling; exit 3")
    hangs = trainer(tmp_path, "verl", f"{FIRST_STEP}; sleep 600")
    run(*card, "--minutes", "0", "--trainers", "trl", "verl", slow, hangs)
    first, second = (json.loads((tmp_path / f"out/{n}.json").read_text()) for n in ("trl", "verl"))
    assert first["rehearsal"] is False
    assert "ehearsal" not in (tmp_path / "out/summary.md").read_text()
    assert (first["status"], first["exit"], first["first_step_s"]) == ("failed", 3, None)
    assert (second["status"], second["exit"]) == ("late", None)
    assert second["first_step_s"] > 0


@pytest.mark.parametrize(
    ("mine", "given", "seen"),
    [(None, [], "0"), ("3,1", [], "3"), ("3,1", ["--gpu", "5"], "5")],
)
def test_a_trainer_sees_one_gpu_which_is_the_one_that_is_watched(
    tmp_path, card, monkeypatch, mine, given, seen
):
    if mine is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mine)
    says = trainer(tmp_path, "trl", "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER; exit 3")
    run(*card, *given, "--trainers", "trl", says)
    assert json.loads((tmp_path / "out/trl.json").read_text())["log"] == [f"{seen} PCI_BUS_ID"]
    asked = [line for line in (tmp_path / "asked").read_text().splitlines() if "memory" in line]
    assert asked and all(line.startswith(f"-i {seen} ") for line in asked)


def test_a_variable_reaches_the_trainer_and_the_report(tmp_path, card):
    says = trainer(tmp_path, "trl", "echo runner $VLLM_USE_V2_MODEL_RUNNER; exit 3")
    run(*card, "--variable", "VLLM_USE_V2_MODEL_RUNNER=0", "--trainers", "trl", says)
    assert json.loads((tmp_path / "out/trl.json").read_text())["log"] == ["runner 0"]
    machine = json.loads((tmp_path / "out/machine.json").read_text())
    assert machine["variables"] == ["VLLM_USE_V2_MODEL_RUNNER=0"]
    assert "; `VLLM_USE_V2_MODEL_RUNNER=0`." in (tmp_path / "out/summary.md").read_text()


def test_each_trainer_runs_with_both_values_of_a_variable(tmp_path, card):
    says = trainer(tmp_path, "trl", "echo runner $X_RUNNER $OTHER; exit 3")
    other = trainer(tmp_path, "verl", "echo second $X_RUNNER; exit 3")
    run(*card, "--variable", "OTHER=o", "--each", "X_RUNNER=0,1", "--trainers", "trl", "verl",
        says, other)  # fmt: skip
    rows = {p.stem: json.loads(p.read_text()) for p in (tmp_path / "out").glob("*-*.json")}
    assert {name: row["log"] for name, row in rows.items()} == {
        "trl-0": ["runner 0 o"], "trl-1": ["runner 1 o"],
        "verl-0": ["second 0"], "verl-1": ["second 1"],
    }  # fmt: skip
    page = (tmp_path / "out/summary.md").read_text()
    found = [
        line.split(" | ")[0] for line in page.splitlines() if "X_RUNNER" in line and "|" in line
    ]
    assert found == [f"| {name}, `X_RUNNER={n}`" for name in ("trl", "verl") for n in (0, 1)]
    assert "## verl, `X_RUNNER=1`: failed" in page


def test_a_rehearsal_hides_the_gpus(tmp_path, card):
    says = trainer(tmp_path, "trl", 'echo "sees [$CUDA_VISIBLE_DEVICES]"; exit 3')
    run("--cpu", "--out", str(tmp_path / "out"), "--trainers", "trl", says)
    assert json.loads((tmp_path / "out/trl.json").read_text())["log"] == ["sees []"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either --model PATH or --random-model (on a GPU) or --cpu"),
        (("--cpu", "--model", "x"), "give either --model PATH"),
        (("--model", "/no/model"), "/no/model is not the directory of a model"),
        (("--cpu", "--steps", "1"), "--steps must be 2 or more"),
        (("--cpu", "--variable", "=1"), "--variable =1 is not NAME=VALUE"),
        (("--cpu", "--variable", "X"), "--variable X is not NAME=VALUE"),
        (("--cpu", "--each", "X=1"), "X=1 is not NAME=VALUE,VALUE"),
        (("--cpu", "--each", "X=1,a/b"), "X=1,a/b is not NAME=VALUE,VALUE"),
        (("--cpu", "--python", "tlr=x"), "--python tlr=x is not NAME=PATH"),
    ],
)
def test_wrong_arguments_say_what_to_give(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2 and message in done.stderr


def test_the_watch_keeps_the_peak_of_each_gpu(tmp_path, monkeypatch):
    lines = ("0, 500, 0", "1, 600, 0", "0, 70000, 90", "1, 650, 10", "0, 400, 60", "0, [N/A], 1")
    echo = "; ".join(f'echo "{line}"' for line in lines)
    script(tmp_path / "nvidia-smi", f"{echo}; touch {tmp_path}/told; exec sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with GpuWatch() as watch:
        while not (tmp_path / "told").exists():
            pass
    first, second = watch.data()["0"], watch.data()["1"]
    assert first == {"start_mib": 500, "peak_mib": 70000, "busy_percent": 50, "samples": 3}
    assert second == {"start_mib": 600, "peak_mib": 650, "busy_percent": 5, "samples": 2}
    with GpuWatch(enabled=False) as nothing:
        pass
    assert nothing.data() is None
