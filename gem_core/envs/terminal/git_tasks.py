"""Tasks with a git repository."""

from __future__ import annotations

from random import Random

from gem_core.envs.terminal.problem import TerminalProblem
from gem_core.envs.terminal.words import join_lines, some, text

_NEW = "git init -q . && git add -A && git commit -q -m 'first version'"


def commit_changes(rng: Random) -> TerminalProblem:
    """Commit what has changed."""
    one, other = some(rng, 2)
    message = f"add {other}"
    return TerminalProblem(
        "This folder is a git repository with changes that are not committed. Commit all of them, "
        f"new files included, in one commit with the message: {message}",
        {f"{one}.txt": join_lines(text(rng, 2))},
        ["git add -A", f"git commit -m '{message}'"],
        setup=f"{_NEW} && echo more >> {one}.txt && echo {other} > {other}.txt",
        probes=[
            ("git status --porcelain", ""),
            ("git log --format=%s", f"{message}\nfirst version"),
        ],
    )


def make_branch(rng: Random) -> TerminalProblem:
    """Make a branch with a commit, and leave the main branch alone."""
    name, branch = some(rng, 2)
    line = " ".join(text(rng, 1, 3))
    return TerminalProblem(
        f"This folder is a git repository. Make a branch called {branch}, and on it commit a new "
        f"file {name}.txt with the line: {line}\nThe branch main must stay as it is.",
        {"readme.txt": "read me\n"},
        [
            f"git checkout -b {branch}",
            f"echo '{line}' > {name}.txt && git add {name}.txt && git commit -m 'add {name}'",
        ],
        setup=_NEW,
        probes=[
            (f"git show {branch}:{name}.txt", line),
            ("git ls-tree --name-only main", "readme.txt"),
            ("git rev-list --count main", "1"),
        ],
    )


def find_commit(rng: Random) -> TerminalProblem:
    """Find the commit that brought a line."""
    words = some(rng, 6)
    chosen = rng.randrange(1, 6)
    steps = [
        f"echo {word} >> list.txt && git commit -q -a -m 'change {number}'"
        for number, word in enumerate(words[1:], 1)
    ]
    return TerminalProblem(
        f"This folder is a git repository. Which commit added the line {words[chosen]} to "
        "list.txt? Write the first line of its message to answer.txt.",
        {"list.txt": f"{words[0]}\n"},
        [f"git log -S {words[chosen]} --format=%s -- list.txt | head -n 1 > answer.txt"],
        setup=" && ".join([_NEW, *steps]),
        wanted={"answer.txt": f"change {chosen}"},
    )


def restore_file(rng: Random) -> TerminalProblem:
    """Bring back a file that an earlier commit deleted."""
    name, other = some(rng, 2)
    content = join_lines(text(rng, 3))
    return TerminalProblem(
        f"This folder is a git repository. The file {name}.txt was deleted in an earlier commit. "
        "Bring it back with its last content; you need not commit it.",
        {f"{name}.txt": content, f"{other}.txt": f"{other}\n"},
        [
            f"commit=$(git rev-list -n 1 HEAD -- {name}.txt)",
            f'git checkout "$commit^" -- {name}.txt',
        ],
        setup=f"{_NEW} && git rm -q {name}.txt && git commit -q -m 'clean up' && "
        f"echo more >> {other}.txt && git commit -q -a -m 'more'",
        wanted={f"{name}.txt": content},
    )


def merge_branch(rng: Random) -> TerminalProblem:
    """Merge a branch and delete it."""
    branch, one, other = some(rng, 3)
    return TerminalProblem(
        f"This folder is a git repository. Merge the branch {branch} into main, and delete the "
        "branch afterwards.",
        {"readme.txt": "read me\n"},
        ["git checkout -q main", f"git merge -q --no-edit {branch}", f"git branch -d {branch}"],
        setup=f"{_NEW} && git checkout -q -b {branch} && echo {one} > {one}.txt && git add -A && "
        f"git commit -q -m 'add {one}' && git checkout -q main && echo {other} > {other}.txt && "
        f"git add -A && git commit -q -m 'add {other}'",
        probes=[
            (f"git show main:{one}.txt main:{other}.txt", f"{one}\n{other}"),
            ("git for-each-ref --format='%(refname:short)' refs/heads", "main"),
        ],
    )


TASKS = (
    commit_changes,
    make_branch,
    find_commit,
    restore_file,
    merge_branch,
)
