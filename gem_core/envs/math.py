"""``math:*`` and the mathematical ``eval:*``: questions whose answers math-verify grades."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.envs.dataset import DatasetEnv, as_answers
from gem_core.envs.graders.math import grade_math, require_math_verify
from gem_core.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, ClassVar


class MathEnv(DatasetEnv):
    """A mathematical question; the reward is 1 for a right answer, else 0.

    It needs math-verify and pebble: the extra ``math``.

    Args:
        deadline_s: seconds for grading one answer, after which it counts as wrong.
        **options: see `gem_core.envs.dataset.DatasetEnv`.

    Raises:
        MissingDependencyError: math-verify or pebble is not installed.
    """

    slow = True  # answers are graded in worker processes

    def __init__(self, *, deadline_s: float = 5.0, **options: Any):
        require_math_verify()
        super().__init__(**options)
        self.deadline_s = deadline_s

    def _score(self, answer: str) -> tuple[float, dict[str, Any]]:
        verdict = grade_math(answer, as_answers(self._row["answer"]), deadline_s=self.deadline_s)
        extra = {"grader_error": verdict.error} if verdict.error else {}
        return float(verdict.correct), extra


class GeometryEnv(MathEnv):
    """A question about drawings; they are in ``info["images"]`` of ``reset``.

    Each image is ``{"type": "image/png", "data": <base64>}``. The observation is the question, with
    ``<image>`` in the place of each image. A run plays text only and refuses this environment,
    unless ``images="drop"`` asks for the questions without drawings and without ``<image>``; few of
    them can then be answered.
    """

    images_in_info = True

    roles: ClassVar[Mapping[str, str]] = {
        "question": "question",
        "answer": "answer",
        "images": "images",
    }

    def _attachments(self) -> dict[str, Any]:
        if not self.shows_images:
            return {}
        images = self._row["images"] or []
        return {"images": [as_image(image) for image in images]}

    def _question(self) -> str:
        question = super()._question()
        if not self.shows_images:
            return question.replace("<image>", "").strip()
        missing = len(self._row["images"] or []) - question.count("<image>")
        return "<image>" * missing + question


def as_image(cell: Any) -> dict[str, str]:
    """Return an image cell of Parquet (bytes), ``datasets`` (PIL) or a sample as JSON data.

    Raises:
        DataError: the cell is none of these.
    """
    from base64 import b64encode

    if isinstance(cell, dict) and isinstance(cell.get("data"), str):
        return {"type": cell.get("type", "image/png"), "data": cell["data"]}
    if isinstance(cell, dict) and cell.get("bytes"):
        body: bytes = cell["bytes"]
    elif callable(getattr(cell, "save", None)):
        from io import BytesIO

        buffer = BytesIO()
        cell.save(buffer, format="PNG")
        body = buffer.getvalue()
    else:
        raise DataError(f"Not an image: {type(cell).__name__}; give PNG or JPEG bytes.")
    kind = "image/jpeg" if body[:3] == b"\xff\xd8\xff" else "image/png"
    return {"type": kind, "data": b64encode(body).decode()}
