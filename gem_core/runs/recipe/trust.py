"""What a recipe may not ask for without ``--trust``: it is data, and data name no code.

Parameters of environments and options of tools are checked where they are used, see
`gem_core.env.registration.references`. Here are the estimator and the trainers' native keys, many
of which name files and classes that the trainer would import, run or unpickle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gem_core.env.registration.references import from_data, needs_trust_as_data, resolve_function
from gem_core.runs.recipe.recipe import Recipe

_PLAIN = re.compile(r"[A-Za-z0-9_+\-]*(\.\d+)?")
"""Texts that can name neither a file, an address nor an attribute of a module: ``cosine``."""
_NAMING = frozenset(
    re.findall(
        r"\w+",
        """
    path paths file files dir dirs folder class classes cls lib libs module func funcs
    function functions fn target callback callbacks plugin plugins processor processors
    script command cmd code hook hooks import imports url urls uri uris hub push token
    tokens key keys secret password host addr address endpoint env environ exec executable
    python pickle extension loader origin upload
""",
    )
)
"""Words in the name of a native key whose text names code, a file, an address or a secret."""
_WORDS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")
_ALLOWING = frozenset(("code", "exec", "hub", "pickle", "push", "upload"))
"""Words in the name of a native key whose ``true`` permits that: ``trust_remote_code``."""


def check_trust(recipe: Recipe) -> None:
    """Check that a recipe names no code, unless the user trusts it.

    Raises:
        TrustError: it does; the message names the key.
        CodeReferenceError: an estimator ``module:function`` does not exist.
    """
    estimator = recipe.algorithm.estimator
    if ":" in estimator:
        with from_data():
            resolve_function(estimator, None, "algorithm.estimator")
    for trainer, table in recipe.trainer.items():
        for key, value in _leaves(table, f"trainer.{trainer}"):
            if names_code(key, value):
                needs_trust_as_data(f"{key} = {value!r:.80}")


def names_code(key: str, value: object) -> bool:
    """Return whether a native key may name code, a file, an address or a secret.

    >>> names_code("trainer.trl.optim", "adamw_torch"), names_code("trainer.trl.optim", "a:b")
    (False, True)
    >>> names_code("trainer.trl.trust_remote_code", True), names_code("trainer.x.max_tokens", 64)
    (True, False)
    """
    words = {word.lower() for word in _WORDS.split(key.split(".", 2)[-1])}
    if isinstance(value, str):
        return bool(words & _NAMING) or not _PLAIN.fullmatch(value)
    if isinstance(value, bool):
        return value and bool(words & _ALLOWING)
    return not isinstance(value, (int, float, type(None)))


def _leaves(value: object, key: str) -> Iterator[tuple[str, object]]:
    """Yield every value of nested tables and lists with its dotted key."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _leaves(one, f"{key}.{name}")
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _leaves(one, key)
    else:
        yield key, value
