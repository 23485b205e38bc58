"""The registry of environments: `register`, `make`, `spec`, `list_envs`.

An id is ``namespace:Name`` (``game:Sudoku-v0-easy``). The module of an environment is imported when
one of its ids is made. Some namespaces (``gem:``, ``gymnasium:``, ...) are another package's: what
follows them is its id, and `list_envs` does not list them; the entry points of the group
``gem_core.namespaces`` name their classes. Packages add ids through the entry-point group
``gem_core.envs``: each entry point is a function without arguments that calls `register`; it is
loaded only when an unknown id is asked for or when all ids are listed. A class that nobody
registered is its own id, ``module:Class``, see `.own_class`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gem_core.env.spec import EnvSpec
from gem_core.errors import (
    DataError,
    RegistrationError,
    error_line,
    is_interruption,
    no_exit,
    unknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from gem_core.env.interface import Env
    from gem_core.env.registration.parameters import Declared

_ID = re.compile(r"[A-Za-z0-9_.\-]+:[A-Za-z0-9_.\-]+")
_GROUP = "gem_core.envs"
_NAMESPACES = "gem_core.namespaces"
"""Group of the entry points of further namespaces: namespace -> class, as in `_FOREIGN`."""
_FOREIGN = {
    "remote": "gem_core.execution.server_client.client:RemoteEnv",
    "openenv": "gem_core.execution.server_client.openenv_client:OpenEnvEnv",
}
"""Namespaces of other packages; the class takes the rest of the id as ``name``."""
_plugins_loaded = False


_registry: dict[str, EnvSpec] = {}
_declared: dict[str, Declared] = {}
"""What clients may set of the environments that `register` was called for."""


def register(
    id: str,
    entry_point: str,
    *,
    data_revision: str | None = None,
    client_parameters: Declared | None = None,
    **kwargs: Any,
) -> EnvSpec:
    """Register an environment under an id.

    Registering the same spec again has no effect; another spec under a taken id is an error.

    Args:
        id: ``namespace:Name``, with a version in the name (``my:Task-v0``).
        entry_point: ``"module:Class"``; imported at the first ``make``.
        data_revision: commit or hash of the data behind the task.
        client_parameters: the keyword arguments that clients of an environment server may set, and
            in which bounds, see `gem_core.env.registration.parameters`; ``None``: none.
        **kwargs: keyword arguments of the class.

    Raises:
        RegistrationError: the id or the entry point is malformed, or the id is taken, or was
            registered with other ``client_parameters``.
    """
    if isinstance(entry_point, type):
        known = f"{entry_point.__module__}:{entry_point.__qualname__}"
        raise RegistrationError(
            f"{id}: an entry point is a text, not a class: write {known!r}, which other processes "
            "can import."
        )
    if not isinstance(id, str) or not isinstance(entry_point, str):
        raise RegistrationError(
            f"register({id!r:.60}, {entry_point!r:.60}): give two texts, such as 'my:Task-v0' and "
            "'module:Class'."
        )
    if not _ID.fullmatch(id):
        raise RegistrationError(f"Malformed id {id!r}: write namespace:Name-v0, e.g. 'my:Task-v0'.")
    if entry_point.count(":") != 1:
        raise RegistrationError(f"{id}: the entry point {entry_point!r} is not 'module:Class'.")
    new = EnvSpec(id, entry_point, kwargs, data_revision)
    old = _builtin().get(id)
    if old is not None and old != new:
        raise RegistrationError(
            f"{id!r} is already registered as {old!r}: choose another name or another version."
        )
    _declare(id, client_parameters, new=old is None)
    _registry[id] = new
    return new


def _declare(id: str, parameters: Declared | None, *, new: bool) -> None:
    from gem_core.env.registration.parameters import parameters_schema

    if new:
        _declared[id] = dict(parameters or {})
        return
    known = parameters_schema(client_parameters(id))
    if parameters is not None and parameters_schema(parameters) != known:
        raise RegistrationError(
            f"{id!r} is already registered with other client_parameters: name them once."
        )


def client_parameters(id: str) -> Declared:
    """Return what clients of an environment server may set of an environment.

    Raises:
        UnknownNameError: nothing is registered under the id.
    """
    registered = spec(id)
    if id in _declared:
        return _declared[id]
    if id not in _registry:  # of another package
        return {}
    from gem_core.envs import _client_parameters

    return _client_parameters.client_parameters(registered)


def check_client_parameters(
    id: str, given: Mapping[str, Any], allowed: Iterable[tuple[str, Mapping[str, Any]]] = ()
) -> None:
    """Check that a client of an environment server may set these parameters.

    Args:
        id: of the environment.
        given: what the client asks for.
        allowed: what the operator allows besides, see `.parameters.check_declared`.

    Raises:
        ParameterError: it may not; the message says what may be set.
        UnknownNameError: nothing is registered under the id.
    """
    from gem_core.env.registration.parameters import check_declared

    tables = [table for other, table in allowed if other == id]
    check_declared(id, client_parameters(id), given, tables)


def spec(id: str) -> EnvSpec:
    """Return the spec of an id, which may come as data.

    Raises:
        UnknownNameError: nothing is registered under the id; the message lists close matches.
        TrustError: it names a class that no installed plugin defines, and the user gave no
            ``--trust``.
        RegistrationError: it is not a text.
    """
    from gem_core.env.registration.references import from_data

    with from_data():
        return _spec(id)


def _spec(id: str) -> EnvSpec:
    """Return the spec of an id that the calling program chose, unless it came as data."""
    if not isinstance(id, str):
        raise RegistrationError(
            f"An id is a text, such as 'game:Sudoku-v0-easy', not {_described(id)}."
        )
    registered = _builtin().get(id) or _foreign(id)
    if registered is None:
        from gem_core.env.registration.own_class import class_spec, missing_module

        _load_plugins()
        registered = _registry.get(id) or class_spec(id)
    if registered is None:
        listing = f"{missing_module(id, _registry)}gem_core.list_envs() lists all of them."
        raise unknown("environment", id, _registry, listing)
    return registered


def make(id: str | EnvSpec, **kwargs: Any) -> Env:
    """Build an environment.

    An environment over data states in its attribute ``data_revision`` which data it loaded. The
    spec of the environment records it, so that results on different data have different
    fingerprints.

    Args:
        id: a registered id, ``module:Class``, or a spec (for example of a stored result).
        **kwargs: override the registered keyword arguments. They are the calling program's own: a
            parameter that names code (``"module:Class"``) is imported, and only its kind is
            checked. Of what comes as data, `make_from_data` builds environments.

    Raises:
        UnknownNameError: unknown id, or a keyword argument that the environment does not take.
        DataError: the spec names a data revision, and other data are installed here.
        RegistrationError: neither an id nor a spec, or what the entry point names cannot be used.
    """
    base = id if isinstance(id, EnvSpec) else _spec(id)
    full = base.replace(**kwargs) if kwargs else base
    with no_exit(f"{full.id} cannot be made"):
        factory = full.load()
        try:
            env: Env = factory(**full.kwargs)
        except TypeError:
            _check_kwargs(full, factory)
            raise
    env.spec = _with_revision(full, getattr(env, "data_revision", None))
    return env


def make_from_data(id: str, kwargs: Mapping[str, Any]) -> Env:
    """Build an environment whose id and parameters came as data: of a recipe, a run or a request.

    What they name is checked: code of installed plugins only, no weaker sandbox, see
    `gem_core.env.registration.references`. `make` takes what the calling program chooses.

    Raises:
        TrustError: they name code, or a weaker sandbox, and the user gave no ``--trust``.
        GemError: as `make`.
    """
    from gem_core.env.registration.references import from_data

    with from_data():
        return make(id, **kwargs)


def check_kwargs(id: str, kwargs: Mapping[str, Any], factory: Any = None) -> None:
    """Check that an environment takes these keyword arguments, without building it.

    ``factory`` makes it, where the caller has imported that: the id is then a name only.

    Raises:
        UnknownNameError: unknown id, or a keyword argument that the environment does not take.
    """
    full = EnvSpec(id, id, dict(kwargs)) if factory else spec(id).replace(**kwargs)
    _check_kwargs(full, factory or full.load())


def _with_revision(spec: EnvSpec, revision: str | None) -> EnvSpec:
    if revision is None or revision == spec.data_revision:
        return spec
    if spec.data_revision is not None:
        raise DataError(
            f"{spec.id}: the spec was made with the data {spec.data_revision!r}, but this machine "
            f"has {revision!r}. Install the same data, or make the environment from its id."
        )
    return EnvSpec(spec.id, spec.entry_point, spec.kwargs, revision)


def list_envs(pattern: str | None = None) -> list[str]:
    """Return all registered ids in alphabetical order, including those of installed packages.

    Args:
        pattern: a shell-style pattern (``game:*-easy``), or any part of the id.

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
        from gem_core.envs import specs

        for s in specs():
            _registry[s.id] = s
    return _registry


def _foreign(id: str) -> EnvSpec | None:
    namespace, _, name = id.partition(":")
    if not name or namespace not in foreign_namespaces():
        return None
    return EnvSpec(id, foreign_namespaces()[namespace], {"name": name})


def is_foreign(id: str) -> bool:
    """Return whether an id or a pattern begins with the namespace of another package."""
    namespace, colon, _ = id.partition(":")
    return bool(colon) and namespace in foreign_namespaces()


def foreign_namespaces() -> dict[str, str]:
    """Return the namespaces of other packages: name -> ``module:Class``.

    Raises:
        RegistrationError: two installed packages claim one.
    """
    from gem_core.env.registration.entry_points import list_entry_points

    found = dict(_FOREIGN)
    for entry in list_entry_points(_NAMESPACES):
        if found.setdefault(entry.name, entry.value) != entry.value:
            raise RegistrationError(
                f"Two packages claim the namespace {entry.name!r}, with {found[entry.name]} and "
                f"{entry.value}: uninstall one."
            )
    return found


def _load_plugins() -> None:
    global _plugins_loaded
    if _plugins_loaded:
        return
    _plugins_loaded = True
    from importlib.metadata import entry_points

    for entry in entry_points(group=_GROUP):
        try:
            _call_plugin(entry.load())
        except BaseException as error:  # one plugin's exit is not that of the program
            if is_interruption(error):
                raise
            import warnings

            warnings.warn(
                f"Entry point {entry.name!r} of group {_GROUP!r} ({entry.value}) failed, so its "
                f"environments are missing: {error_line(error)}",
                RuntimeWarning,
                stacklevel=3,
            )


def _call_plugin(function: Any) -> None:
    """Call what an entry point names, which registers environments.

    Raises:
        RegistrationError: it is a class or a module: an entry point has no id to register it under.
    """
    if isinstance(function, type) or not callable(function):
        raise RegistrationError(
            f"it names {_described(function)}, and must name a function without arguments that "
            "calls gem_core.register(id, 'module:Class')"
        )
    function()


def _described(value: object) -> str:
    """Return what kind of object was given where another was expected.

    >>> _described(dict), _described({})
    ('the class dict', 'a dict')
    """
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    return f"a {type(value).__name__}"


def _check_kwargs(spec: EnvSpec, factory: Callable[..., Env]) -> None:
    accepted = _accepted_kwargs(factory)
    if accepted is None:
        return
    for name in spec.kwargs:
        if name not in accepted:
            raise unknown(
                f"keyword argument of {spec.id}:",
                name,
                accepted,
                f"It takes: {', '.join(accepted) or 'none'}.",
            ) from None


def _accepted_kwargs(factory: Callable[..., Env]) -> list[str] | None:
    """Return the keyword arguments of a class, following ``**kwargs`` up its bases.

    ``None`` = they are not known: the last of the initialisers has ``**kwargs``, or the class says
    by ``checks_kwargs = True`` that it uses and checks its ``**kwargs`` itself.
    """
    from inspect import Parameter, signature

    if getattr(factory, "checks_kwargs", False):
        return None
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
