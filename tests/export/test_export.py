"""``gem-core export``: episodes as Parquet, read back here and by what others read it with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra parquet")
from pyarrow import parquet

from gem_core.cli import main
from gem_core.episodes.data import Completion, Episode, FinishReason, Segment, StopReason, Turn
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_export.parquet import ROWS, read_parquet


def episode(index: int, turns: int, logprobs: bool = True) -> Episode:
    """One with several segments: each turn has its own, with tokens read and sampled."""
    played = Episode("game:G-v0", None if index == 0 else 2**62 + index, index, index)
    played.final_observation = "größer 😀\n"
    played.seconds = {"env": 0.1, "policy": 1 / 3}
    for number in range(turns):
        segment = Segment()
        segment.add_context([1, 151_644, 3][: number + 1])
        sampled = [7 + number, 8]
        segment.add_action(number, Completion(sampled, [-0.1, -1e-9] if logprobs else None))
        played.segments.append(segment)
        info = {"success": number == 2, "nested": {"list": [1, None, "x"]}, f"own{number}": 0.5}
        played.turns.append(
            Turn(number, f"Guess {number}.", r"\boxed{7}", 0.1 * number - 1e-17, info=info)
        )
    if turns:
        played.turns[-1].terminated = True
        played.turns[-1].finish_reason = FinishReason.LENGTH
        played.success = True
    return played


def make_run(folder: Path, trainer: str = "trl") -> RunDir:
    return RunDir.create(folder, load_recipe("guess-the-number-easy"), trainer)


def advantages_of(episodes: list[Episode]) -> list[list[float]]:
    return [[turn.index - 1 / 3 for turn in one.turns] for one in episodes]


def export(target: Path, *runs: RunDir, options: tuple[str, ...] = ()) -> int:
    return main(["export", *(str(run.path) for run in runs), "--to", str(target), *options])


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run with everything that an episode can have."""
    run = make_run(tmp_path / "one")
    played = [episode(0, 3), episode(1, 1, logprobs=False)]
    run.log_episodes(1, played, advantages=advantages_of(played))
    failed = episode(2, 2)
    failed.exclude()
    failed.stop_reason = StopReason.ENV_ERROR
    failed.error = "it broke"
    run.log_episodes(2, [failed, episode(3, 0)], split="eval")
    return run


def test_episodes_come_back_as_they_were(run: RunDir, tmp_path: Path) -> None:
    target = tmp_path / "all.parquet"
    assert export(target, run) == 0
    found = list(read_parquet(target))
    stored = list(run.episodes(advantages=True))
    assert len(stored) == 4
    assert [one.episode for one in found] == [one for _, one in stored]
    assert [one.advantages for one in found] == [tags.get("advantages") for tags, _ in stored]
    assert [(one.step, one.split) for one in found] == [(t["step"], t["split"]) for t, _ in stored]
    assert {(one.run, one.trainer) for one in found} == {("one", "trl")}
    assert found[0].episode.turns[1].reward == 0.1 - 1e-17
    assert found[1].episode.segments[0].logprobs is None
    assert found[2].episode.segments[1].loss_mask == [0, 0, 0, 0]


def test_a_step_that_was_repeated_counts_once(run: RunDir, tmp_path: Path) -> None:
    again = episode(0, 2)
    run.log_episodes(1, [again], advantages=advantages_of([again]))
    assert export(tmp_path / "all.parquet", run) == 0
    found = [one for one in read_parquet(tmp_path / "all.parquet") if one.episode.index == 0]
    assert [len(one.episode.turns) for one in found] == [2]


def test_several_runs_and_row_groups_are_one_file(run: RunDir, tmp_path: Path) -> None:
    other = make_run(tmp_path / "two", "verl")
    other.log_episodes(1, [episode(index, 1) for index in range(ROWS + 5)])
    target = tmp_path / "all.parquet"
    assert export(target, run, other) == 0
    assert parquet.ParquetFile(target).metadata.num_row_groups == 2
    assert [(one.run, one.trainer) for one in read_parquet(target)] == (
        [("one", "trl")] * 4 + [("two", "verl")] * (ROWS + 5)
    )


def test_one_split_only(run: RunDir, tmp_path: Path) -> None:
    assert export(tmp_path / "all.parquet", run, options=("--split", "eval")) == 0
    assert {one.split for one in read_parquet(tmp_path / "all.parquet")} == {"eval"}


def test_pandas_reads_it(run: RunDir, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    export(tmp_path / "all.parquet", run)
    table = pandas.read_parquet(tmp_path / "all.parquet")
    assert list(table.step) == [1, 1, 2, 2]
    turns = table.explode("turns").turns.dropna()
    assert [turn["reward"] for turn in turns][:3] == [turn.reward for turn in episode(0, 3).turns]
    assert list(table.segments[0][2]["loss_mask"]) == [0, 0, 0, 1, 1]
    assert json.loads(table.turns[0][0]["info"])["nested"] == {"list": [1, None, "x"]}


def test_datasets_reads_it(run: RunDir, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    target = tmp_path / "all.parquet"
    export(target, run)
    rows = datasets.Dataset.from_parquet(str(target), cache_dir=str(tmp_path / "cache"))
    assert rows.num_rows == 4
    (first, second) = (episode(0, 3), episode(1, 1, logprobs=False))
    assert [turn["reward"] for turn in rows[0]["turns"]] == first.rewards
    assert rows[0]["segments"][2]["token_ids"] == first.segments[2].token_ids
    assert rows[0]["segments"][2]["spans"] == [{"turn": 2, "start": 3, "end": 5}]
    assert rows[1]["segments"][0]["logprobs"] is None and rows[1]["seed"] == second.seed


def test_a_file_is_replaced_only_when_asked(run: RunDir, tmp_path: Path) -> None:
    target = tmp_path / "all.parquet"
    target.write_text("mine")
    assert export(target, run) == 2 and target.read_text() == "mine"
    assert export(target, run, options=("--overwrite",)) == 0
    assert len(list(read_parquet(target))) == 4


@pytest.mark.parametrize("seed", [2**63, -(2**70)])
def test_what_does_not_fit_is_named_and_nothing_is_left(
    run: RunDir, tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    large = episode(9, 1)
    large.seed = seed
    run.log_episodes(3, [episode(8, 1), large])
    target = tmp_path / "all.parquet"
    target.write_text("old")
    assert export(target, run, options=("--overwrite",)) == 2
    assert "(step 3, index 9) does not fit into Parquet" in capsys.readouterr().err
    assert target.read_text() == "old" and not list(tmp_path.glob("*.partial"))


def test_half_of_a_surrogate_pair_is_an_error(
    run: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = episode(9, 1)
    odd.turns[0].observation = "\ud83d"
    run.log_episodes(3, [odd])
    assert export(tmp_path / "all.parquet", run) == 2
    assert "index 9) does not fit into Parquet" in capsys.readouterr().err


def test_advantages_of_another_length_are_an_error(
    run: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.log_episodes(3, [episode(9, 2)], advantages=[[1.0]])
    assert export(tmp_path / "all.parquet", run) == 2
    assert "has 2 turns and 1 advantages" in capsys.readouterr().err


def test_what_is_no_run_or_has_no_episodes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "all.parquet"
    assert export(target, RunDir(tmp_path)) == 2
    assert "is not a run directory" in capsys.readouterr().err
    assert export(target, make_run(tmp_path / "run")) == 2
    assert "train.log_episodes" in capsys.readouterr().err
    first, second = make_run(tmp_path / "a" / "run"), make_run(tmp_path / "b" / "run")
    assert export(target, first, second) == 2
    assert "Two of the runs are named 'run'" in capsys.readouterr().err
    assert not target.exists()


def test_another_file_is_not_read(tmp_path: Path) -> None:
    import pyarrow as pa

    from gem_core.errors import GemError

    parquet.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(GemError, match="has not the columns"):
        list(read_parquet(tmp_path / "a.parquet"))
    (tmp_path / "b.parquet").write_text("text")
    with pytest.raises(GemError, match="is no Parquet file"):
        list(read_parquet(tmp_path / "b.parquet"))
