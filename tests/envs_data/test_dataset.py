"""Data-set environments: the source of rows, the item played, and its info."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import warnings
from base64 import b64decode
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gem_core
from gem_core.env.interface import Env
from gem_core.envs._data_source import SAMPLES, SampleDataWarning
from gem_core.envs.evaluation import eval_items
from gem_core.envs.players import get_player, play_episode
from gem_core.errors import DataError, UnknownNameError

FAMILIES = ("math", "code", "qa", "logic", "eval")
OWN = (
    "math:Remainders",
    "math:DigitSums",
    "code:Formulas",
    "code:Lists",
    "qa:Almanac",
    "qa:Auction",
    "qa:Ledger",
)
"""Data sets of this project, which are shipped whole."""
IDS = [i for i in gem_core.list_envs() if i.split(":")[0] in FAMILIES and i not in OWN]
TRAIN = "math:GSM8K"
ROWS = [{"problem": f"What is {n} + {n}?", "answer": str(2 * n), "more": n} for n in range(30)]


def sample(env_id: str, **kwargs: object) -> Env:
    return gem_core.make(env_id, dataset="sample", **kwargs)


@pytest.fixture
def jsonl(tmp_path: Path) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n")
    return str(path)


def test_the_ids_are_those_of_gem() -> None:
    assert len([i for i in IDS if i.startswith("eval:")]) == 14
    assert {len([i for i in IDS if i.startswith(f"{f}:")]) for f in ("math", "logic")} == {7, 5}
    assert "eval:Musique" in IDS and "logic:RuleTaker-d5" in IDS


@pytest.mark.parametrize("env_id", IDS)
def test_every_id_plays_its_sample_at_once_and_reports_it(env_id: str) -> None:
    with pytest.warns(SampleDataWarning, match=r"built-in sample.*strict=True"):
        env = gem_core.make(env_id)
    obs, info = env.reset(seed=0)
    assert info["sample"] is True and len(obs) > 10
    assert env.spec is not None and env.spec.data_revision.startswith("sample-")
    assert env.spec.fingerprint() != gem_core.spec(env_id).fingerprint()
    _, reward, terminated, truncated, end = env.step(env.peek())
    assert (reward, terminated, truncated, end["success"]) == (1.0, True, False, True)
    assert end["sample"] is True


@pytest.mark.parametrize("env_id", OWN)
def test_own_data_are_played_without_a_warning(
    env_id: str, recwarn: pytest.WarningsRecorder
) -> None:
    env = gem_core.make(env_id)
    env.reset(seed=0)
    assert [w for w in recwarn if issubclass(w.category, SampleDataWarning)] == []
    _, reward, terminated, truncated, end = env.step(env.peek())
    assert (reward, terminated, truncated, end["success"]) == (1.0, True, False, True)


@pytest.mark.parametrize("env_id", ["math:GSM8K", "qa:HotpotQA", "logic:RuleTaker-d2"])
def test_the_expert_knows_and_chance_does_not(env_id: str) -> None:
    env = sample(env_id)
    expert = get_player("expert", env_id, 0, env=env)
    chance = get_player("random", env_id, 0, env=env)
    assert all(play_episode(env, expert, seed=s).success for s in range(30))
    assert sum(play_episode(env, chance, seed=s).reward for s in range(30)) < 25


def test_every_item_of_every_sample_can_be_answered() -> None:
    for env_id in ("math:GSM8K", "eval:MATH500", "qa:HotpotQA", "eval:QaOpen", "code:Taco8k"):
        env = sample(env_id)
        for options in eval_items(env):
            env.reset(options=options)
            assert env.step(env.peek())[4]["success"], (env_id, options)


def test_train_and_eval_samples_share_no_item() -> None:
    for family in ("math", "code", "qa"):
        train, held_out = (
            {json.loads(line)["question"] for line in path.read_text().splitlines()}
            for path in (SAMPLES / f"{family}.jsonl", SAMPLES / f"{family}-eval.jsonl")
        )
        assert not train & held_out


def test_strict_errors_name_the_remedy() -> None:
    with pytest.raises(DataError, match=r"load_dataset\('axon-rl/GSM-8k'\).*local file"):
        gem_core.make(TRAIN, strict=True)
    # A custom data set is never silently replaced by a sample.
    with pytest.raises(DataError):
        gem_core.make(TRAIN, dataset="somebody/else")


def test_a_local_jsonl_by_the_same_parameter(jsonl: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gem_core.make(TRAIN, dataset=jsonl)
    obs, info = env.reset(options={"index": 3})
    assert obs.startswith("What is 3 + 3?") and "sample" not in info and info["index"] == 3
    assert env.step("\\boxed{6}")[4]["success"]
    assert len(eval_items(env)) == 30 and env.spec.data_revision.startswith("sha256-")


def test_the_same_rows_as_parquet(tmp_path: Path, jsonl: str) -> None:
    path = str(tmp_path / "rows.parquet")
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    one = gem_core.make(TRAIN, dataset=jsonl)
    two = gem_core.make(TRAIN, dataset=path)
    for seed in range(20):
        assert one.reset(seed=seed) == two.reset(seed=seed)


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"q": "1+1?", "a": 2}\n')
    with pytest.raises(DataError, match="no column 'problem'; its columns are q, a"):
        gem_core.make(TRAIN, dataset=str(path))
    env = gem_core.make(TRAIN, dataset=str(path), columns={"question": "q", "answer": "a"})
    env.reset(seed=0)
    assert env.step("\\boxed{2.0}")[4]["success"]
    with pytest.raises(UnknownNameError, match="Did you mean 'question'"):
        gem_core.make(TRAIN, dataset=str(path), columns={"questoin": "q"})


@pytest.mark.parametrize("content", ["", "\n\n", "not json\n", "[1, 2]\n"])
def test_a_broken_file_is_an_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text(content)
    with pytest.raises(DataError):
        gem_core.make(TRAIN, dataset=str(path))
    with pytest.raises(DataError, match="no file"):
        gem_core.make(TRAIN, dataset=str(tmp_path / "absent.jsonl"))


CACHE = """
import datasets, json, shutil, sys
from pathlib import Path
rows, home = json.loads(sys.argv[1]), Path(sys.argv[2])
commit = "0123456789abcdef0123456789abcdef01234567"
made = datasets.Dataset.from_list(rows)
folder = home / "axon-rl___gsm-8k" / "default" / "0.0.0" / commit
folder.mkdir(parents=True)
made.save_to_disk(str(home / "tmp"))
writer = datasets.arrow_writer.ArrowWriter(path=str(folder / "gsm-8k-train.arrow"))
writer.write_table(made.data.table)
writer.finalize()
info = made.info
info.builder_name, info.dataset_name = "parquet", "gsm-8k"
info.config_name, info.version = "default", datasets.Version("0.0.0")
info.splits = {"train": datasets.SplitInfo("train", num_examples=len(rows), dataset_name="gsm-8k")}
name = f"hf://datasets/axon-rl/GSM-8k@{commit}/data/train.parquet"
info.download_checksums = {name: {"num_bytes": 1, "checksum": None}}
info.write_to_directory(str(folder))
"""
PLAY = """
import gem_core, json, warnings
warnings.simplefilter("error")
env = gem_core.make("math:GSM8K", strict=True)
obs, info = env.reset(options={"index": 3})
print(json.dumps([obs, info, env.spec.data_revision, env.item_count]))
gem_core.make("math:GSM8K", strict=True, revision=env.spec.data_revision.partition("@")[2])
for other in ("f" * 40, "v1"):
    try:
        gem_core.make("math:GSM8K", strict=True, revision=other)
    except gem_core.errors.DataError as error:
        assert f"not of the revision {other!r}" in str(error), error
    else:
        raise SystemExit("other rows than those asked for")
"""


def test_the_cache_of_datasets_is_used_offline(tmp_path: Path) -> None:
    environ = {**os.environ, "HF_DATASETS_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    rows = json.dumps(ROWS)
    subprocess.run([sys.executable, "-c", CACHE, rows, str(tmp_path)], check=True, env=environ)
    done = subprocess.run(
        [sys.executable, "-c", PLAY], check=True, env=environ, capture_output=True, text=True
    )
    obs, info, revision, count = json.loads(done.stdout)
    assert obs.startswith("What is 3 + 3?") and "sample" not in info and count == 30
    assert revision == "axon-rl/GSM-8k@0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("parts", [1, 3, 7])
def test_an_evaluation_pass_visits_every_item_once(parts: int) -> None:
    envs = [sample("eval:MATH500") for _ in range(parts)]
    visited = []
    for part, env in enumerate(envs):
        for options in eval_items(env, part=part, parts=parts):
            visited.append(env.reset(options=options)[1]["index"])
    assert sorted(visited) == list(range(len(eval_items(envs[0]))))
    with pytest.raises(ValueError, match="part"):
        eval_items(envs[0], part=parts, parts=parts)


def test_seeds_visit_every_item_once_however_they_are_spread() -> None:
    envs = [sample("eval:AIME24") for _ in range(4)]
    seeds = range(-1, -1 - len(eval_items(envs[0])), -1)
    indices = [envs[k % 4].reset(seed=seed)[1]["index"] for k, seed in enumerate(seeds)]
    assert indices == list(range(len(seeds)))
    env = envs[0]
    env.reset(seed=-1)
    assert [env.reset()[1]["index"] for _ in range(3)] == [1, 2, 3]
    with pytest.raises(TypeError, match="no numbered items"):
        eval_items("game:Sudoku-v0-easy")


def test_training_ids_draw_from_the_seed_alone(jsonl: str) -> None:
    one = gem_core.make(TRAIN, dataset=jsonl)
    drawn = [one.reset(seed=s)[1]["index"] for s in range(200)]
    two = gem_core.make(TRAIN, dataset=jsonl)
    assert drawn == [two.reset(seed=s)[1]["index"] for s in range(200)]
    assert len(set(drawn)) == 30


def test_a_pickled_environment_wants_the_same_data(jsonl: str) -> None:
    env = gem_core.make(TRAIN, dataset=jsonl)
    env.reset(seed=1)
    assert pickle.loads(pickle.dumps(env)).step("\\boxed{1}") == env.step("\\boxed{1}")
    program = "import pickle, sys; pickle.load(sys.stdin.buffer)"
    body = pickle.dumps(env)
    Path(jsonl).write_text('{"problem": "?", "answer": "1"}\n')
    done = subprocess.run([sys.executable, "-c", program], input=body, capture_output=True)
    assert done.returncode and b"install the same data" in done.stderr


def test_a_stored_spec_refuses_other_data(jsonl: str) -> None:
    made = gem_core.make(TRAIN, dataset=jsonl)
    assert made.spec is not None
    again = gem_core.make(gem_core.EnvSpec.from_json(made.spec.to_json()))
    assert again.spec == made.spec
    other = gem_core.EnvSpec(made.spec.id, made.spec.entry_point, made.spec.kwargs, "sha256-00")
    with pytest.raises(DataError, match="Install the same data"):
        gem_core.make(other)


def test_geometry_has_images_as_data(tmp_path: Path) -> None:
    env = sample("math:Geometry3K")
    obs, info = env.reset(seed=0)
    assert obs.startswith("<image>") and info["images"][0]["type"] == "image/png"
    body = b64decode(info["images"][0]["data"])
    assert body.startswith(b"\x89PNG") and "images" not in env.step("\\boxed{1}")[4]
    # Parquet of the Hub has {"bytes", "path"}.
    path = str(tmp_path / "g.parquet")
    row = {"problem": "Find x.", "answer": "1", "images": [{"bytes": body, "path": None}]}
    pq.write_table(pa.Table.from_pylist([row]), path)
    other = gem_core.make("math:Geometry3K", dataset=path)
    obs, info = other.reset(seed=0)
    assert obs.startswith("<image>Find x.") and b64decode(info["images"][0]["data"]) == body


def test_geometry_without_images_must_be_asked_for() -> None:
    env = sample("math:Geometry3K", images="drop")
    obs, info = env.reset(seed=0)
    assert "<image>" not in obs and "images" not in info and not env.shows_images
    assert env.spec.fingerprint() != sample("math:Geometry3K").spec.fingerprint()
    with pytest.raises(UnknownNameError, match="value of images"):
        sample("math:Geometry3K", images="keep")


@pytest.mark.parametrize("kind", ["parquet", "sample", "list"])
def test_images_are_never_dropped_silently(tmp_path: Path, kind: str) -> None:
    cell: object = {"type": "image/png", "data": "aGk="}
    if kind == "parquet":
        cell = {"bytes": b"\x89PNG", "path": None}
    if kind == "list":
        cell = [cell]
    path = str(tmp_path / "rows.parquet")
    row = {"problem": "<image>Find x.", "answer": "1", "figure": cell}
    pq.write_table(pa.Table.from_pylist([row, row]), path)
    with pytest.raises(DataError, match=r"images, in the column 'figure'.*images='drop'"):
        gem_core.make(TRAIN, dataset=path)
    assert gem_core.make(TRAIN, dataset=path, images="drop").reset(seed=0)[0].startswith("<image>")


def test_an_image_in_a_later_row_is_found_when_it_is_played(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"problem": "1 + 1?", "answer": "2", "image": None}]
    rows.append({**rows[0], "image": {"type": "image/png", "data": "aGk="}})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    env = gem_core.make(TRAIN, dataset=str(path))
    env.reset(options={"index": 0})
    with pytest.raises(DataError, match="'image'"):
        env.reset(options={"index": 1})


def test_code_rewards() -> None:
    env = sample("code:CodeContest", partial=True)
    env.reset(options={"index": 0})
    _, reward, terminated, _, info = env.step("print(3)")
    assert (reward, terminated, info["error"]) == (-0.1, True, "invalid_format")
    env.reset(options={"index": 0})
    _, reward, _, _, info = env.step("```python\nprint(3)\n```")
    assert reward == pytest.approx(1 / 3) and info["passed"] == 1 and not info["success"]


def test_answers_of_several_kinds_of_question() -> None:
    qa = sample("qa:NaturalQuestions")
    qa.reset(options={"index": 0})
    _, reward, _, _, info = qa.step("<answer>the city of Lisboa</answer>")
    assert reward == 0.0 and 0 < info["f1"] < 1
    qa = sample("qa:NaturalQuestions", metric="f1", rewards={"format_error": -0.2})
    qa.reset(options={"index": 0})
    assert 0 < qa.step("<answer>the city of Lisboa</answer>")[1] < 1
    qa.reset(options={"index": 0})
    assert qa.step("Lisbon")[1] == -0.2
    assert "<answer>" not in sample("qa:NaturalQuestions", compat="gem-0.1.0").reset(seed=0)[0]
    with pytest.raises(UnknownNameError):
        sample("qa:NaturalQuestions", metric="rouge")
    with pytest.raises(UnknownNameError, match="option of reset"):
        qa.reset(options={"idx": 1})


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 5])
def test_rule_samples_are_balanced(depth: int) -> None:
    rows = (SAMPLES / f"logic-d{depth}.jsonl").read_text().splitlines()
    answers = [json.loads(row)["answer"] for row in rows]
    assert answers.count("True") == answers.count("False") == 8
