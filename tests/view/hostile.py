"""Damaged and hostile copies of run folders that the commands wrote, made by systematic changes."""

from __future__ import annotations

import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from gem_core.runs.directory import episode_store as store

Change = Callable[[Path], None]
"""Changes a folder."""
STUDIES = Path(__file__).parents[2] / "benchmarks" / "studies" / "results"
RECORDED = STUDIES / "games" / "trained-on-guessthenumber" / "seed0"
"""What ``gem-core report --record`` kept of a training."""
OBJECTS = ("recipe.json", "run.json", "result.json")
LINES = ("metrics.jsonl", "evals.jsonl")
EPISODES = store.FILE
NEEDED = {"recipe.json": ("name", "env"), "run.json": ("trainer",)}
"""Fields without which a file is damaged."""


def changes(name: str) -> Iterator[tuple[str, Change]]:
    """Yield what can be wrong with the file ``name``, each by a text."""
    yield from _kinds(name)
    if name == EPISODES:
        yield from _blocks(name)
    elif name.endswith(".jsonl"):
        yield from _lines(name)
    else:
        yield from _objects(name)


def _kinds(name: str) -> Iterator[tuple[str, Change]]:
    """Yield what is not a regular file, or not one of a sane size."""

    def replaced(make: Callable[[Path], object]) -> Change:
        def change(folder: Path) -> None:
            (folder / name).unlink(missing_ok=True)
            make(folder / name)

        return change

    yield "a named pipe", replaced(lambda path: os.mkfifo(path))
    yield "a link outside", replaced(lambda path: path.symlink_to("/etc/passwd"))
    yield "a link to endless zeros", replaced(lambda path: path.symlink_to("/dev/zero"))
    yield "a link to itself", replaced(lambda path: path.symlink_to(path))
    yield "a folder", replaced(lambda path: path.mkdir())
    if name != EPISODES:
        yield "a terabyte of holes", lambda folder: os.truncate(folder / name, 1 << 40)


def _bytes(name: str, change: Callable[[bytes], bytes]) -> Change:
    return lambda folder: _write(folder / name, change((folder / name).read_bytes()))


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _objects(name: str) -> Iterator[tuple[str, Change]]:
    yield "cut", _bytes(name, lambda old: old[: len(old) // 2])
    yield "empty", _bytes(name, lambda old: b"")
    yield "zeros", _bytes(name, lambda old: b"\0" * len(old))
    yield "not UTF-8", _bytes(name, lambda old: old[:-2] + b'"\xff\xfe": 1}')
    yield "nested", _bytes(name, lambda old: b'{"a":' * 100_000 + b"1" + b"}" * 100_000)
    yield "digits", _bytes(name, lambda old: b'{"name": ' + b"9" * 100_000 + b"}")
    yield "a list", _bytes(name, lambda old: b"[" + old + b"]")
    yield "null", _bytes(name, lambda old: b"null")
    yield "NaN", _bytes(name, lambda old: b"NaN")
    for field in NEEDED.get(name, ()):
        yield f"without {field}", _field(name, field, None)
    fields = {"recipe.json": ["name", "env", "seed", "algorithm", "train"]}.get(name)
    for field in fields or ["versions", "commit"]:
        yield f"another type of {field}", _field(name, field, [[{}]])
    if name == "result.json":
        yield "seconds of text", _field(name, "seconds", "<script>")
        yield "no metrics", _bytes(name, _without_metrics)


def _field(name: str, field: str, value: object) -> Change:
    def change(old: bytes) -> bytes:
        data = json.loads(old)
        if value is None:
            del data[field]
        else:
            data[field] = value
        return json.dumps(data).encode()

    return _bytes(name, change)


def _without_metrics(old: bytes) -> bytes:
    data = {**json.loads(old), "kind": "evaluation"}
    data.pop("metrics", None)
    return json.dumps(data).encode()


def _lines(name: str) -> Iterator[tuple[str, Change]]:
    def at(place: int, new: bytes) -> Change:
        def change(old: bytes) -> bytes:
            lines = old.splitlines(keepends=True)
            lines[place] = new
            return b"".join(lines)

        return _bytes(name, change)

    yield "cut within", at(0, b'{"step": 1, \n')
    yield "zeros within", at(0, b"\0" * 300 + b"\n")
    yield "not UTF-8", at(-1, b'{"step": 1, "when": "\xff"}\n')
    yield "nested", at(0, b"[" * 100_000 + b"\n")
    yield "digits", at(0, b'{"when": "after", "step": ' + b"9" * 100_000 + b"}\n")
    yield "a huge step", at(0, b'{"when": "after", "step": ' + b"9" * 30 + b"}\n")
    yield "no step", at(0, b'{"when": "after"}\n')
    yield "a step of text", at(0, b'{"when": "after", "step": "1"}\n')
    yield "a list", at(-1, b"[1, 2]\n")
    yield "an endless line", at(0, b'{"a": "' + b"x" * (9 << 20) + b"\n")


def _blocks(name: str) -> Iterator[tuple[str, Change]]:
    record = (
        b'{"step": 1, "split": "eval", "env_id": "a", "stop_reason": "terminated", "index": 0}\n'
    )
    yield "another gzip file", _bytes(name, lambda old: b"\x1f\x8b\x08\x00" + old[4:])
    yield "no gzip file", _bytes(name, lambda old: b"\0" * len(old))
    yield "cut", _bytes(name, lambda old: old[: len(old) // 2])
    yield "a bomb", _bytes(name, lambda old: bomb())
    yield "rows of a bomb", _bytes(name, lambda old: block(record, columns=b"\0" * (20 << 20)))
    yield "rows that are none", _bytes(name, lambda old: block(record, columns=b"\x91\x01"))
    huge = b"\x91\x92\xcf" + b"\xff" * 8 + b"\xc0"
    yield "a row of huge length", _bytes(name, lambda old: block(record, columns=huge))
    yield "more lines than there are", _bytes(name, lambda old: block(record, lines=200))
    yield "lines that are no JSON", _bytes(name, lambda old: block(b"[[[\n"))
    yield "half of a pair", _bytes(name, lambda old: block(record.replace(b'"a"', b'"\\ud800"')))
    yield "huge integers", _bytes(name, lambda old: block(record.replace(b"1,", b"9" * 30 + b",")))


def block(
    text: bytes, *, size: int | None = None, lines: int | None = None, columns: bytes = b""
) -> bytes:
    """Return a block of ``text`` whose header says other things; ``columns`` are its rows."""
    rows = zlib.compress(columns) if columns else b""
    packer = zlib.compressobj(9, wbits=-15)
    deflated = packer.compress(text) + packer.flush()
    size = len(text) if size is None else size
    lines = text.count(b"\n") if lines is None else lines
    field = 16 + len(rows)
    signature = b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff"
    head = struct.pack("<10sH2sH", signature, 4 + field, b"GC", field)
    length = len(head) + field + len(deflated) + 8
    facts = struct.pack("<IIII", length, zlib.crc32(text), size, lines)
    return head + facts + rows + deflated + struct.pack("<II", zlib.crc32(text), size)


def bomb() -> bytes:
    """A block of 78 KB that unpacks to 80 MB."""
    return block(b"\0" * (80 << 20) + b"\n", size=1000)


def write_all(folder: Path, trained: Path, evaluated: Path) -> dict[str, str]:
    """Write a damaged copy per change to ``folder``; return what is wrong with each, by name."""
    wrong: dict[str, str] = {}
    for source, names in ((trained, (*OBJECTS, *LINES)), (evaluated, (*OBJECTS, EPISODES))):
        for name in names:
            for what, change in changes(name):
                target = folder / f"bad{len(wrong):03}"
                shutil.copytree(source, target, symlinks=True)
                change(target)
                wrong[target.name] = f"{source.name}, {name}: {what}"
    for name in ("recipe.json", "run.json"):
        target = folder / f"bad{len(wrong):03}"
        shutil.copytree(trained, target)
        (target / name).unlink()
        wrong[target.name] = f"no {name}"
    return wrong
