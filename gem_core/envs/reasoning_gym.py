"""``rg:*``: the generators of reasoning-gym as environments, with a new item for every seed.

There are two scores. ``"reasoning_gym"`` is exactly the generator's own, to be used for comparisons
with published figures. It rewards wrong answers too: a third of the generators reward an answer
that only contains the right one ("81" gets 0.5 where 8 is right), many give an attempt 0.01 to 0.1,
and a few give some wrong answers the full score. A policy learns to exploit all of these.
``"strict"``, the default, is 1 for a right answer and 0 for any other.

The items are those of reasoning-gym, with three differences:

* Generators whose items depend on the hash seed or on the global random generators run in worker
  processes where both are fixed, so that a seed gives the same item everywhere. Programs of
  ``codeio`` that read the clock or the machine are omitted.
* Scorers that ``eval`` the answer run there too, with limits and a deadline. They get literals and
  expressions of numbers, symbols and mathematical functions; any other answer is replaced by one
  that cannot be read.
* If a scorer raises, the answer counts as wrong, with the reason in ``info["grader_error"]``.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from gem_core.envs import _rg_items, _rg_scores
from gem_core.envs._rg_parts import MOST_DRAWS, task_text
from gem_core.envs._rg_solvers import solve
from gem_core.envs._rg_tables import DEFAULT_MIXTURE, IN_WORKER, NAMES, SCORES, SLOW
from gem_core.envs.graders.pool import DeadlineError, WorkerError, get_pool, require_pebble
from gem_core.envs.parts import Items, check_part, in_part
from gem_core.envs.single_turn import OptionError, SingleTurn
from gem_core.errors import GemError, unknown

if TYPE_CHECKING:
    from typing import Any

_WORKER = "gem_core.envs._rg_worker:run"
_GENERATE_S = 120.0
SCORE_S = 5.0
"""Seconds for scoring one answer in a worker, after which it counts as wrong."""
_ALL = 2**31


class ReasoningGym(SingleTurn):
    """One generator of reasoning-gym.

    The reward is the score of the answer; ``info["success"]`` is a score of 1, ``info["score"]``
    the score, and ``info["reasoning_gym_score"]`` the generator's own.

    Args:
        name: the generator.
        pool: draw only from items ``0 ... pool - 1``, a fixed set for training or evaluation.
            ``None``: about two billion items.
        answer_format: see `gem_core.envs.single_turn.SingleTurn`, as for ``rewards``,
            ``pick`` and ``compat``.
        rewards: replaces single rewards.
        pick: how an item is chosen.
        compat: ``"gem-0.1.0"``: 500 items, the question without the answer format, and the
            generator's own score.
        held_out: share of the tasks that are kept for evaluation, so that no task of a run's
            evaluation is also trained on: each task's own hash decides. It is that of the question
            or, for the generators in `gem_core.envs._rg_parts`, of the task without its wording
            (the equation, whatever the sentence around it). ``None``: none are.
        part: ``"train"`` or ``"eval"``: plays only this part of the tasks; a run gives each of its
            environments its part. ``None`` and ``"all"``: any.
        score: ``"strict"``: 1 for a right answer to which the generator gives the full score,
            else 0. ``"reasoning_gym"``: the generator's own score. ``None``: ``"strict"``, with
            ``compat`` the other one.
        **config: the difficulty options of the generator (``min_terms=2``), except ``seed`` and
            ``size``. ``rg:composite`` takes ``datasets``, a list of
            ``{"name": ..., "weight": ..., "config": {...}}``. ``rg:arc_1d`` takes ``tasks``, too, a
            list of its rules (``["two_points_and_fill"]``): only these are drawn.

    Raises:
        MissingDependencyError: reasoning-gym, or pebble for a generator that runs in a worker
            process, is not installed.
        UnknownNameError: the generator or an option does not exist.
    """

    checks_kwargs = True
    draws_tasks = True

    def __init__(
        self,
        *,
        name: str,
        pool: int | None = None,
        answer_format: str = "boxed",
        rewards: dict[str, float] | None = None,
        pick: str = "random",
        compat: str | None = None,
        score: str | None = None,
        held_out: float | None = None,
        part: str | None = None,
        **config: Any,
    ):
        super().__init__(answer_format=answer_format, rewards=rewards, pick=pick, compat=compat)
        self.held_out = held_out
        self.part = check_part(part, held_out)
        if self.part is not None and pick == "seed":
            raise ValueError(
                f"rg:{name}: a part of the tasks is drawn at random; leave out pick='seed', or "
                "held_out and part."
            )
        if score is None:
            score = "reasoning_gym" if compat else "strict"
        if score not in SCORES:
            raise unknown("score", score, SCORES, f"There are {', '.join(map(repr, SCORES))}.")
        self.score = score
        if pool is not None and pool < 1:
            raise ValueError(f"pool must be at least 1, not {pool}.")
        self.name = name
        self._mixture = _mixture(name, config)
        self._count = pool or (500 if compat else _ALL)
        self.data_revision = f"reasoning-gym-{_rg_items.find_version()}"
        names = {part for part, _, _ in self._mixture}
        if names & IN_WORKER:
            require_pebble("rg")
        self.slow = bool(names & (IN_WORKER | SLOW))

    @classmethod
    def items_played(cls, *, name: str, held_out: float | None = None, **_: Any) -> Items | None:
        """Return what divides the tasks of a generator; ``None`` where nothing does."""
        return None if held_out is None else Items(f"rg:{name}", None, None, (held_out,))

    def _choose(self, options: dict[str, Any]) -> int:
        """Choose an item, and draw again until it is in the part.

        Raises:
            OptionError: the item that was asked for is in the other part.
            GemError: no item of the part was found; the generator has few tasks, or one.
        """
        item = super()._choose(options)
        if self.part is None:
            return item
        if options:
            if not self._in_part(item):
                raise OptionError(f"Item {item} is not in the part {self.part!r}.")
            return item
        for _ in range(MOST_DRAWS):
            if self._in_part(item):
                return item
            item = super()._choose(options)
        raise GemError(
            f"rg:{self.name}: {MOST_DRAWS} items were drawn and none is in the part {self.part!r}: "
            "give it options with more tasks, a larger pool, or another held_out."
        )

    def _in_part(self, item: int) -> bool:
        assert self.part is not None
        name, config = self._generator(item)
        text = task_text(name, self._entry(name, config, item))
        return in_part(text, self.part, self.held_out or 0.0)

    def _generator(self, item: int) -> tuple[str, dict[str, Any]]:
        """Return the generator of an item, and its options."""
        parts = self._mixture
        chosen = 0
        if len(parts) > 1:
            weights = [weight for _, weight, _ in parts]
            chosen = Random(item).choices(range(len(parts)), weights)[0]
        return parts[chosen][0], parts[chosen][2]

    def _entry(self, name: str, config: dict[str, Any], item: int) -> dict[str, Any]:
        """Return the question and the solution of an item, with its metadata if made here."""
        if name in IN_WORKER:
            job = {"do": "item", "name": name, "config": config, "draw": item}
            made: dict[str, Any] = get_pool(_WORKER).call(job, _GENERATE_S)
            return made
        entry = _rg_items.item(name, config, item)
        return {**entry, "solution": _rg_items.solution(entry)}

    def _load(self) -> None:
        self._part, self._config = self._generator(self._item)
        entry = self._entry(self._part, self._config, self._item)
        self._task = {"question": entry["question"], "solution": entry["solution"]}

    def _question(self) -> str:
        question: str = self._task["question"]
        return question

    def _extra(self) -> dict[str, Any]:
        return {"source": self._part} if len(self._mixture) > 1 else {}

    def _score(self, answer: str) -> tuple[float, dict[str, Any]]:
        try:
            own, right = self._scores(answer)
        except DeadlineError:
            return 0.0, {"grader_error": "deadline"}
        except WorkerError as error:
            return 0.0, {"grader_error": f"{error!s:.200}"}
        except Exception as error:
            return 0.0, {"grader_error": f"{type(error).__name__}: {error!s:.200}"}
        score = float(right) if self.score == "strict" else own
        return score, {"reasoning_gym_score": own}

    def _scores(self, answer: str) -> tuple[float, bool]:
        """Return the generator's own score, and whether the answer is right."""
        name = self._part
        config = self._config
        draw = self._item
        if name not in IN_WORKER:
            return _rg_scores.score(name, config, draw, answer)
        job = {"do": "score", "name": name, "config": config, "draw": draw}
        job["answer"] = answer.encode(errors="replace").decode()
        own, right = get_pool(_WORKER).call(job, SCORE_S)
        return own, right

    def _solution(self) -> str:
        solution: str | None = self._task["solution"]
        if solution is None and self._part not in IN_WORKER:
            entry = _rg_items.item(self._part, self._config, self._item)
            solution = solve(self._part, entry["metadata"])
        return super()._solution() if solution is None else solution


def _mixture(name: str, config: dict[str, Any]) -> list[tuple[str, float, dict[str, Any]]]:
    """Return the generators of a name as (name, weight, config)."""
    for reserved in ("seed", "size"):
        if reserved in config:
            raise GemError(
                f"rg:{name} takes no {reserved!r}: reset(seed=...) draws the item, and pool=... "
                "limits the number of items."
            )
    if name != "composite":
        _check(name, config)
        return [(name, 1.0, config)]
    entries = config.pop("datasets", [{"name": n} for n in DEFAULT_MIXTURE])
    if config or not entries:
        raise GemError("rg:composite takes datasets=[{'name': ..., 'weight': ..., 'config': ...}].")
    parts = []
    for entry in entries:
        part = entry["name"]
        weight = entry.get("weight", 1.0)
        options = entry.get("config", {})
        if not weight > 0:
            raise GemError(
                f"rg:composite: the weight of {part!r} must be positive, not {weight!r}."
            )
        if part == "composite":
            raise GemError("rg:composite: a mixture of mixtures is not possible.")
        _check(part, options)
        parts.append((part, float(weight), options))
    return parts


def _check(name: str, config: dict[str, Any]) -> None:
    if name not in NAMES and name not in _rg_items.DATASETS:
        raise unknown("generator of reasoning-gym", name, NAMES, "gem_core.list_envs('rg:*').")
    _rg_items.check_config(name, config)
