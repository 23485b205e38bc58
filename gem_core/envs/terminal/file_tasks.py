"""Tasks with files and folders."""

from __future__ import annotations

from random import Random

from gem_core.envs.terminal.problem import TerminalProblem
from gem_core.envs.terminal.words import join_lines, some, text


def collect_logs(rng: Random) -> TerminalProblem:
    """Move all files of one kind into a folder."""
    kind = rng.choice(["log", "dat", "csv"])
    names = some(rng, 7)
    moved = names[:4]
    folders = ["app", "app/server", "web", "web/static/old"]
    files = {
        f"{folder}/{name}.{kind}": join_lines(text(rng, 2))
        for folder, name in zip(folders, moved, strict=True)
    }
    kept = {
        f"{folder}/{name}.txt": f"{name}\n"
        for folder, name in zip(folders, names[4:], strict=False)
    }
    wanted: dict[str, str | None] = {f"collected/{p.rpartition('/')[2]}": files[p] for p in files}
    wanted.update(dict.fromkeys(files))
    wanted.update(kept)
    return TerminalProblem(
        f"Move every file whose name ends in .{kind} from the folders below into a new folder "
        "called collected. Leave all other files where they are.",
        {**files, **kept},
        [
            "mkdir collected",
            f"find . -name '*.{kind}' -not -path './collected/*' -exec mv {{}} collected/ \\;",
        ],
        wanted=wanted,
    )


def largest_file(rng: Random) -> TerminalProblem:
    """Find the largest file of a folder."""
    names = some(rng, 6)
    sizes = rng.sample(range(2, 40), 6)
    files = {
        f"data/{n}.txt": join_lines(text(rng, s, 4)) for n, s in zip(names, sizes, strict=True)
    }
    largest = max(files, key=lambda path: len(files[path]))
    return TerminalProblem(
        "Write the name of the largest file in the folder data, without the folder's name, to "
        "the file answer.txt.",
        files,
        ["ls -S data | head -n 1 > answer.txt"],
        wanted={"answer.txt": largest.removeprefix("data/")},
    )


def rename_endings(rng: Random) -> TerminalProblem:
    """Give files another ending."""
    before, after = rng.sample(["txt", "md", "rst", "text"], 2)
    names = some(rng, 5)
    files = {f"notes/{name}.{before}": f"{name} {rng.randint(1, 99)}\n" for name in names}
    wanted: dict[str, str | None] = {
        f"notes/{n}.{after}": files[f"notes/{n}.{before}"] for n in names
    }
    wanted.update(dict.fromkeys(files))
    return TerminalProblem(
        f"Rename every file in the folder notes from .{before} to .{after}; keep the contents.",
        files,
        [f'cd notes; for f in *.{before}; do mv "$f" "${{f%.{before}}}.{after}"; done'],
        wanted=wanted,
    )


def delete_empty(rng: Random) -> TerminalProblem:
    """Delete the empty files of a tree."""
    names = some(rng, 8)
    folders = ["project", "project/src", "project/src/core", "project/doc"]
    files = {
        f"{folders[i % 4]}/{name}": "" if i < 4 else f"{name}\n" for i, name in enumerate(names)
    }
    wanted: dict[str, str | None] = {path: content or None for path, content in files.items()}
    return TerminalProblem(
        "Delete all empty files in the folder project and in all folders below it, and no others.",
        files,
        ["find project -type f -empty -delete"],
        wanted=wanted,
    )


def count_files(rng: Random) -> TerminalProblem:
    """Count the files of one kind in a tree."""
    kind = rng.choice(["py", "c", "js"])
    counts = [rng.randint(1, 4) for _ in range(3)]
    files = {}
    for folder, count in zip(["src", "src/util", "tests/unit"], counts, strict=True):
        files.update({f"{folder}/{name}.{kind}": f"// {name}\n" for name in some(rng, count)})
        files[f"{folder}/readme.{kind}.txt"] = "read me\n"
    return TerminalProblem(
        f"How many files below this folder have a name that ends in .{kind}? Write the number to "
        "answer.txt.",
        files,
        [f"find . -type f -name '*.{kind}' | wc -l > answer.txt"],
        wanted={"answer.txt": str(sum(counts))},
    )


def make_tree(rng: Random) -> TerminalProblem:
    """Make folders and files by a description."""
    first, second, third, name = some(rng, 4)
    line = " ".join(text(rng, 1))
    return TerminalProblem(
        f"Make the folders {first}/{second} and {first}/{third}. In {first}/{second} make the file "
        f"{name}.txt with the one line: {line}\nIn {first}/{third} make a copy of it called "
        f"{name}.bak.",
        {},
        [
            f"mkdir -p {first}/{second} {first}/{third}",
            f"echo '{line}' > {first}/{second}/{name}.txt",
            f"cp {first}/{second}/{name}.txt {first}/{third}/{name}.bak",
        ],
        wanted={f"{first}/{second}/{name}.txt": line, f"{first}/{third}/{name}.bak": line},
    )


def find_duplicate(rng: Random) -> TerminalProblem:
    """Find the two files with the same content."""
    names = [f"{name}.txt" for name in some(rng, 6)]
    files = {name: join_lines(text(rng, 3)) for name in names}
    one, other = sorted(rng.sample(names, 2))
    files[other] = files[one]
    return TerminalProblem(
        "Two of the files in this folder have the same content. Write their names to answer.txt, "
        "one on each line, in alphabetical order.",
        files,
        [
            "sum=$(md5sum *.txt | cut -d' ' -f1 | sort | uniq -d)",
            'names=$(md5sum *.txt | grep "$sum" | cut -c35- | sort); echo "$names" > answer.txt',
        ],
        wanted={"answer.txt": f"{one}\n{other}"},
    )


def unpack_archive(rng: Random) -> TerminalProblem:
    """Take one file out of an archive."""
    names = some(rng, 5)
    files = {f"backup/{name}.txt": join_lines(text(rng, 2)) for name in names}
    chosen = rng.choice(names)
    return TerminalProblem(
        f"The archive backup.tar.gz holds a file called {chosen}.txt in one of its folders. Put "
        "this file, and no other of the archive, into a folder called restored.",
        files,
        [
            "mkdir restored",
            f"tar -xzOf backup.tar.gz backup/{chosen}.txt > restored/{chosen}.txt",
        ],
        setup="tar -czf backup.tar.gz backup && rm -r backup",
        wanted={f"restored/{chosen}.txt": files[f"backup/{chosen}.txt"]}
        | {f"restored/{name}.txt": None for name in names if name != chosen},
    )


TASKS = (
    collect_logs,
    largest_file,
    rename_endings,
    delete_empty,
    count_files,
    make_tree,
    find_duplicate,
    unpack_archive,
)
