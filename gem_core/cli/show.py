"""``gem-core show``: an environment, or a baseline and its environments."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from typing import Any

from gem_core.cli.output import print_json, quiet_libraries
from gem_core.env.registration import client_parameters, list_envs, make_from_data, spec
from gem_core.errors import MissingDependencyError, RecipeError, UnknownNameError, unknown
from gem_core.runs.recipe.files import is_recipe_file, shipped
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_core.runs.recipe.recipe import EnvConfig, Recipe, Split, get_key, recipe_keys

_TEMPLATE = "qwen3_game"
"""Of an environment that is shown by its id, without ``--model``."""


def show(arguments: argparse.Namespace) -> int:
    """Print an environment, or a baseline and its environments.

    As JSON: ``name``, ``recipe`` (key -> value and source; null for an environment) and
    ``environments``: id, fingerprint, text, parameters, those that a client of a server may set,
    template, first prompt, what is wrong with it, and what the scripted players reach.
    """
    name = arguments.name
    if name in shipped("baselines") or is_recipe_file(name):
        recipe = load_recipe(name, arguments.profile, arguments.overrides)
        values = _values(recipe, load_recipe(name))
    else:
        recipe = _recipe_of(arguments)
        values = None
    tables: list[tuple[Split, list[EnvConfig]]] = [("train", recipe.env), ("eval", recipe.eval.env)]
    environments = [
        _environment(recipe, split, number, arguments)
        for split, configs in tables
        for number in range(len(configs))
    ]
    if arguments.json:
        print_json(arguments, {"name": name, "recipe": values, "environments": environments})
        return 0
    for key, entry in (values or {}).items():
        source = f"  # {entry['source']}" if entry["source"] else ""
        print(f"{key} = {json.dumps(entry['value'])}{source}")
    for environment in environments:
        _print_environment(environment)
    return 0


def _recipe_of(arguments: argparse.Namespace) -> Recipe:
    """Return a recipe of the environment with this id.

    Raises:
        UnknownNameError: there is neither such an environment nor such a baseline.
    """
    name = arguments.name
    try:
        spec(name)
    except UnknownNameError:
        names = [*list_envs(), *shipped("baselines")]
        raise unknown(
            "environment or baseline", name, names, "`gem-core list` lists all names."
        ) from None
    for option, value in {"--profile": arguments.profile, "--set": arguments.overrides}.items():
        if value:
            raise RecipeError(f"{option} belongs to a recipe, and {name} is an environment.")
    template = "chat" if arguments.model else _TEMPLATE
    tables = {"env": [{"id": name}], "context": {"template": template}}
    return recipe_from_dict({"name": "shown", **tables})


def _values(recipe: Recipe, baseline: Recipe) -> dict[str, dict[str, Any]]:
    """Return every key of a recipe: its value, and the source if it has one."""
    from msgspec import to_builtins

    values = {}
    for key in recipe_keys():
        if key in ("env", "sources"):
            continue
        value = get_key(recipe, key)
        source = recipe.sources.get(key) if value == get_key(baseline, key) else None
        values[key] = {"value": to_builtins(value), "source": source}
    return values


def _environment(
    recipe: Recipe, split: Split, number: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return what is shown of one environment of a recipe."""
    from gem_core.envs.players import player_names
    from gem_core.runs.recipe.templates import answer_conflict

    config = (recipe.env if split == "train" else recipe.eval.env)[number]
    env = make_from_data(config.id, config.kwargs)
    assert env.spec is not None  # make() sets it
    prompt, note = _prompt(recipe, split, number, arguments.model)
    conflict = answer_conflict(recipe.context, config, env)
    return {
        "id": config.id,
        "fingerprint": env.spec.fingerprint(),
        "text": (type(env.unwrapped).__doc__ or "").strip().partition("\n")[0],
        "parameters": dict(env.spec.kwargs),
        "client_parameters": {
            name: str(kind) for name, kind in client_parameters(config.id).items()
        },
        "template": recipe.context.template,
        "prompt": prompt,
        "note": note,
        "warning": conflict or "",
        "players": {
            kind: _score(config.id, config.kwargs, kind, arguments.episodes)
            for kind in player_names(config.id, env)
        },
    }


def _print_environment(shown: dict[str, Any]) -> None:
    print(f"\n{shown['id']}  [{shown['fingerprint']}]")
    print(shown["text"])
    print("parameters: " + json.dumps(shown["parameters"], sort_keys=True))
    may_set = "; ".join(f"{n}: {kind}" for n, kind in shown["client_parameters"].items())
    print(f"a client of a server may set: {may_set or 'nothing'}")
    header = f"first prompt, seed 0, template {shown['template']}"
    print(f"\n--- {header} ---\n{shown['prompt']}\n---\n")
    if shown["note"]:
        print(f"{shown['note']}\n")
    if shown["warning"]:
        print(f"Warning: {shown['warning']}\n")
    width = max(map(len, shown["players"]))
    for kind, score in shown["players"].items():
        if score is None:
            print(f"{kind:{width}}  not available for this environment")
        else:
            print(
                f"{kind:{width}}  success {score['success']:.3f}  reward {score['reward']:.3f}  "
                f"turns {score['turns']:.2f}  ({score['episodes']} episodes)"
            )


def _prompt(recipe: Recipe, split: Split, number: int, model: str | None) -> tuple[str, str]:
    """Return the first prompt of seed 0, and what it lacks.

    The template ``chat`` is the tokenizer's own: where there is none here, the observation is
    returned without it.
    """
    from gem_core.episodes.context import Context, get_template
    from gem_core.runs.environments.tools import with_tools
    from gem_core.runs.recipe.templates import recipe_template
    from gem_core.runs.splits import env_key

    if recipe.context.template == "chat":
        try:
            return _chat_prompt(recipe, split, number, model), ""
        except (MissingDependencyError, RecipeError) as error:
            if model is not None:
                raise
            note = f"Without the chat template: {error} Give a tokenizer with --model."
    else:
        note = ""
    config = (recipe.env if split == "train" else recipe.eval.env)[number]
    bare = make_from_data(config.id, config.kwargs)
    observation, info = bare.reset(seed=0)
    try:
        with closing(with_tools(bare, config, env_key(recipe, split, number))) as env:
            observation, info = env.reset(seed=0)
    except MissingDependencyError as error:
        note = f"{note} Without what the agent is told of its tools: {error}".strip()
    of_chat = recipe.context.template == "chat"
    template = get_template("no") if of_chat else recipe_template(recipe.context)
    return Context(template).start(observation, info), note


def _chat_prompt(recipe: Recipe, split: Any, number: int, model: str | None) -> str:
    """Return the prompt that a policy gets, as text, special tokens included."""
    from gem_core.policies.models.source import reading_model, require_hf
    from gem_core.runs.tasks import MachineFactory, Task
    from gem_core.training.tiny import model_path

    quiet_libraries()
    require_hf("The template chat")
    source = model or model_path(recipe)
    own = recipe.model.revision if source == recipe.model.path else None
    with reading_model(source):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(source, revision=own or "main")
    machine = MachineFactory(recipe, tokenizer, inline=True)(
        Task(index=0, group=0, env=number, seed=0, split=split)
    )
    text = str(tokenizer.decode(machine.start() or []))
    machine.env.close()
    return text


def _score(
    env_id: str, kwargs: dict[str, object], kind: str, episodes: int
) -> dict[str, float] | None:
    """Return the mean results of a scripted player over ``episodes`` seeds.

    ``None``: there is none, it needs a tool, or the data have no right answer.
    """
    from gem_core.envs.players import get_player, play_episode
    from gem_core.envs.players.tool_users import MissingToolError

    env = make_from_data(env_id, kwargs)
    env.reset(seed=0)
    try:
        player = get_player(kind, env_id, seed=0, env=env)
        results = [play_episode(env, player, seed=seed) for seed in range(episodes)]
    except (UnknownNameError, NotImplementedError, MissingToolError):
        return None
    return {
        "success": sum(r.success for r in results) / episodes,
        "reward": sum(r.reward for r in results) / episodes,
        "turns": sum(r.turns for r in results) / episodes,
        "episodes": episodes,
    }
