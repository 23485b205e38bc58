"""``rg:*``: the generators of reasoning-gym as environments, a new item for every seed.

The items are reasoning-gym's own, and so are the scores. Four things are different from using it
directly. Generators whose items depend on the hash seed or on the global random generators run in
worker processes where both are fixed, so a seed gives the same item everywhere; those of
``codeio`` that read the clock or the machine are left out. Scorers that
``eval`` the answer run there too, under limits and a deadline, and only on answers that are plain
arithmetic or literals. Two scorers that pay wrong answers are made strict. A scorer that raises
counts as a wrong answer, named in ``info["grader_error"]``.
"""

from __future__ import annotations

from random import Random

from gem_core.envs import _rg_items
from gem_core.envs._rg_solvers import solve
from gem_core.envs._rg_tables import DEFAULT_MIXTURE, IN_WORKER, NAMES, SLOW
from gem_core.envs.single_turn import SingleTurn
from gem_core.errors import GemError, unknown
from gem_core.graders.pool import DeadlineError, WorkerError, shared_pool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WORKER = "gem_core.envs._rg_worker:run"
_GENERATE_S = 120.0
#: Seconds that scoring one answer may take in a worker; then it counts as wrong.
SCORE_S = 5.0
_ALL = 2**31


class ReasoningGym(SingleTurn):
    """One generator of reasoning-gym.

    The reward is the generator's score of the answer, in [0, 1]; ``info["success"]`` is a score
    of 1, and ``info["score"]`` the score.

    Args:
        name: The generator.
        pool: Draw from items ``0 ... pool - 1`` only: a fixed set to train or to evaluate on.
            ``None``: two thousand million items.
        answer_format: See `gem_core.envs.single_turn.SingleTurn`, as for ``rewards``,
            ``pick`` and ``compat``.
        rewards: Replaces single rewards.
        pick: How an item is chosen.
        compat: ``"gem-0.1.0"``: 500 items, and the question without the answer format.
        **config: The difficulty options of the generator (``min_terms=2``), but ``seed`` and
            ``size``. ``rg:composite`` takes ``datasets``, a list of
            ``{"name": ..., "weight": ..., "config": {...}}``.

    Raises:
        MissingDependencyError: reasoning-gym is not installed.
        UnknownNameError: The generator or an option does not exist.
    """

    def __init__(
        self,
        *,
        name: str,
        pool: int | None = None,
        answer_format: str = "boxed",
        rewards: dict[str, float] | None = None,
        pick: str = "random",
        compat: str | None = None,
        **config: Any,
    ):
        super().__init__(answer_format=answer_format, rewards=rewards, pick=pick, compat=compat)
        if pool is not None and pool < 1:
            raise ValueError(f"pool must be at least 1, not {pool}.")
        self.name = name
        self._mixture = _mixture(name, config)
        self._count = pool or (500 if compat else _ALL)
        self.data_revision = f"reasoning-gym-{_rg_items.installed_version()}"
        names = {part for part, _, _ in self._mixture}
        self.slow = bool(names & (IN_WORKER | SLOW))

    def _load(self) -> None:
        parts = self._mixture
        chosen = 0
        if len(parts) > 1:
            weights = [weight for _, weight, _ in parts]
            chosen = Random(self._item).choices(range(len(parts)), weights)[0]
        self._part, _, self._config = parts[chosen]
        job = {"do": "item", "name": self._part, "config": self._config, "draw": self._item}
        if self._part in IN_WORKER:
            self._task = shared_pool(_WORKER).call(job, _GENERATE_S)
            return
        entry = _rg_items.item(self._part, self._config, self._item)
        self._task = {"question": entry["question"], "solution": _rg_items.solution(entry)}

    def _question(self) -> str:
        question: str = self._task["question"]
        return question

    def _extra(self) -> dict[str, Any]:
        return {"source": self._part} if len(self._mixture) > 1 else {}

    def _score(self, answer: str) -> tuple[float, dict[str, Any]]:
        try:
            return self._raw_score(answer), {}
        except DeadlineError:
            return 0.0, {"grader_error": "deadline"}
        except WorkerError as error:
            return 0.0, {"grader_error": f"{error!s:.200}"}
        except Exception as error:
            return 0.0, {"grader_error": f"{type(error).__name__}: {error!s:.200}"}

    def _raw_score(self, answer: str) -> float:
        name, config, draw = self._part, self._config, self._item
        strict = self.compat is None
        if name not in IN_WORKER:
            return _rg_items.score(name, config, draw, answer, strict)
        job = {"do": "score", "name": name, "config": config, "draw": draw, "strict": strict}
        job["answer"] = answer.encode(errors="replace").decode()
        return float(shared_pool(_WORKER).call(job, SCORE_S))

    def _solution(self) -> str:
        solution: str | None = self._task["solution"]
        if solution is None and self._part not in IN_WORKER:
            entry = _rg_items.item(self._part, self._config, self._item)
            solution = solve(self._part, entry["metadata"])
        return super()._solution() if solution is None else solution


def _mixture(name: str, config: dict[str, Any]) -> list[tuple[str, float, dict[str, Any]]]:
    """Return the generators behind a name as (name, weight, config)."""
    for reserved in ("seed", "size"):
        if reserved in config:
            raise GemError(
                f"rg:{name} takes no {reserved!r}: reset(seed=...) draws the item, and pool=... "
                "limits their number."
            )
    if name != "composite":
        _check(name, config)
        return [(name, 1.0, config)]
    entries = config.pop("datasets", [{"name": n} for n in DEFAULT_MIXTURE])
    if config or not entries:
        raise GemError("rg:composite takes datasets=[{'name': ..., 'weight': ..., 'config': ...}].")
    parts = []
    for entry in entries:
        part, weight, options = entry["name"], entry.get("weight", 1.0), entry.get("config", {})
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
