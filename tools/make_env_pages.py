"""Write a page per family of environments into ``docs/environments``.

    python tools/make_env_pages.py            # play where a score is missing, write the pages
    python tools/make_env_pages.py --check    # exit code 1 if a page is not what it would be

The scores are kept in ``scores.json`` beside the pages, by the fingerprint of the environment: they
are played again only when the task changes, or with ``--replay``.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import gem_core
from gem_core.envs.games.game import Game
from gem_core.players import EXPERTS, family, get_player, play_episode
from gem_core.registration import EnvSpec

PAGES = Path(__file__).resolve().parent.parent / "docs" / "environments"
#: Namespaces that have pages. One whose families need an extra would make the check need it too.
NAMESPACES = ("game",)
EPISODES = {"random": 200, "expert": 30}
_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")

Scores = dict[str, dict[str, Any]]


def families() -> dict[str, list[EnvSpec]]:
    """Return the specs of every family, in the order of the registry."""
    found: dict[str, list[EnvSpec]] = {}
    for env_id in gem_core.list_envs():
        if env_id.split(":")[0] in NAMESPACES:
            found.setdefault(family(env_id), []).append(gem_core.spec(env_id))
    return found


def play(spec: EnvSpec) -> dict[str, Any]:
    """Play the random player and the expert from seed 0 on."""
    found: dict[str, Any] = {"id": spec.id}
    for kind, episodes in EPISODES.items():
        if kind == "expert" and family(spec.id) not in EXPERTS:
            continue
        env = gem_core.make(spec)
        extra = {"env": env} if kind == "random" else {}
        player = get_player(kind, spec.id, seed=0, **extra)
        results = [play_episode(env, player, seed=seed) for seed in range(episodes)]
        found[kind] = {
            "episodes": episodes,
            "reward": round(fmean(r.reward for r in results), 3),
            "success": round(fmean(r.success for r in results), 3),
            "turns": round(fmean(r.turns for r in results), 1),
        }
    return found


def page(name: str, specs: list[EnvSpec], scores: Scores) -> str:
    """Write the page of a family."""
    first = specs[0]
    cls = first.load()
    summary, arguments = _docstring(cls)
    env = gem_core.make(first)
    rules, info = env.reset(seed=0)
    lines = [
        f"# {name}",
        "",
        "<!-- Written by tools/make_env_pages.py: change the class or the tool, not this file. -->",
        "",
        summary,
        "",
        "## Variants",
        "",
        "| id | parameters | fingerprint |",
        "|---|---|---|",
        *(f"| `{s.id}` | {_kwargs(s)} | `{s.fingerprint()}` |" for s in specs),
        "",
        "`None` is drawn anew at every reset.",
        "",
        "## Scores",
        "",
        "| id | player | episodes | mean reward | success | mean turns |",
        "|---|---|---|---|---|---|",
        *(row for s in specs for row in _score_rows(s, scores)),
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
        shared = _docstring(Game)[1]
        rewards = ", ".join(f"`{k}` {v}" for k, v in env._reward.items())
        lines += ["", "Of all games:", "", shared, "", f"Rewards of this game: {rewards}."]
    return "\n".join(lines).rstrip() + "\n"


def _docstring(cls: Any) -> tuple[str, str]:
    """Return what a class says about itself, and its arguments as a list."""
    text = _ROLE.sub(r"`\1`", inspect.getdoc(cls) or "").replace("``", "`")
    summary, _, rest = text.partition("\nArgs:\n")
    items: list[str] = []
    for line in rest.splitlines():
        if re.match(r" {4}\S", line) and not line.strip().startswith("**"):
            argument, _, what = line.strip().partition(": ")
            items.append(f"- `{argument}`: {what}")
        elif re.match(r" {8}", line) and items and not items[-1].endswith("\n"):
            items[-1] += f" {line.strip()}"
        elif line.strip().startswith("**") or not line.startswith(" "):
            break
    return summary.strip(), "\n".join(items)


def _kwargs(spec: EnvSpec) -> str:
    return ", ".join(f"`{name}={value!r}`" for name, value in spec.kwargs.items())


def _score_rows(spec: EnvSpec, scores: Scores) -> list[str]:
    found = scores.get(spec.fingerprint())
    if found is None:
        raise SystemExit(f"No scores of {spec.id}: run python tools/make_env_pages.py")
    columns = ("episodes", "reward", "success", "turns")
    return [
        f"| `{spec.id}` | {kind} | " + " | ".join(str(s[column]) for column in columns) + " |"
        for kind, s in found.items()
        if kind != "id"
    ]


def index(names: dict[str, list[EnvSpec]]) -> str:
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
    store = PAGES / "scores.json"
    scores: Scores = json.loads(store.read_text()) if store.exists() and not args.replay else {}
    if not args.check:
        specs = [spec for specs in names.values() for spec in specs]
        scores = {s.fingerprint(): scores.get(s.fingerprint()) or play(s) for s in specs}
        PAGES.mkdir(parents=True, exist_ok=True)
        store.write_text(json.dumps(scores, indent=1) + "\n")
    wanted = {_file(name): page(name, specs, scores) for name, specs in names.items()}
    wanted["README.md"] = index(names)
    stale = [f for f, text in wanted.items() if _read(PAGES / f) != text]
    for file in stale:
        print(f"docs/environments/{file} {'is stale' if args.check else 'written'}")
        if not args.check:
            (PAGES / file).write_text(wanted[file])
    return 1 if args.check and stale else 0


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
