"""The walkthrough runs as a script and as a notebook, with the wheel, away from the checkout."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "walkthrough.py"
SMALL = (
    *("train.steps=3", "batch.episodes=24", "eval.episodes=40"),
    *("model.tiny.warm_start_steps=80", "model.tiny.warm_start_batch=16"),
)
PICTURES = ("walkthrough-advantages.svg", "walkthrough-curve.svg")
KERNEL = """
import asyncio, json

async def run_cells():
    # Like a notebook's kernel: an event loop runs in the thread that executes the cells.
    names = {"__name__": "__main__"}
    for cell in json.load(open("walkthrough.ipynb", encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)

asyncio.run(run_cells())
"""


def show(form, away):
    """Run a form; return what it prints, and the folder of its pictures."""
    shutil.copy(form, away.work)
    out = f"out{form.suffix}"
    program = [form.name] if form is SCRIPT else ["-c", KERNEL]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WALKTHROUGH_SET", " ".join(SMALL))
        patch.setenv("WALKTHROUGH_OUT", out)
        patch.setenv("MPLBACKEND", "agg")
        return away.command("python", *program), away.work / out


@pytest.fixture(scope="module")
def shown(away):
    """What the script shows."""
    return show(SCRIPT, away)


def numbers(text, pattern):
    return [float(number) for number in re.findall(pattern, text)]


def without_times(printed):
    """What does not depend on the time of day: all but what the trainer says while it trains."""
    before, trained = printed.split(" (train): ")
    return [*before.splitlines(), *trained.splitlines()[-2:]]


def test_the_script_plays_trains_and_compares_with_a_trainer(shown):
    printed, _ = shown
    assert "turn 4: \\boxed{7}, reward 0.89" in printed
    curve = numbers(printed, r"step +\d+ success (\S+)")
    assert len(curve) == 3
    assert len(set(curve)) > 1  # the weights changed
    by_trl, by_loop = re.findall(r"^(?:TRL|the loop above): \[(\S+), \S+\]$", printed, re.M)
    assert by_trl == by_loop and 0 < float(by_loop) < 1


def test_the_controls_are_those_of_the_game(shown):
    """Four numbers of ten are found without reading; a number that is drawn comes again."""
    printed, _ = shown
    (row,) = (line for line in printed.splitlines() if "trained, greedy" in line)
    rates = dict(re.findall(r"'([^']+)': ([\d.]+)", row))
    assert len(rates) == 6
    assert float(rates["2, 4, 6, 8 always"]) == pytest.approx(0.4, abs=0.2)
    assert 0.1 < float(rates["random player"]) < 0.6


@pytest.mark.slow
def test_the_notebook_shows_the_same_where_an_event_loop_runs(shown, away):
    printed, folder = show(SCRIPT.with_suffix(".ipynb"), away)
    script = without_times(shown[0])
    assert len(script) > 20
    assert script == without_times(printed)
    for name in PICTURES:
        assert (shown[1] / name).read_text() == (folder / name).read_text()


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_are_drawn_and_shown(shown, name):
    words = " ".join(ElementTree.parse(shown[1] / name).getroot().itertext())
    assert ("GRPO" if "advantages" in name else "warm start, greedy") in words
    readme = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert f"../docs/pictures/{name})" in readme


def test_the_picture_of_the_advantages_is_that_of_the_page(shown):
    """No model plays in it, so that it is the same everywhere with this version of matplotlib."""
    name = PICTURES[0]
    drawn = (shown[1] / name).read_text(encoding="utf-8")
    assert drawn == (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8")


@pytest.mark.slow
def test_its_defaults_come_out_above_every_control(tmp_path, away):
    """A minute or two: what the picture of the page shows, sampled and greedy."""
    shutil.copy(SCRIPT, away.work)
    printed = away.command("python", SCRIPT.name)
    (row,) = (line for line in printed.splitlines() if "trained, greedy" in line)
    rates = {name: float(rate) for name, rate in re.findall(r"'([^']+)': ([\d.]+)", row)}
    trained = {name: rates.pop(name) for name in ("trained, sampled", "trained, greedy")}
    assert len(rates) == 4
    assert trained["trained, sampled"] > rates["warm start, sampled"] + 0.2
    assert min(trained.values()) > max(rates.values())
