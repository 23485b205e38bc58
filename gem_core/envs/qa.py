"""``qa:*``, ``logic:*`` and ``eval:*``: questions whose answers are a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.envs.dataset import DatasetEnv, as_answers
from gem_core.envs.graders.qa import exact_match, f1_score
from gem_core.errors import unknown

if TYPE_CHECKING:
    from random import Random
    from typing import Any

METRICS = ("em", "f1")
_WORDS = ("Berlin", "1969", "the blue whale", "Marie Curie", "gold", "seven", "Lake Baikal")


class QaEnv(DatasetEnv):
    """A question with one or more acceptable short answers.

    The reward is 1 if the answer equals one of them after normalisation (lower case, no
    punctuation, no articles), else 0; ``info["f1"]`` is the overlap of words.

    Args:
        metric: ``"em"``, or ``"f1"`` to use the overlap as the reward.
        answer_format: ``"tag"`` (``<answer>...</answer>``), ``"boxed"`` or ``"plain"``.
        **options: see `gem_core.envs.dataset.DatasetEnv`.
    """

    def __init__(self, *, metric: str = "em", answer_format: str = "tag", **options: Any):
        super().__init__(answer_format=answer_format, **options)
        if metric not in METRICS:
            raise unknown("metric", metric, METRICS, "There are 'em' and 'f1'.")
        self.metric = metric

    def _score(self, answer: str) -> tuple[float, dict[str, Any]]:
        golds = as_answers(self._row["answer"])
        exact = exact_match(answer, golds)
        overlap = f1_score(answer, golds)
        return (float(exact) if self.metric == "em" else overlap), {"f1": overlap}

    def random_action(self, rng: Random) -> str:
        """Return a well-formed answer that is unrelated to the question."""
        return self._write(rng.choice(_WORDS))


class RuleTaker(QaEnv):
    """Facts and rules in plain English, and a statement that is true or false.

    Args:
        answer_format: the format of an answer.
        **options: see `QaEnv`.
    """

    def __init__(self, *, answer_format: str = "boxed", **options: Any):
        super().__init__(answer_format=answer_format, **options)

    def random_action(self, rng: Random) -> str:
        """Return ``True`` or ``False`` at random."""
        return self._write(rng.choice(("True", "False")))
