"""The file of episodes has what was appended: after a kill, after damage, from an older version."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import random
import signal
import time

import pytest

from gem_core.errors import RunError
from gem_core.runs.directory import episode_store as store
from gem_core.runs.directory.episode_columns import COLUMNS, columns_of


def record(index, text="x"):
    return {
        "step": 1,
        "split": "train",
        "env_id": "game:Test-v0",
        "stop_reason": "terminated",
        "index": index,
        "success": True,
        "turns": [{"observation": text, "action": "é\n", "reward": 0.5}] * 2,
        "segments": [{"spans": [[0, 2, 5]]}],
    }


def indices(folder):
    return [row["index"] for row in store.read_records(store.episodes_file(folder))]


def blocks(folder):
    with (folder / store.FILE).open("rb") as file:
        return list(store.scan(file))


def test_it_is_a_gzip_file_of_the_lines_that_were_appended(tmp_path):
    generator = random.Random(0)
    records = [record(k, "ab" * generator.randrange(40)) for k in range(600)]
    store.append(tmp_path, records[:1])
    store.append(tmp_path, records[1:])
    with gzip.open(tmp_path / store.FILE, "rt") as file:
        assert [json.loads(line) for line in file] == records
    assert list(store.read_records(tmp_path / store.FILE)) == records
    assert [block.lines for block in blocks(tmp_path)] == [1, 256, 256, 87]


def test_the_header_of_a_block_has_the_columns_of_its_lines(tmp_path):
    special = {**record(1), "seed": 2**70, "turns": [{"reward": float("inf")}]}
    store.append(tmp_path, [record(0), special, {"no": "episode"}])
    (block,) = blocks(tmp_path)
    lines = block.text()[:-1].split(b"\n")
    rows = block.rows()
    assert rows == [(len(line), columns_of(line)) for line in lines]
    first = dict(zip(COLUMNS, rows[0][1], strict=True))
    assert (first["reward"], first["tokens"], first["turns"]) == (1.0, 3, 2)
    assert rows[1][1][COLUMNS.index("seed")] == str(2**70)
    assert rows[2][1] is None


def test_names_beyond_the_size_of_a_header_are_read_from_the_lines(tmp_path):
    generator = random.Random(0)
    names = ["".join(chr(generator.randrange(33, 0x2FFF)) for _ in range(20_000)) for _ in "abc"]
    store.append(tmp_path, [{**record(k), "env_id": name} for k, name in enumerate(names)])
    (block,) = blocks(tmp_path)
    assert [columns[COLUMNS.index("env")] for _, columns in block.rows()] == names


@pytest.mark.parametrize("kept", [1, 20, 60, -1])
def test_an_incomplete_block_is_left_out_and_removed_by_a_repair(tmp_path, kept):
    store.append(tmp_path, [record(0)])
    path = tmp_path / store.FILE
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:kept])
    assert indices(tmp_path) == [0]
    store.repair(tmp_path)
    assert path.read_bytes() == whole
    store.append(tmp_path, [record(1)])
    assert indices(tmp_path) == [0, 1]


def test_damage_inside_is_an_error_and_the_other_blocks_are_found(tmp_path):
    for k in range(4):
        store.append(tmp_path, [record(k)])
    second = blocks(tmp_path)[1]
    path = tmp_path / store.FILE
    content = bytearray(path.read_bytes())
    del content[second.start + 30 : second.end - 3]  # a torn block, after which others were added
    path.write_bytes(content)
    with pytest.raises(RunError, match="is damaged before byte"):
        indices(tmp_path)
    found = blocks(tmp_path)
    assert [json.loads(block.text())["index"] for block in found] == [0, 2, 3]
    assert [block.damaged for block in found] == [False, True, False]


def test_a_changed_byte_is_an_error(tmp_path):
    store.append(tmp_path, [record(0)])
    path = tmp_path / store.FILE
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match="damaged"):
        indices(tmp_path)


def test_lines_of_an_older_version_are_read_and_move_into_blocks(tmp_path):
    plain = tmp_path / store.PLAIN_FILE
    plain.write_text("".join(json.dumps(record(k)) + "\n" for k in range(3)) + '{"step": 1, "sp')
    assert indices(tmp_path) == [0, 1, 2]
    store.append(tmp_path, [record(3)])
    assert indices(tmp_path) == [0, 1, 2, 3]
    assert not plain.exists()


def test_a_conversion_that_was_killed_loses_and_repeats_nothing(tmp_path):
    plain = tmp_path / store.PLAIN_FILE
    plain.write_text("".join(json.dumps(record(k)) + "\n" for k in range(300)))
    lines = plain.read_bytes()
    (tmp_path / f"{store.FILE}.partial").write_bytes(b"half")
    store.append(tmp_path, [record(300)])
    plain.write_bytes(lines)  # killed before it was deleted
    assert indices(tmp_path) == list(range(301))
    store.append(tmp_path, [record(301)])
    assert indices(tmp_path) == list(range(302))
    assert [block.lines for block in blocks(tmp_path)] == [256, 44, 1, 1]


def _append_forever(folder):
    generator = random.Random(0)
    number = 0
    while True:
        texts = [generator.randbytes(20_000).hex() for _ in range(4)]
        store.append(folder, [record(number + k, text) for k, text in enumerate(texts)])
        number += 4
        (folder / "appended").write_text(str(number))


def test_a_killed_writer_loses_at_most_its_last_block(tmp_path):
    context = multiprocessing.get_context("fork")
    generator = random.Random(1)
    for attempt in range(4):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        process = context.Process(target=_append_forever, args=(folder,))
        process.start()
        while not (folder / "appended").exists():
            time.sleep(0.005)
        time.sleep(generator.uniform(0.0, 0.1))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        appended = int((folder / "appended").read_text() or 0)  # empty: killed as it was written
        found = indices(folder)
        assert found == list(range(len(found)))
        assert len(found) >= max(4, appended)
        store.repair(folder)
        store.append(folder, [record(len(found))])
        assert indices(folder) == [*found, len(found)]
