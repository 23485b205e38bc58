"""The pages of the environments outside ``game:``, one per namespace."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from data_page_texts import FACTS, Facts
from page_parts import WRITTEN, Scores, docstring, kwargs, on_sample, score_table

import gem_core
from gem_core.env.spec import EnvSpec
from gem_core.envs.dataset import DatasetEnv
from gem_core.envs.games.game import Game
from gem_core.envs.multi_agent import MultiAgentEnv, Nim, TicTacToe
from gem_core.envs.players import get_player
from gem_core.envs.single_turn import SingleTurn
from gem_core.episodes.context import with_suffix

DIFFERENCES = Path(__file__).resolve().parent.parent / "docs" / "environments" / "differences.md"
_EXPERTS = {
    "webshop": "The expert reads the page and buys the first product that meets the request.",
    "mcp": "The expert plays the statements of the reference solution: an upper bound.",
    "terminal": "The expert plays the commands of the reference solution: an upper bound.",
    "multi": "The experts read the observations and play the two-player games perfectly.",
}
_PEEKS = (
    "On the built-in sample, or on generated items. The expert gives the answer of the data or of "
    "a solver, so that its score is an upper bound."
)


def namespaces() -> dict[str, list[EnvSpec]]:
    """Return the specs of every namespace that has a page."""
    return {
        name: [gem_core.spec(env_id) for env_id in gem_core.list_envs(f"{name}:*")]
        for name in FACTS
    }


def page(name: str, specs: list[EnvSpec], scores: Scores) -> str:
    """Return the page of a namespace."""
    facts = FACTS[name]
    classes = list(dict.fromkeys(spec.load() for spec in specs))
    sections = [
        ("", [f"**{c.__name__}.** {docstring(c)[0]}" for c in _described(classes)]),
        ("Environments", _table(specs)),
        ("Scores", [_EXPERTS.get(name, _PEEKS), "", *score_table(specs, scores)]),
        ("An episode", [part for env_id in facts.examples for part in _episodes(env_id)]),
        ("Rewards", _rewards(specs)),
        ("Data", _data(facts)),
        ("Differences from GEM 0.1.0", _differences(facts)),
        ("Parameters", _parameters(classes)),
    ]
    lines = [f"# {name}: {facts.title}", "", WRITTEN]
    for heading, content in sections:
        if heading:
            lines += ["", f"## {heading}"]
        between = "\n\n" if not heading else "\n"
        lines += ["", between.join(content)]
    return "\n".join(lines).rstrip() + "\n"


def _described(classes: list[Any]) -> list[Any]:
    """Return the classes that a page describes, including the games against an opponent."""
    if any("Opponent" in cls.__name__ for cls in classes):
        return [*classes, TicTacToe, Nim]
    return classes


def _table(specs: list[EnvSpec]) -> list[str]:
    rows = [f"| `{s.id}` | {kwargs(s)} | `{s.fingerprint()}` |" for s in specs]
    return ["| id | parameters | fingerprint |", "|---|---|---|", *rows]


def _episodes(env_id: str) -> list[str]:
    """Return an episode of the expert and one of the random player."""
    spec = gem_core.spec(env_id)
    shown = []
    for kind in ("expert", "random"):
        env = gem_core.make(on_sample(spec))
        text = _transcript(env, get_player(kind, env_id, seed=0, env=env), kind)
        shown.append(f"`{env_id}`, seed 0, the {kind} player:\n\n~~~text\n{text}\n~~~\n")
    return shown


def _transcript(env: gem_core.Env, player: Any, kind: str, most: int = 6) -> str:
    """Return the observations and actions of an episode, at most ``most`` turns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        obs, info = env.reset(seed=0)
        player.reset(obs, info)
        lines = [with_suffix(obs, info)]
        for turn in range(most):
            action = player.act(obs, info)
            obs, reward, terminated, _, info = env.step(action)
            lines += [f"> {action}", f"[reward {reward:g}]", with_suffix(obs, info)]
            if terminated:
                lines.append(f"[success {info['success']}, end {info['end']}]")
                break
            if kind == "random" and turn == 1:
                lines.append("...")
                break
    return "\n".join(lines).rstrip()


def _rewards(specs: list[EnvSpec]) -> list[str]:
    env = gem_core.make(on_sample(specs[0]))
    table = getattr(env, "_rewards", None) or getattr(env, "_reward", None)
    if table is None:  # a game against an opponent
        return [
            "A win earns 1, a draw 0.5, a loss 0; an action without an answer costs 0.1, and the "
            "fifth action that is not a legal move loses the game. The reward of "
            "`multi:ReturnsDesk` is the share of the fields that are right; a malformed action "
            "ends it with -0.1."
        ]
    entries = ", ".join(f"`{name}` {value:g}" for name, value in table.items())
    return [
        f"{entries}; each can be replaced: `rewards={{...}}`. `success` scales partial scores. At "
        'the end `info["success"]` says whether the task was solved and `info["end"]` why it '
        'ended; `info["error"]` names an action that was not accepted.'
    ]


def _data(facts: Facts) -> list[str]:
    rows = [f"| {' | '.join(row)} |" for row in facts.origin]
    head = ["| environments | origin | licence stated by the origin |", "|---|---|---|"]
    return [*head, *rows, "", f"**Sample.** {facts.sample}", "", f"**Real data.** {facts.real}"]


def _differences(facts: Facts) -> list[str]:
    lines = [
        line
        for line in DIFFERENCES.read_text().splitlines()
        if set(line.removeprefix("|").partition("|")[0].strip().split(", ")) & set(facts.names)
        and line.startswith("|")
    ]
    if not lines:
        raise SystemExit(f"differences.md has no line for {facts.names}")
    return ["| environments | GEM 0.1.0 | here | compat |", "|---|---|---|---|", *lines]


def _parameters(classes: list[Any]) -> list[str]:
    """Return the parameters of the classes and of their base classes, each class once."""
    bases = (DatasetEnv, SingleTurn, Game, MultiAgentEnv)
    described = _described(classes)
    inherited = [base for base in bases if any(issubclass(cls, base) for cls in described)]
    lines = []
    for cls in dict.fromkeys([*described, *inherited]):
        arguments = docstring(cls)[1]
        if arguments:
            lines += [f"`{cls.__name__}`:", "", arguments, ""]
    return lines
