"""Write the pages of the environments to ``docs/environments``.

    python scripts/make_env_pages.py            # play for missing scores, write the pages
    python scripts/make_env_pages.py --check    # exit code 1 if a page is out of date

There is a page per family of games, and one per namespace of the other environments. The scores are
kept in ``scores.json``, by the fingerprint of the environment: they are played again only when the
task changes, or with ``--replay``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import data_pages
from page_parts import WRITTEN, Scores, docstring, kwargs, play, score_table

import gem_core
from gem_core.env.spec import EnvSpec
from gem_core.envs.games.game import Game
from gem_core.envs.players import family

PAGES = Path(__file__).resolve().parent.parent / "docs" / "environments"


def families() -> dict[str, list[EnvSpec]]:
    """Return the specs of every family of games, in the order of the registry."""
    specs: dict[str, list[EnvSpec]] = {}
    for env_id in [*gem_core.list_envs("game:*"), *gem_core.list_envs("memory:*")]:
        specs.setdefault(family(env_id), []).append(gem_core.spec(env_id))
    return specs


def page(name: str, specs: list[EnvSpec], scores: Scores) -> str:
    """Return the page of a family."""
    first = specs[0]
    cls = first.load()
    summary, arguments = docstring(cls)
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
        "`None` is drawn at every reset.",
        "",
        "## Scores",
        "",
        *score_table(specs, scores),
        "",
        *_first_prompt(first),
        "",
        "## Parameters",
        "",
        arguments,
    ]
    env = gem_core.make(first)
    if isinstance(env, Game):
        shared = docstring(Game)[1]
        rewards = ", ".join(f"`{k}` {v}" for k, v in env._reward.items())
        lines += [
            "",
            "Parameters of all games:",
            "",
            shared,
            "",
            f"Rewards of this game: {rewards}.",
        ]
    return "\n".join(lines).rstrip() + "\n"


def _first_prompt(spec: EnvSpec) -> list[str]:
    rules, info = gem_core.make(spec).reset(seed=0)
    return [
        f"## First prompt (`{spec.id}`, seed 0)",
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
    ]


def index(names: dict[str, list[EnvSpec]], others: dict[str, list[EnvSpec]]) -> str:
    """Return the list of the pages."""
    lines = [
        "# Environments",
        "",
        "<!-- Written by scripts/make_env_pages.py. -->",
        "",
        "Write your own: [write/environment.md](../write/environment.md). "
        "Differences from GEM 0.1.0: [differences.md](differences.md).",
        "",
        "| family | variants |",
        "|---|---|",
    ]
    for name, specs in names.items():
        variants = ", ".join(s.id.removeprefix(name).lstrip("-") for s in specs)
        lines.append(f"| [{name}]({_file(name)}) | {variants} |")
    lines += ["", "| namespace | content | environments |", "|---|---|---|"]
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
    names = families()
    others = data_pages.namespaces()
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
    pages = {_file(name): page(name, specs, scores) for name, specs in names.items()}
    for name, specs in others.items():
        pages[f"{name}.md"] = data_pages.page(name, specs, scores)
    pages["README.md"] = index(names, others)
    stale = [f for f, text in pages.items() if _read(PAGES / f) != text]
    for file in stale:
        print(f"docs/environments/{file} {'is stale' if args.check else 'written'}")
        if not args.check:
            (PAGES / file).write_text(pages[file])
    return 1 if args.check and stale else 0


def _store(scores: Scores, store: Path) -> None:
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_text(json.dumps(scores, indent=1) + "\n")


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
