"""``gem-core list`` and ``gem-core show``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from gem_core.errors import UnknownNameError, unknown
from gem_core.registration import client_parameters, list_envs, make_from_data, spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gem_core.training.recipe import Recipe


def list_names(arguments: argparse.Namespace) -> int:
    """Print the names of one kind, one per line."""
    if arguments.kind == "environments":
        names: Iterable[str] = list_envs(arguments.pattern)
    else:
        names = (n for n in _NAMES[arguments.kind]() if _matches(n, arguments.pattern))
    for name in names:
        print(name)
    return 0


def _matches(name: str, pattern: str | None) -> bool:
    glob = (pattern or "*").lower()
    if not any(sign in glob for sign in "*?["):
        glob = f"*{glob}*"
    return fnmatchcase(name.lower(), glob)


def _recipes(kind: str) -> Callable[[], Iterable[str]]:
    def names() -> Iterable[str]:
        from gem_core.training.recipe import shipped

        return sorted(shipped(kind))

    return names


def _suite() -> Iterable[str]:
    from gem_core.training.suite import load_suite

    return [baseline.name for baseline in load_suite()]


def _trainers() -> Iterable[str]:
    from gem_core.training.trainers import list_trainers

    return list_trainers()


def _estimators() -> Iterable[str]:
    from gem_core.advantages import list_estimators

    return list_estimators()


def _templates() -> Iterable[str]:
    from gem_core.episodes.context import TEMPLATES

    return [*TEMPLATES, "chat"]


_NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "baselines": _recipes("baselines"),
    "profiles": _recipes("profiles"),
    "suite": _suite,
    "trainers": _trainers,
    "estimators": _estimators,
    "templates": _templates,
}


def show(arguments: argparse.Namespace) -> int:
    """Print an environment, or a baseline and its environments."""
    from gem_core.training.recipe import load_recipe, shipped

    name = arguments.name
    baselines = shipped("baselines")
    if name in baselines or name.endswith(".toml"):
        recipe = load_recipe(name, arguments.profile, arguments.overrides)
        print(_listing(recipe, load_recipe(name)))
        for env in [*recipe.env, *recipe.eval.env]:
            _show_env(env.id, recipe.context.template, arguments.episodes, env.kwargs)
        return 0
    try:
        spec(name)
    except UnknownNameError:
        names = [*list_envs(), *baselines]
        raise unknown(
            "environment or baseline", name, names, "`gem-core list` lists all names."
        ) from None
    _show_env(name, "qwen3_game", arguments.episodes, {})
    return 0


def _listing(recipe: Recipe, baseline: Recipe) -> str:
    """Return every key of a recipe and its value, one per line, with the source if it has one."""
    from msgspec import to_builtins

    from gem_core.training.recipe import get_key, recipe_keys

    lines = []
    for key in recipe_keys():
        if key in ("env", "sources"):
            continue
        value = get_key(recipe, key)
        source = recipe.sources.get(key) if value == get_key(baseline, key) else None
        shown = json.dumps(value, default=to_builtins)
        lines.append(f"{key} = {shown}" + (f"  # {source}" if source else ""))
    return "\n".join(lines)


def _show_env(env_id: str, template: str, episodes: int, kwargs: dict[str, object]) -> None:
    from gem_core.episodes.context import Context, get_template

    env = make_from_data(env_id, kwargs)
    assert env.spec is not None  # make() sets it
    print(f"\n{env_id}  [{env.spec.fingerprint()}]")
    print((type(env.unwrapped).__doc__ or "").strip().partition("\n")[0])
    print("parameters: " + json.dumps(dict(env.spec.kwargs), sort_keys=True))
    declared = client_parameters(env_id)
    listing = "; ".join(f"{name}: {kind}" for name, kind in declared.items()) or "nothing"
    print(f"a client of a server may set: {listing}")
    observation, info = env.reset(seed=0)
    context = Context(get_template("no" if template == "chat" else template))
    prompt = context.start(observation, info)
    print(f"\n--- first prompt, seed 0, template {template} ---\n{prompt}\n---\n")
    for kind in ("random", "expert"):
        print(_score(env_id, kwargs, kind, episodes))


def _score(env_id: str, kwargs: dict[str, object], kind: str, episodes: int) -> str:
    """Return one line with the results of a scripted player over ``episodes`` seeds."""
    from gem_core.players import get_player, play_episode

    env = make_from_data(env_id, kwargs)
    env.reset(seed=0)
    try:
        player = get_player(kind, env_id, seed=0, env=env)
    except UnknownNameError:
        return f"{kind:6}  not available for this environment"
    results = [play_episode(env, player, seed=seed) for seed in range(episodes)]
    reward = sum(r.reward for r in results) / episodes
    success = sum(r.success for r in results) / episodes
    turns = sum(r.turns for r in results) / episodes
    return (
        f"{kind:6}  success {success:.3f}  reward {reward:.3f}  turns {turns:.2f}  "
        f"({episodes} episodes)"
    )
