"""How much a command prints: ``-q``, as it is, or ``-v``; and what other libraries may print."""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
from collections.abc import Callable, Mapping

DEBUG_VARIABLE = "GEM_CORE_DEBUG"
"""Environment variable; with any value but ``0`` errors are printed with their tracebacks."""
QUIET_LIBRARIES = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "PYTHONWARNINGS": "ignore::FutureWarning,ignore::DeprecationWarning",
    "RAY_DEDUP_LOGS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "DEEPSPEED_LOG_LEVEL": "error",
}
"""Environment variables with which libraries print errors only, also in the processes that a
trainer starts. What the user has set stays."""
_LOG = logging.getLogger("gem_core")
_PROGRESS = logging.getLogger("gem_core.progress")


def set_up_output(arguments: argparse.Namespace) -> None:
    """Set how much is printed, by ``verbose`` and ``quiet`` of the parsed arguments.

    The logger ``gem_core`` prints warnings; with ``-q`` errors only, with ``-v`` everything, with
    time and name.
    """
    verbose = getattr(arguments, "verbose", False)
    quiet = getattr(arguments, "quiet", False)
    _LOG.setLevel(logging.DEBUG if verbose else logging.ERROR if quiet else logging.WARNING)
    for handler in [h for h in _LOG.handlers if isinstance(h, _Verbose)]:
        _LOG.removeHandler(handler)
    if verbose:
        _LOG.addHandler(_Verbose())


class _Verbose(logging.StreamHandler):  # type: ignore[type-arg]
    """Prints what ``-v`` shows on stderr."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))


def is_verbose() -> bool:
    """Return whether ``-v`` was given."""
    return _LOG.level == logging.DEBUG


def is_quiet() -> bool:
    """Return whether ``-q`` was given."""
    return _LOG.level == logging.ERROR


def print_json(arguments: argparse.Namespace, data: object) -> None:
    """Print ``data`` as JSON where the command's standard output goes; NaN and infinity are null.

    With ``--json`` nothing else goes there: `main` sends what is printed otherwise to stderr.
    """
    print(json.dumps(_finite(data), indent=2), file=arguments.stdout)


def _finite(data: object) -> object:
    if isinstance(data, Mapping):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data if data is None or isinstance(data, (str, int, float)) else str(data)


def wants_tracebacks() -> bool:
    """Return whether an error is printed with its traceback."""
    return is_verbose() or os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0")


def progress_lines() -> Callable[[str], None]:
    """Return what prints a line of progress: `print`, or with ``-q`` a logger that is silent."""
    return _PROGRESS.info if is_quiet() else print


def quiet_libraries() -> None:
    """Keep libraries from printing what is no error; call it before they are imported.

    With ``-v`` they print what they like.
    """
    if is_verbose():
        return
    for name, value in QUIET_LIBRARIES.items():
        os.environ.setdefault(name, value)
    import warnings

    for category in (FutureWarning, DeprecationWarning):
        warnings.simplefilter("ignore", category)
