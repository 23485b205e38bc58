"""The registry: ``register``, ``make``, ``spec``, ``list_envs``.

An id is ``namespace:Name`` (``game:Sudoku-v0-easy``). Environment modules are imported when one
of their ids is made. Packages add ids through the entry-point group ``gem_core.envs``: each entry
point is a function without arguments that calls :func:`register`; it is loaded only when an id is
unknown here or when all ids are listed.
"""

from __future__ import annotations

import re

from .errors import DataError, RegistrationError, unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .core import Env

_ID = re.compile(r"[A-Za-z0-9_.\-]+:[A-Za-z0-9_.\-]+")
_GROUP = "gem_core.envs"
_plugins_loaded = False


class EnvSpec:
    """What an environment is built from. Immutable, JSON-serialisable, hashable by fingerprint.

    Attributes:
        id: The registered id.
        entry_point: ``"module:Class"``.
        kwargs: The keyword arguments: the registered ones, overridden by those given to ``make``.
        data_revision: Commit or hash of the data set behind the task, if there is one.
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
            TypeError: A keyword argument is not JSON data.
        """
        return _canonical(self._fields())

    @classmethod
    def from_json(cls, text: str) -> EnvSpec:
        """Read what :meth:`to_json` wrote.

        >>> s = EnvSpec("game:X-v0", "module:X", {"n": 1})
        >>> EnvSpec.from_json(s.to_json()) == s
        True
        """
        import json

        return cls(**json.loads(text))

    def load(self) -> Callable[..., Env]:
        """Import the entry point and return the class.

        Raises:
            RegistrationError: The module or the class is not there.
        """
        from importlib import import_module

        module, _, name = self.entry_point.partition(":")
        try:
            factory: Callable[..., Env] = getattr(import_module(module), name)
        except AttributeError:
            raise RegistrationError(
                f"{self.id}: module {module!r} has no {name!r}; "
                f"correct the entry point {self.entry_point!r}."
            ) from None
        return factory

    def fingerprint(self) -> str:
        """Return 16 hex digits that name exactly this task.

        sha256 over the id, all keyword arguments, the data revision and the ``version`` of the
        environment class: results with different fingerprints are not comparable.
        """
        from hashlib import sha256

        fields = self._fields()
        del fields["entry_point"]
        fields["version"] = getattr(self.load(), "version", 0)
        return sha256(_canonical(fields).encode()).hexdigest()[:16]

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"EnvSpec is immutable; make a changed one with replace({name}=...).")

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


_registry: dict[str, EnvSpec] = {}


def register(
    id: str, entry_point: str, *, data_revision: str | None = None, **kwargs: Any
) -> EnvSpec:
    """Register an environment under an id.

    Registering the very same thing again is fine; anything else under a taken id is an error.

    Args:
        id: ``namespace:Name``, with a version in the name (``my:Task-v0``).
        entry_point: ``"module:Class"``; imported at the first ``make``.
        data_revision: Commit or hash of the data behind the task.
        **kwargs: Keyword arguments of the class.

    Raises:
        RegistrationError: The id or the entry point is malformed, or the id is taken.
    """
    if not _ID.fullmatch(id):
        raise RegistrationError(f"Malformed id {id!r}: write namespace:Name-v0, e.g. 'my:Task-v0'.")
    if entry_point.count(":") != 1:
        raise RegistrationError(f"{id}: the entry point {entry_point!r} is not 'module:Class'.")
    new = EnvSpec(id, entry_point, kwargs, data_revision)
    old = _builtin().get(id)
    if old is not None and old != new:
        raise RegistrationError(
            f"{id!r} is registered already, as {old!r}: choose another name or raise the version."
        )
    _registry[id] = new
    return new


def spec(id: str) -> EnvSpec:
    """Return the spec of an id.

    Raises:
        UnknownNameError: Nothing is registered under the id; the message has the close matches.
    """
    found = _builtin().get(id)
    if found is None:
        _load_plugins()
        found = _registry.get(id)
    if found is None:
        raise unknown("environment", id, _registry, "gem_core.list_envs() lists all.")
    return found


def make(id: str | EnvSpec, **kwargs: Any) -> Env:
    """Build an environment.

    Args:
        id: A registered id, or a spec (of a stored result, say).
        **kwargs: Override the registered keyword arguments.

    An environment over data says which data it found in an attribute ``data_revision``; its spec
    then has it, so that fingerprints of results on different data differ.

    Raises:
        UnknownNameError: Unknown id, or a keyword argument that the environment does not take.
        DataError: The spec names a data revision, and the data found here are others.
    """
    base = spec(id) if isinstance(id, str) else id
    full = base.replace(**kwargs) if kwargs else base
    factory = full.load()
    try:
        env = factory(**full.kwargs)
    except TypeError:
        _check_kwargs(full, factory)
        raise
    env.spec = _with_revision(full, getattr(env, "data_revision", None))
    return env


def _with_revision(spec: EnvSpec, found: str | None) -> EnvSpec:
    if found is None or found == spec.data_revision:
        return spec
    if spec.data_revision is not None:
        raise DataError(
            f"{spec.id}: the spec was made with data {spec.data_revision!r}, but here is "
            f"{found!r}; bring the same data here, or make the environment from its id."
        )
    return EnvSpec(spec.id, spec.entry_point, spec.kwargs, found)


def list_envs(pattern: str | None = None) -> list[str]:
    """Return all registered ids in order, those of installed packages included.

    Args:
        pattern: Shell-style (``game:*-easy``); without a wildcard any part of the id.

    >>> list_envs("game:guess*-easy")
    ['game:GuessTheNumber-v0-easy']
    """
    _builtin()
    _load_plugins()
    ids = sorted(_registry)
    if pattern is None:
        return ids
    from fnmatch import fnmatchcase

    glob = pattern.lower()
    if not any(c in glob for c in "*?["):
        glob = f"*{glob}*"
    return [i for i in ids if fnmatchcase(i.lower(), glob)]


def _builtin() -> dict[str, EnvSpec]:
    if not _registry:
        from .envs import specs

        for s in specs():
            _registry[s.id] = s
    return _registry


def _load_plugins() -> None:
    global _plugins_loaded
    if _plugins_loaded:
        return
    _plugins_loaded = True
    from importlib.metadata import entry_points

    for entry in entry_points(group=_GROUP):
        try:
            entry.load()()
        except Exception as error:
            import warnings

            warnings.warn(
                f"Entry point {entry.name!r} of group {_GROUP!r} ({entry.value}) failed, so its "
                f"environments are missing: {type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=3,
            )


def _check_kwargs(spec: EnvSpec, factory: Callable[..., Env]) -> None:
    accepted = _accepted_kwargs(factory)
    if accepted is None:
        return
    for name in spec.kwargs:
        if name not in accepted:
            raise unknown(
                f"keyword argument of {spec.id}",
                name,
                accepted,
                f"It takes: {', '.join(accepted) or 'none'}.",
            ) from None


def _accepted_kwargs(factory: Callable[..., Env]) -> list[str] | None:
    """Return the keyword arguments of a class, following ``**kwargs`` up its bases."""
    from inspect import Parameter, signature

    names: dict[str, None] = {}
    for function in _initialisers(factory):
        parameters = list(signature(function).parameters.values())
        named = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        names.update((p.name, None) for p in parameters if p.kind in named and p.name != "self")
        if not any(p.kind is Parameter.VAR_KEYWORD for p in parameters):
            return list(names)
    return None


def _initialisers(factory: Callable[..., Env]) -> list[Callable[..., Any]]:
    if not isinstance(factory, type):
        return [factory]
    return [c.__dict__["__init__"] for c in factory.__mro__ if "__init__" in c.__dict__]


def _canonical(data: Any) -> str:
    import json

    try:
        return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except TypeError as error:
        raise TypeError(f"The keyword arguments of an environment must be JSON: {error}.") from None
