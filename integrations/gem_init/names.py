"""The names of a package, made of the name of its folder."""

from __future__ import annotations

import re
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from typing import NamedTuple

from gem_core.env.registration import is_foreign
from gem_core.envs import specs
from gem_core.errors import GemError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*")
_ENVS = re.compile(r"-envs?$")


class PackageNames(NamedTuple):
    """The names of a package.

    Attributes:
        folder: the last part of its path.
        distribution: what pip calls it.
        module: what Python imports.
        namespace: what the ids of its environments begin with, and the names of its tool and its
            estimator, which all installed packages share.
    """

    folder: str
    distribution: str
    module: str
    namespace: str


def derive_names(folder: Path) -> PackageNames:
    """Return the names of the package in a folder; ``-envs`` at the end is not in the namespace.

    >>> derive_names(Path("work/my-envs"))
    PackageNames(folder='my-envs', distribution='my-envs', module='my_envs', namespace='my')

    Raises:
        GemError: the name is none of a module, or another module or namespace has it.
    """
    name = folder.absolute().name
    module = name.replace("-", "_")
    if not _NAME.fullmatch(name) or iskeyword(module):
        raise GemError(
            f"{name!r} cannot be the name of a package: take a letter, then letters, digits and "
            "single '-', and no word of Python's own, such as my-envs."
        )
    if _is_taken(module):
        raise GemError(f"{name!r}: there is a module {module!r} already, choose another name.")
    distribution = name.replace("_", "-")
    namespace = _ENVS.sub("", distribution)
    if is_foreign(f"{namespace}:") or namespace in {spec.id.partition(":")[0] for spec in specs()}:
        raise GemError(
            f"{name!r}: the ids of gem-core itself begin with {namespace}:, choose another name."
        )
    return PackageNames(name, distribution, module, namespace)


def _is_taken(module: str) -> bool:
    """Whether a module can be imported; a folder without Python files, as the new one, is none."""
    found = find_spec(module)
    return found is not None and found.origin is not None
