"""Episodes with summaries: the list counts actions, the page gets the kind of every turn."""

from __future__ import annotations

from gem_core.episodes.data import Turn
from gem_core.runs.directory.run_dir import RunDir
from gem_view.api import Viewer

from .conftest import changed, make_episode


def test_a_summary_is_shown_and_not_counted(runs):
    run = RunDir(runs / "test" / "trl" / "seed0")
    episode = make_episode(12, 7, seed=6)
    first, second = episode.turns
    summary = Turn(1, "Sum up.", "It is not 3.", kind="summary", aborted=True)
    second.index = 2
    run.log_episodes(4, [changed(episode, turns=[first, summary, second], segments=[])])
    viewer = Viewer([run.path])
    listed = viewer.episodes({"run": "0"})
    rows = [dict(zip(listed["columns"], row, strict=True)) for row in listed["rows"]]
    (shown,) = [row for row in rows if row["step"] == 4]
    assert shown["turns"] == 2
    record = viewer.episode({"run": "0", "id": str(shown["id"])})["record"]
    assert [turn.get("kind") for turn in record["turns"]] == [None, "summary", None]
