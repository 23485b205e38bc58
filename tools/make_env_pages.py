"""Write the pages of the environments into ``docs/environments``.

    python tools/make_env_pages.py            # play where a score is missing, write the pages
    python tools/make_env_pages.py --check    # exit code 1 if a page is not what it would be

A page per family of games, and one per namespace of the others. The scores are kept in
``scores.json`` beside the pages, by the fingerprint of the environment: they are played again only
when the task changes, or with ``--replay``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import data_pages
from page_parts import WRITTEN, Scores, docstring, kwargs, play, score_table

import gem_core
from gem_core.env_spec import EnvSpec
from gem_core.envs.games.game import Game
from gem_core.players import family

PAGES = Path(__file__).resolve().parent.parent / "docs" / "environments"


def families() -> dict[str, list[EnvSpec]]:
    """Return the specs of every family of games, in the order of the registry."""
    found: dict[str, list[EnvSpec]] = {}
    for env_id in gem_core.list_envs("game:*"):
        found.setdefault(family(env_id), []).append(gem_core.spec(env_id))
    return found


def page(name: str, specs: list[EnvSpec], scores: Scores) -> str:
    """Write the page of a family."""
    first = specs[0]
    cls = first.load()
    summary, arguments = docstring(cls)
    env = gem_core.make(first)
    rules, info = env.reset(seed=0)
    lines = [
        f"# {name}",
        "",
        WRITTEN,
        "",
        summary,
        "",
        "## Variants",
        "",
        "| id | parameters | fingerprint |",
        "|---|---|---|",
        *(f"| `{s.id}` | {kwargs(s)} | `{s.fingerprint()}` |" for s in specs),
        "",
        "`None` is drawn anew at every reset.",
        "",
        "## Scores",
        "",
        *score_table(specs, scores),
        "",
        f"## First prompt (`{first.id}`, seed 0)",
        "",
        "```text",
        rules,
        "```",
        "",
        'The board, in `info["suffix"]`:',
        "",
        "```text",
        info["suffix"],
        "```",
        "",
        "## Parameters",
        "",
        arguments,
    ]
    if isinstance(env, Game):
        shared = docstring(Game)[1]
        rewards = ", ".join(f"`{k}` {v}" for k, v in env._reward.items())
        lines += ["", "Of all games:", "", shared, "", f"Rewards of this game: {rewards}."]
    return "\n".join(lines).rstrip() + "\n"


def index(names: dict[str, list[EnvSpec]], others: dict[str, list[EnvSpec]]) -> str:
    """Write the list of the pages."""
    lines = [
        "# Environments",
        "",
        "<!-- Written by tools/make_env_pages.py. -->",
        "",
        "What differs from GEM 0.1.0: [differences.md](differences.md).",
        "",
        "| family | variants |",
        "|---|---|",
    ]
    for name, specs in names.items():
        variants = ", ".join(s.id.removeprefix(name).lstrip("-") for s in specs)
        lines.append(f"| [{name}]({_file(name)}) | {variants} |")
    lines += ["", "| namespace | what | environments |", "|---|---|---|"]
    for name, specs in others.items():
        title = data_pages.FACTS[name].title
        lines.append(f"| [{name}:]({name}.md) | {title} | {len(specs)} |")
    return "\n".join(lines) + "\n"


def _file(name: str) -> str:
    return name.partition(":")[2].lower() + ".md"


def main() -> int:
    """Write or check all pages."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, report stale pages")
    parser.add_argument("--replay", action="store_true", help="play all scores again")
    args = parser.parse_args()
    names, others = families(), data_pages.namespaces()
    store = PAGES / "scores.json"
    scores: Scores = json.loads(store.read_text()) if store.exists() and not args.replay else {}
    if not args.check:
        specs = [spec for specs in (*names.values(), *others.values()) for spec in specs]
        for spec in specs:
            if spec.fingerprint() not in scores:
                scores[spec.fingerprint()] = play(spec)
                print(f"played {spec.id}", flush=True)
                _store(scores, store)
        _store({spec.fingerprint(): scores[spec.fingerprint()] for spec in specs}, store)
    wanted = {_file(name): page(name, specs, scores) for name, specs in names.items()}
    for name, specs in others.items():
        wanted[f"{name}.md"] = data_pages.page(name, specs, scores)
    wanted["README.md"] = index(names, others)
    stale = [f for f, text in wanted.items() if _read(PAGES / f) != text]
    for file in stale:
        print(f"docs/environments/{file} {'is stale' if args.check else 'written'}")
        if not args.check:
            (PAGES / file).write_text(wanted[file])
    return 1 if args.check and stale else 0


def _store(scores: Scores, store: Path) -> None:
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_text(json.dumps(scores, indent=1) + "\n")


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
