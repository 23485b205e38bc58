"""Environments over a data set of questions, one item per episode."""

from __future__ import annotations

from bisect import bisect
from pathlib import Path
from typing import TYPE_CHECKING

from gem_core.envs._data_source import DataTable, Source, is_file, is_strict, load
from gem_core.envs.parts import HELD_OUT, Division, Items, check_part, division
from gem_core.envs.single_turn import OptionError, SingleTurn
from gem_core.errors import DataError, unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, ClassVar


_NEVER_NULL = ("question", "answer")
"""Roles whose cells have a value; null would be played as the text "None"."""


class DatasetEnv(SingleTurn):
    """One question of a data set, one answer.

    Args:
        dataset: a Hugging Face id (``"axon-rl/GSM-8k"``), the path of a ``.jsonl`` or ``.parquet``
            file, or ``"sample"`` for the built-in sample.
        sample: name of the built-in sample of this family.
        split: split of a Hugging Face data set; needed if it has several.
        subset: configuration of a Hugging Face data set.
        revision: commit, tag or branch of a Hugging Face data set; ``None``: the newest. In any
            case, the commit that was loaded is in ``env.spec.data_revision``. A run loads that
            commit in all of its processes, also when it is resumed.
        columns: names of the columns, by role: ``{"question": "problem"}``.
        strict: ``True``: data that are not available are an error. ``False``: the sample is used
            instead, with a warning, ``info["sample"] = True`` and its own data revision. ``None``:
            ``False`` for the data sets that this package registers, ``True`` for all others.
            Inside a run it is always ``True``.
        images: ``"drop"``: items with images are played without them. ``None``: they are an error,
            unless the class has images in ``info``, as `gem_core.envs.math.GeometryEnv` does.
        part: ``"train"`` or ``"eval"``: one of two parts without a common question; ``"all"`` or
            ``None``: all items. Where a run evaluates on the data that it trains on, ``None``
            becomes ``"train"`` in training and ``"eval"`` in evaluation.
        held_out: share of the questions in the part ``"eval"``; at least one, not all.
        **options: see `gem_core.envs.single_turn.SingleTurn`.

    Raises:
        DataError: the data cannot be read, or lack a column.
        MissingDependencyError: the package that reads the data is not installed.
    """

    roles: ClassVar[Mapping[str, str]] = {"question": "question", "answer": "answer"}
    """Role -> name of the column, unless ``columns`` overrides it."""
    optional: ClassVar[frozenset[str]] = frozenset()
    """Roles that a data set may lack."""
    images_in_info: ClassVar[bool] = False
    """Whether ``info`` of ``reset`` has the images of an item."""

    _row: dict[str, Any]

    def __init__(
        self,
        *,
        dataset: str,
        sample: str,
        split: str | None = None,
        subset: str | None = None,
        revision: str | None = None,
        columns: Mapping[str, str] | None = None,
        strict: bool | None = None,
        images: str | None = None,
        part: str | None = None,
        held_out: float = HELD_OUT,
        **options: Any,
    ):
        super().__init__(**options)
        for role in columns or ():
            if role not in self.roles:
                raise unknown("role of a column", role, self.roles, f"{', '.join(self.roles)}.")
        self.part = check_part(part, held_out)
        self.held_out = held_out
        if images not in (None, "drop"):
            raise unknown("value of images", str(images), ("drop",), "There are None and 'drop'.")
        self.images = images
        self._source = Source(dataset, sample, split, subset, revision)
        self._strict = is_strict(_strict(dataset) if strict is None else strict)
        self._named = {**self.roles, **(columns or {})}
        self._use(load(self._source, self._strict))

    @classmethod
    def items_played(
        cls,
        *,
        dataset: str,
        sample: str,
        split: str | None = None,
        subset: str | None = None,
        columns: Mapping[str, str] | None = None,
        held_out: float = HELD_OUT,
        **_: Any,
    ) -> Items:
        """Return which items an environment with these parameters plays; nothing is loaded."""
        if dataset == "sample":
            return Items(f"sample {sample}", None, None, (held_out,))
        if is_file(dataset):
            dataset, subset, split = str(Path(dataset).expanduser().resolve()), None, None
        question = {**cls.roles, **(columns or {})}["question"]
        return Items(dataset, subset, split, (held_out, question))

    def item_indices(self) -> Sequence[int]:
        """Return the items that this environment plays, in their order."""
        if self.part is None:
            return super().item_indices()
        return self._division().indices(self.part)

    @property
    def is_sample(self) -> bool:
        """Whether the built-in sample is used."""
        return self._table.sample

    @property
    def shows_images(self) -> bool:
        """Whether ``info`` of ``reset`` has images, without which an item cannot be answered."""
        return self.images_in_info and self.images is None

    def _use(self, table: DataTable) -> None:
        self._table = table
        if table.commit is not None:
            self._source = self._source._replace(revision=table.commit)  # for a copy elsewhere
        self._count = table.size
        self.data_revision = table.revision
        # The columns of a sample are named by their roles.
        self._columns = {r: r for r in self.roles} if table.sample else self._named
        first = table.row(0)
        for role, column in self._columns.items():
            if column not in first and role not in self.optional:
                raise DataError(
                    f"{self._source.dataset!r} has no column {column!r}; its columns are "
                    f"{', '.join(first)}: give columns={{{role!r}: ...}}."
                )
        self._require_text(first)
        if self.part is not None:
            self._division()

    def _require_text(self, row: Mapping[str, Any]) -> None:
        if self.images is not None or self.images_in_info:
            return
        for column, cell in row.items():
            if is_image(cell):
                raise DataError(
                    f"{self._source.dataset!r} has images, in the column {column!r}, and this "
                    "environment gives text only: use other data, or images='drop' to play the "
                    "items without them."
                )

    def _division(self) -> Division:
        column = self._columns["question"]
        table = self._table
        revision = (table.revision, column)
        return division(revision, self.held_out, table.size, lambda i: str(table.row(i)[column]))

    def _choose(self, options: dict[str, Any]) -> int:
        if self.part is None:
            return super()._choose(options)
        if options:
            item = super()._choose(options)
            if not self._division().has(self.part, item):
                raise OptionError(f"Item {item} is not in the part {self.part!r}.")
            return item
        if self.pick == "random":
            return self._division().draw(self.part, self.rng)
        items = self.item_indices()
        if self._from_seed is not None:
            return items[self._from_seed % len(items)]
        return items[bisect(items, getattr(self, "_item", -1)) % len(items)]

    def _load(self) -> None:
        row = self._table.row(self._item)
        self._require_text(row)
        self._row = {role: row.get(column) for role, column in self._columns.items()}
        for role, column in self._columns.items():
            missing = row.get(column) is None if role in _NEVER_NULL else column not in row
            if missing and role not in self.optional:
                raise DataError(
                    f"{self._source.dataset}, {self._table.place(self._item)}: no value in the "
                    f"column {column!r}."
                )

    def _question(self) -> str:
        return str(self._row["question"])

    def _solution(self) -> str:
        answer = self._row["answer"]
        return str(answer[0] if isinstance(answer, list) else answer)

    def _extra(self) -> dict[str, Any]:
        return {"sample": True} if self._table.sample else {}

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_table"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        table = load(self._source, self._strict)
        if table.revision != state["data_revision"]:
            raise DataError(
                f"This environment uses {state['data_revision']!r}, but on this machine "
                f"{self._source.dataset!r} is {table.revision!r}: install the same data."
            )
        self._table = table


def _strict(dataset: str) -> bool:
    from gem_core.envs._data_specs import HUB_IDS

    return dataset not in HUB_IDS


def as_answers(value: Any) -> list[str]:
    """Return the acceptable answers of a cell: a text, a number, or a list of them."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | tuple):
        return [str(v) for v in value]
    return [str(value)]


def is_image(cell: Any) -> bool:
    """Return whether a cell is an image, or a list that begins with one.

    Parquet has bytes with a path, ``datasets`` has PIL images, the samples have Base64.
    """
    if isinstance(cell, list | tuple) and cell:
        cell = cell[0]
    if isinstance(cell, dict):
        encoded = isinstance(cell.get("data"), str) and "image" in str(cell.get("type"))
        return encoded or isinstance(cell.get("bytes"), bytes)
    return hasattr(cell, "getbands") and hasattr(cell, "save")
