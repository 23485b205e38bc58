"""`EnvSpec`: the description from which an environment is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.errors import RegistrationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


class EnvSpec:
    """The description from which an environment is built. Immutable, hashable, JSON-serialisable.

    Attributes:
        id: the registered id.
        entry_point: ``"module:Class"``.
        kwargs: the keyword arguments: the registered ones, overridden by those given to ``make``.
        data_revision: commit or hash of the data set behind the task, if there is one.
    """

    __slots__ = ("data_revision", "entry_point", "id", "kwargs")

    id: str
    entry_point: str
    kwargs: Mapping[str, Any]
    data_revision: str | None

    def __init__(
        self,
        id: str,
        entry_point: str,
        kwargs: Mapping[str, Any] | None = None,
        data_revision: str | None = None,
    ):
        set_ = object.__setattr__
        set_(self, "id", id)
        set_(self, "entry_point", entry_point)
        set_(self, "kwargs", dict(kwargs or {}))
        set_(self, "data_revision", data_revision)

    def replace(self, **kwargs: Any) -> EnvSpec:
        """Return a spec with some keyword arguments of the environment overridden."""
        return EnvSpec(self.id, self.entry_point, {**self.kwargs, **kwargs}, self.data_revision)

    def to_json(self) -> str:
        """Return the spec as canonical JSON (sorted keys, no spaces).

        Raises:
            TypeError: a keyword argument is not JSON data.
        """
        return _canonical(self._fields())

    @classmethod
    def from_json(cls, text: str) -> EnvSpec:
        """Build a spec from the text that `to_json` returned.

        >>> s = EnvSpec("game:X-v0", "module:X", {"n": 1})
        >>> EnvSpec.from_json(s.to_json()) == s
        True
        """
        import json

        return cls(**json.loads(text))

    def load(self) -> Callable[..., Any]:
        """Import the entry point and return the class.

        Raises:
            RegistrationError: the module has no such class.
        """
        from importlib import import_module

        module, _, name = self.entry_point.partition(":")
        try:
            factory: Callable[..., Any] = getattr(import_module(module), name)
        except AttributeError:
            raise RegistrationError(
                f"{self.id}: module {module!r} has no {name!r}; "
                f"correct the entry point {self.entry_point!r}."
            ) from None
        return factory

    def fingerprint(self) -> str:
        """Return 16 hex digits that identify exactly this task.

        They are the beginning of a SHA-256 over the id, all keyword arguments, the data revision
        and the ``version`` of the environment class. Results with different fingerprints are not
        comparable.
        """
        from hashlib import sha256

        fields = self._fields()
        del fields["entry_point"]
        fields["version"] = getattr(self.load(), "version", 0)
        return sha256(_canonical(fields).encode()).hexdigest()[:16]

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"EnvSpec is immutable; make a changed copy with replace({name}=...).")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("EnvSpec is immutable.")

    def __reduce__(self) -> tuple[type[EnvSpec], tuple[Any, ...]]:
        return EnvSpec, (self.id, self.entry_point, self.kwargs, self.data_revision)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EnvSpec) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((self.id, self.entry_point, tuple(sorted(self.kwargs)), self.data_revision))

    def __repr__(self) -> str:
        return f"EnvSpec({self.id!r}, {self.entry_point!r}, {self.kwargs!r})"


def _canonical(data: Any) -> str:
    import json

    try:
        return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except TypeError as error:
        raise TypeError(f"The keyword arguments of an environment must be JSON: {error}.") from None
