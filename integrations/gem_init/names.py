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
from gem_core.runs.trainers import trainer_names

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*")
_ENVS = re.compile(r"-envs?$")
_TRAINER = re.compile(r"^gem-|-trainer$")


class PackageNames(NamedTuple):
    """The names of a package.

    Attributes:
        folder: the last part of its path.
        distribution: what pip calls it.
        module: what Python imports.
        namespace: what the ids of its environments begin with, and the names of its tool and its
            estimator, which all installed packages share; of an adapter the name of its trainer.
    """

    folder: str
    distribution: str
    module: str
    namespace: str


def derive_names(folder: Path, *, trainer: bool = False) -> PackageNames:
    """Return the names of the package in a folder; ``-envs`` at the end is not in the namespace.

    >>> derive_names(Path("work/my-envs"))
    PackageNames(folder='my-envs', distribution='my-envs', module='my_envs', namespace='my')
    >>> derive_names(Path("my-trainer"), trainer=True).namespace
    'my'

    Args:
        folder: of the package.
        trainer: whether it is the adapter of a trainer; ``gem-`` and ``-trainer`` are then not in
            the namespace, which is the trainer's name.

    Raises:
        GemError: the name is none of a module, or another module, namespace or trainer has it.
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
    if trainer:
        namespace = _TRAINER.sub("", distribution)
        if namespace in trainer_names():
            raise GemError(
                f"{name!r}: there is a trainer {namespace} already, choose another name."
            )
        return PackageNames(name, distribution, module, namespace)
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
