"""Stored episodes scored again: their actions are played in the environments, nothing is sampled.

It tells what another version of an environment or a grader would have paid for the same actions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gem_core.episodes.context import Context, get_template
from gem_core.episodes.data import Completion, Episode, StopReason, Turn
from gem_core.episodes.machine import EpisodeMachine
from gem_core.episodes.rollout import Request
from gem_core.errors import GemError
from gem_core.evaluation.evaluation import RESULT_FORMAT, provenance, result_of
from gem_core.evaluation.folder import TRAINER, EvalDir, ItemLog
from gem_core.evaluation.items import Item
from gem_core.evaluation.rows import ItemRow
from gem_core.evaluation.runner import ItemPolicy, play_items
from gem_core.policies.failures import EpisodeOver, ItemError
from gem_core.runs.directory.run_dir import IfExists, RunDir
from gem_core.runs.environments.data import make_for_run
from gem_core.runs.environments.description import describe_environments, in_run
from gem_core.runs.recipe.recipe import EnvConfig, Recipe, WorkersConfig
from gem_core.runs.splits import env_key, run_envs
from gem_core.runs.tasks import eval_task, train_task


class Rescored(NamedTuple):
    """What came of scoring again.

    Attributes:
        episodes: number of stored episodes.
        changed: how many have another return, success or end.
        result: as in ``result.json``.
    """

    episodes: int
    changed: int
    result: dict[str, Any]


class _Stored(NamedTuple):
    item: Item
    config: EnvConfig
    key: str
    episode: Episode


def rescore(source: Path, out: Path, if_exists: IfExists = "error") -> Rescored:
    """Score the stored episodes of a run or an evaluation again, into another directory.

    Raises:
        GemError: the run has no stored episodes, or its environments cannot be made.
    """
    from msgspec.structs import replace

    run = RunDir(source)
    if not run.exists:
        raise GemError(f"{source} is not a run directory (it has no recipe.json).")
    stored = list(_read_stored(run))
    if not stored:
        raise GemError(f"{source} has no stored episodes: set train.log_episodes, or evaluate it.")
    recipe = run.recipe
    # They are played again here, wherever the run had them.
    environments = describe_environments(replace(recipe, workers=WorkersConfig()))
    folder = EvalDir(out)
    plan = {"model": {"rescored": str(source)}, "tasks": [len(stored)], "samples": 1}
    with folder.open(recipe, plan, if_exists) as log, in_run(folder.run, environments):
        replay = _Replay(recipe, stored, log)
        replay.play()
        result = _result(folder, run, stored, replay.changed)
        folder.run.finish(result)
    return Rescored(len(stored), replay.changed, result)


def _result(folder: EvalDir, run: RunDir, stored: list[_Stored], changed: int) -> dict[str, Any]:
    samples = 1 + max(one.item.sample for one in stored)
    return {
        "format": RESULT_FORMAT,
        "kind": "rescored",
        "name": run.recipe.name,
        "model": _model_of(run),
        "changed": changed,
        **result_of(folder.rows(), samples),
        **provenance(folder.run),
    }


def _model_of(run: RunDir) -> str:
    if run.info["trainer"] == TRAINER and run.finished:
        return str(run.result["model"])
    return str(run.path)


def _read_stored(run: RunDir) -> Iterator[_Stored]:
    """Yield the stored episodes with their environments; each is an item of its own."""
    recipe = run.recipe
    if run.info["trainer"] == TRAINER:
        yield from _read_evaluated(EvalDir(run.path), recipe)
        return
    envs = run_envs(recipe)
    for number, (tags, episode) in enumerate(run.episodes()):
        split = tags["split"]
        task = eval_task if split == "eval" else train_task
        env = task(recipe, episode.index).env
        item = Item(number, number, 0, env, episode.seed or 0)
        yield _Stored(item, *envs[split][env], episode)


def _read_evaluated(folder: EvalDir, recipe: Recipe) -> Iterator[_Stored]:
    rows = {row.item: row for row in folder.rows()}
    for _, episode in folder.run.episodes():
        row = rows.get(episode.index)
        if row is not None:
            item = Item(row.item, row.task, row.sample, row.env, row.seed)
            key = env_key(recipe, "eval", row.env)
            yield _Stored(item, recipe.env[row.env], key, episode)


class _Replay(ItemPolicy):
    """Plays stored actions; it is the policy of its own episodes."""

    def __init__(self, recipe: Recipe, stored: list[_Stored], log: ItemLog) -> None:
        self.changed = 0
        self._recipe = recipe
        self._stored = {one.item.index: one for one in stored}
        self._log = log

    def play(self) -> None:
        """Play all episodes one after another, each with the deadlines of every episode."""
        items = [one.item for one in self._stored.values()]
        asyncio.run(play_items(items, self._machine, self, self._record, concurrency=1))

    async def complete(self, request: Request) -> Completion:
        """Return the stored action of the turn; see `gem_core.evaluation.runner.ItemPolicy`."""
        machine = request.machine
        old = self._stored[machine.index].episode
        acts = old.acts  # the summaries between them told the environment nothing
        if machine.turn < len(acts):
            turn = acts[machine.turn]
            if machine.turn == 0 and machine.shown[0] != turn.observation:
                raise ItemError("other_task", "its data or its seed give another task by now")
            return Completion([], finish_reason=turn.finish_reason, text=turn.action)
        if old.stop_reason in (StopReason.TERMINATED, StopReason.INVALID_FORMAT):
            raise ItemError("actions_missing", "the stored actions do not end the episode")
        machine.abort(old.stop_reason, old.error, close=False)  # it was cut off here
        raise EpisodeOver("the episode was cut off here")

    def _machine(self, item: Item) -> EpisodeMachine:
        one = self._stored[item.index]
        return EpisodeMachine(
            make_for_run(one.config, one.key),
            Context(get_template("no")),
            _limits(self._recipe, one.config),
            seed=one.episode.seed,
            group=item.task,
            index=item.index,
            env_id=one.config.id,
        )

    def _record(self, row: ItemRow, episode: Episode | None) -> None:
        old = self._stored[row.item].episode
        self.changed += _differs(row, old)
        if episode is not None:
            episode.segments = old.segments
            episode.turns = _with_summaries(episode.turns, old)
        self._log.add(row, episode)


def _with_summaries(acts: list[Turn], old: Episode) -> list[Turn]:
    """Return the turns that were played again, with the stored summaries between them."""
    played = iter(acts)
    turns = [turn if turn.kind == "summary" else next(played, None) for turn in old.turns]
    merged = [turn for turn in turns if turn is not None]
    for number, turn in enumerate(merged):
        turn.index = number
    return merged


def _limits(recipe: Recipe, config: EnvConfig) -> Any:
    """Return the limits of turns; those of tokens were applied when it was sampled."""
    from msgspec.structs import replace

    limits = replace(recipe.limits, max_context_tokens=None, max_episode_tokens=None)
    return limits if config.max_turns is None else replace(limits, max_turns=config.max_turns)


def _differs(row: ItemRow, old: Episode) -> bool:
    """Whether the score or the end is another one than before."""
    if row.error is not None:
        return not old.stop_reason.failed
    same = abs(row.reward - old.total_reward) < 1e-9 and row.success == old.success
    return not same or row.stop != old.stop_reason.value
