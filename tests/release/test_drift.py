"""What moved in a trainer is found, and what did not is not reported."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
griffe = pytest.importorskip("griffe", reason="griffelib is in the environment of the core")
import drift  # noqa: E402
from drift_radar.by_hand import FIELDS, OTHER_SOURCE  # noqa: E402
from drift_radar.compare import compare  # noqa: E402
from drift_radar.page import HEAD, Checked, page  # noqa: E402
from drift_radar.release import Release, download  # noqa: E402
from drift_radar.seams import Adapter  # noqa: E402

TRAINER = {
    "trl/__init__.py": "from .base import GRPOConfig, GRPOTrainer",
    "trl/base.py": """
from dataclasses import dataclass
from elsewhere import engine

@dataclass
class Common:
    learning_rate: float = 1e-6

@dataclass
class GRPOConfig(Common):
    beta: float = 0.0
    temperature: float = 1.0

class Base:
    def save(self, folder):
        return folder

    def start(self):
        self.ready = True

class GRPOTrainer(Base):
    def __init__(self, model, args=None):
        self.model = model

    def score(self, rows, size=1):
        "Score them."
        return rows

    def only_here(self, one):
        return {"log_probs": one}

def pad(rows, value):
    return rows

def mask(rows):
    return rows
""",
}
ADAPTER = {
    "__init__.py": "",
    "_compat.py": """
from trl import GRPOConfig, GRPOTrainer
CHECKED = {"trl.base:mask": "rows"}

def repair(module):
    module.pad = lambda rows, value: rows
    return module.engine
""",
    "trainer.py": """
import trl.base
from gem_trl._compat import GRPOTrainer, repair

class Mixin:
    def save(self, folder):
        return super().save(folder)

class Gem(Mixin, GRPOTrainer):
    def score(self, rows, size=1):
        return super().score(rows)

    def first(self, other):
        repair(trl.base)
        return self.ready, self.model, other.only_here(1)["log_probs"]
""",
}


FILES = {"beta": "key_table.py", "temperature": "key_table.py", "trl.GRPOConfig": "_compat.py"}
"""What moves -> the file of the adapter that uses it; for the rest see the test."""


def wheel(folder: Path, version: str, *changes: tuple[str, str]) -> Release:
    """Return a release whose ``base.py`` has the changes; each must apply."""
    file = folder / f"trl-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in TRAINER.items():
            for before, after in changes if name == "trl/base.py" else ():
                assert before in text
                text = text.replace(before, after)
            archive.writestr(name, text)
    return Release(file, folder / version)


@pytest.fixture
def adapter(tmp_path: Path) -> Adapter:
    (tmp_path / "adapter").mkdir()
    for name, text in ADAPTER.items():
        (tmp_path / "adapter" / name).write_text(text)
    return Adapter("trl", tmp_path / "adapter")


def test_the_same_release_has_not_moved(adapter: Adapter, tmp_path: Path) -> None:
    release = wheel(tmp_path, "1.0")
    report = compare("trl", adapter.seams(drift.packages(release)), release, release)
    assert (report.findings, report.lost) == ([], [])
    assert report.followed >= 15


@pytest.mark.parametrize(
    ("before", "after", "level", "path"),
    [
        ("def score(", "def score_rows(", "gone", "trl.GRPOTrainer.score"),
        ("rows, size=1", "rows", "changed", "trl.GRPOTrainer.score"),
        ("rows, size=1", "size, rows=1", "changed", "trl.GRPOTrainer.score"),
        ("rows, size=1", "rows, *, size=1", "changed", "trl.GRPOTrainer.score"),
        ("return rows\n\n    def", "return 0\n\n    def", "note", "trl.GRPOTrainer.score"),
        ("def save(self, folder)", "def save(self, folder, to)", "changed", "trl.GRPOTrainer.save"),
        ("class GRPOTrainer(Base)", "class GRPOTrainer", "gone", "trl.GRPOTrainer.save"),
        ("self.ready", "self.is_ready", "gone", "trl.GRPOTrainer.ready"),
        ("self.model = model", "self.policy = model", "gone", "trl.GRPOTrainer.model"),
        ("only_here(self, one)", "only_here(self)", "changed", "only_here"),
        ("only_here", "elsewhere_now", "gone", "only_here"),
        ('"log_probs"', '"logprobs"', "gone", "log_probs"),
        ("def pad(", "def fill(", "gone", "trl.base.pad"),
        ("def pad(rows, value)", "def pad(rows, value, at=0)", "changed", "trl.base.pad"),
        ("def mask(rows)", "def mask(rows, at)", "changed", "trl.base.mask"),
        ("import engine", "import motor", "gone", "trl.base.engine"),
        ("beta: float", "kl: float", "gone", "beta"),
        ("class GRPOConfig(", "class Config(", "gone", "trl.GRPOConfig"),
        ("temperature: float = 1.0", "temperature: float = 2", "note", "temperature"),
    ],
)  # fmt: skip
def test_what_moved_is_named_with_the_file_that_uses_it(
    adapter: Adapter, tmp_path: Path, before: str, after: str, level: str, path: str
) -> None:
    old, new = wheel(tmp_path, "1.0"), wheel(tmp_path, "1.1", (before, after))
    if path == "trl.GRPOConfig":
        (new.roots[0] / "trl" / "__init__.py").write_text("from .base import GRPOTrainer")
    report = compare("trl", adapter.seams(drift.packages(old)), old, new)
    found = [f for f in report.findings if (f.level, f.path) == (level, path)]
    file = FILES.get(path, "_compat.py" if path.startswith("trl.base.") else "trainer.py")
    assert found and any(file in place for f in found for place in f.places), report.findings
    assert bool(report.drift) is (level != "note")


def test_what_the_pinned_release_does_not_have_is_said(adapter: Adapter, tmp_path: Path) -> None:
    release = wheel(tmp_path, "1.0", ("def mask(", "def hide("))
    report = compare("trl", adapter.seams(drift.packages(release)), release, release)
    assert {seam.path for seam in report.lost} == {"trl.base.mask"}


def test_the_page_names_what_moved(adapter: Adapter, tmp_path: Path) -> None:
    old, new = wheel(tmp_path, "1.0"), wheel(tmp_path, "1.1", ("def score(", "def rate("))
    report = compare("trl", adapter.seams(drift.packages(old)), old, new)
    text = page([Checked("trl", "1.0", "1.1", report)], "2026-01-02")
    assert "Checked on 2026-01-02" in text and "## trl 1.0 -> 1.1" in text
    assert re.search(r"^- gone: trl.GRPOTrainer.score: .*trainer.py:\d+", text, re.MULTILINE)


def test_the_page_says_what_is_not_compared() -> None:
    text = drift.PAGE.read_text(encoding="utf-8")
    assert text.startswith(HEAD.split("Checked on")[0]), "run python scripts/drift.py --write"
    assert "inherits from transformers" in text and "`integrations/gem_rl2/newer/`" in text
    assert OTHER_SOURCE == {"rl2": ("newer",)} and FIELDS["trl"] == "trl.GRPOConfig"
    assert all(
        (ROOT / "integrations" / f"gem_{n}" / f).is_dir() for n, (f,) in OTHER_SOURCE.items()
    )


def test_the_page_has_the_pinned_version_of_each_trainer() -> None:
    text = drift.PAGE.read_text(encoding="utf-8")
    for name in drift.TRAINERS:
        distribution = __import__(f"gem_{name}").TRAINER.distribution
        pinned = drift.pinned_version(name, distribution)
        assert f"| {distribution} | {pinned} |" in text, "run python scripts/drift.py --write"


ALTERED = {
    "verl": ("trainer/ppo/v1/replay_buffer.py", "def sample(", "def draw("),
    "openrlhf": ("trainer/ppo_trainer.py", "def save_logs_and_checkpoints(", "def save_all("),
    "trl": ("trainer/grpo_trainer.py", "def _generate_single_turn(", "def _generate_turn("),
    "oat": ("algorithms/ppo.py", "def compute_ppo_advantages(", "def ppo_advantages("),
    "rl2": ("workers/base.py", "def optimizer_step(", "def step_optimizer("),
}
"""Trainer -> file of its wheel, and what is put in the place of what."""


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ALTERED)
def test_a_pinned_wheel_shows_no_drift_and_an_altered_one_does(
    trainer: str, tmp_path: Path
) -> None:
    distribution = __import__(f"gem_{trainer}").TRAINER.distribution
    pinned = drift.pinned_version(trainer, distribution)
    file = download(f"{distribution}=={pinned}", tmp_path / "wheels")
    old, new = Release(file, tmp_path / "old"), Release(file, tmp_path / "new")
    seams = Adapter(trainer).seams(drift.packages(old))
    same = compare(trainer, seams, old, old)
    assert (same.findings, same.lost) == ([], [])
    name, before, after = ALTERED[trainer]
    (path,) = [p for root in new.roots for p in root.glob(f"*/{name}")]
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")
    moved = compare(trainer, seams, old, new).drift
    assert moved and all(f"integrations/gem_{trainer}/" in f.places[0] for f in moved)
