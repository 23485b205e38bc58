"""Parts of the pages of the environments, for ``make_env_pages.py`` and ``data_pages.py``."""

from __future__ import annotations

import inspect
import re
import warnings
from statistics import fmean
from typing import Any

import gem_core
from gem_core.env_spec import EnvSpec
from gem_core.envs._data_specs import HUB_IDS
from gem_core.players import get_player, play_episode

WRITTEN = (
    "<!-- Written by tools/make_env_pages.py: change the class or the tool, not this file. -->"
)
#: Episodes of the random player and of the expert, by namespace.
EPISODES = {"game": (200, 30), "rg": (20, 10), "code": (20, 12)}
OTHERS = (100, 40)
#: Seconds for each item or grading.
HEAVY = ("rg:futoshiki", "rg:intermediate_integration", "rg:knight_swap", "rg:quantum_lock")
_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")

Scores = dict[str, dict[str, Any]]


def on_sample(spec: EnvSpec) -> EnvSpec:
    """Return the spec that plays the built-in sample, whatever data are on this machine."""
    if spec.kwargs.get("dataset") in HUB_IDS:
        return spec.replace(dataset="sample")
    return spec


def play(spec: EnvSpec) -> dict[str, Any]:
    """Play the random player and the expert from seed 0 on."""
    found: dict[str, Any] = {"id": spec.id}
    many = EPISODES.get(spec.id.partition(":")[0], OTHERS)
    for kind, episodes in zip(
        ("random", "expert"), (3, 3) if spec.id in HEAVY else many, strict=True
    ):
        env = gem_core.make(on_sample(spec))
        player = get_player(
            kind, spec.id, seed=0, **({"env": env} if reads_env(spec, kind) else {})
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = [play_episode(env, player, seed=seed) for seed in range(episodes)]
        found[kind] = {
            "episodes": episodes,
            "reward": round(fmean(r.reward for r in results), 3),
            "success": round(fmean(r.success for r in results), 3),
            "turns": round(fmean(r.turns for r in results), 1),
        }
    return found


def reads_env(spec: EnvSpec, kind: str) -> bool:
    """Return whether a player is made with the environment: a random one, or one that peeks."""
    from gem_core.players.player import Peek, _expert

    return kind == "random" or issubclass(_expert(spec.id), Peek)


def docstring(cls: Any) -> tuple[str, str]:
    """Return what a class says about itself, and its arguments as a list."""
    text = _ROLE.sub(r"`\1`", inspect.getdoc(cls) or "").replace("``", "`")
    summary, _, rest = text.partition("\nArgs:\n")
    items: list[str] = []
    for line in rest.splitlines():
        if re.match(r" {4}\S", line) and not line.strip().startswith("**options"):
            argument, _, what = line.strip().partition(": ")
            items.append(f"- `{argument}`: {what}")
        elif re.match(r" {8}", line) and items and not items[-1].endswith("\n"):
            items[-1] += f" {line.strip()}"
        elif line.strip().startswith("**options") or not line.startswith(" "):
            break
    return summary.strip(), "\n".join(items)


def kwargs(spec: EnvSpec) -> str:
    """Return the parameters of a spec in one cell of a table."""
    return ", ".join(f"`{name}={value!r}`" for name, value in spec.kwargs.items())


def score_table(specs: list[EnvSpec], scores: Scores) -> list[str]:
    """Return the table of what the scripted players reach."""
    return [
        "| id | player | episodes | mean reward | success | mean turns |",
        "|---|---|---|---|---|---|",
        *(row for spec in specs for row in _score_rows(spec, scores)),
    ]


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
