"""Environments over a data set of questions, one item per episode."""

from __future__ import annotations

from gem_core.envs._data_source import Source, Table, load
from gem_core.envs.single_turn import SingleTurn
from gem_core.errors import DataError, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, ClassVar


class DatasetEnv(SingleTurn):
    """One question of a data set, one answer.

    Args:
        dataset: a Hugging Face id (``"axon-rl/GSM-8k"``), the path of a ``.jsonl`` or ``.parquet``
            file, or ``"sample"`` for the built-in sample.
        sample: name of the built-in sample of this family.
        split: split of a Hugging Face data set; needed if it has several.
        subset: configuration of a Hugging Face data set.
        revision: commit, tag or branch of a Hugging Face data set. In any case, the commit that was
            loaded is in ``env.spec.data_revision``.
        columns: names of the columns, by role: ``{"question": "problem"}``.
        strict: ``True``: data that are not available are an error. ``False``: the sample is used
            instead, with a warning, ``info["sample"] = True`` and its own data revision. ``None``:
            ``False`` for the data sets that this package registers, ``True`` for all others.
        **options: see `gem_core.envs.single_turn.SingleTurn`.

    Raises:
        DataError: the data cannot be read, or lack a column.
        MissingDependencyError: the package that reads the data is not installed.
    """

    roles: ClassVar[Mapping[str, str]] = {"question": "question", "answer": "answer"}
    """Role -> name of the column, unless ``columns`` overrides it."""
    optional: ClassVar[frozenset[str]] = frozenset()
    """Roles that a data set may lack."""

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
        **options: Any,
    ):
        super().__init__(**options)
        for role in columns or ():
            if role not in self.roles:
                raise unknown("role of a column", role, self.roles, f"{', '.join(self.roles)}.")
        self._source = Source(dataset, sample, split, subset, revision)
        self._strict = _strict(dataset) if strict is None else strict
        self._named = {**self.roles, **(columns or {})}
        self._use(load(self._source, self._strict))

    @property
    def is_sample(self) -> bool:
        """Whether the built-in sample is used."""
        return self._table.sample

    def _use(self, table: Table) -> None:
        self._table = table
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

    def _load(self) -> None:
        row = self._table.row(self._item)
        self._row = {role: row.get(column) for role, column in self._columns.items()}

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
