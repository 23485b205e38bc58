"""Parts of the pages of environments, for ``make_env_pages.py`` and ``data_pages.py``."""

from __future__ import annotations

import inspect
import re
import warnings
from statistics import fmean
from typing import Any

import gem_core
from gem_core.env.spec import EnvSpec
from gem_core.envs._data_specs import HUB_IDS
from gem_core.envs.players import get_player, play_episode

WRITTEN = (
    "<!-- Written by scripts/make_env_pages.py: change the class or the tool, not this file. -->"
)
EPISODES = {
    "game": (200, 30),
    "rg": (20, 10),
    "code": (20, 12),
    "terminal": (20, 20),
    "mcp": (40, 20),
}  # fmt: skip
"""Number of episodes of the random player and of the expert, by namespace."""
OTHERS = (100, 40)
HEAVY = ("rg:futoshiki", "rg:intermediate_integration", "rg:knight_swap", "rg:quantum_lock")
"""Environments that take seconds for each item or grading."""
_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")

Scores = dict[str, dict[str, Any]]


def on_sample(spec: EnvSpec) -> EnvSpec:
    """Return the spec with the built-in sample, whatever data are on this machine."""
    if spec.kwargs.get("dataset") in HUB_IDS:
        return spec.replace(dataset="sample")
    return spec


def play(spec: EnvSpec) -> dict[str, Any]:
    """Play episodes of the random player and of the expert, from seed 0 on."""
    scores: dict[str, Any] = {"id": spec.id}
    counts = EPISODES.get(spec.id.partition(":")[0], OTHERS)
    if spec.id in HEAVY:
        counts = (3, 3)
    for kind, episodes in zip(("random", "expert"), counts, strict=True):
        env = gem_core.make(on_sample(spec))
        player = get_player(kind, spec.id, seed=0, env=env)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = [play_episode(env, player, seed=seed) for seed in range(episodes)]
        scores[kind] = {
            "episodes": episodes,
            "reward": round(fmean(r.reward for r in results), 3),
            "success": round(fmean(r.success for r in results), 3),
            "turns": round(fmean(r.turns for r in results), 1),
        }
    return scores


def docstring(cls: Any) -> tuple[str, str]:
    """Return the description of a class, and its arguments as a Markdown list."""
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
    """Return the parameters of a spec for one cell of a table."""
    return ", ".join(f"`{name}={value!r}`" for name, value in spec.kwargs.items())


def score_table(specs: list[EnvSpec], scores: Scores) -> list[str]:
    """Return the table of the scripted players' results."""
    return [
        "| id | player | episodes | mean reward | success | mean turns |",
        "|---|---|---|---|---|---|",
        *(row for spec in specs for row in _score_rows(spec, scores)),
    ]


def _score_rows(spec: EnvSpec, scores: Scores) -> list[str]:
    played = scores.get(spec.fingerprint())
    if played is None:
        raise SystemExit(f"There are no scores of {spec.id}: run python scripts/make_env_pages.py")
    columns = ("episodes", "reward", "success", "turns")
    return [
        f"| `{spec.id}` | {kind} | " + " | ".join(str(s[column]) for column in columns) + " |"
        for kind, s in played.items()
        if kind != "id"
    ]
