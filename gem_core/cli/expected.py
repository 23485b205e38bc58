"""Which exceptions a user can correct, and the one line that is printed for each.

Everything else is a defect of gem-core or of an environment, and is raised.
"""

from __future__ import annotations

import errno
import sys
from importlib.util import find_spec

from gem_core.errors import GemError

_ADVICE = {
    errno.ENOSPC: "Free some space, or write to another disk.",
    errno.EDQUOT: "Free some space, or write to another disk.",
    errno.EROFS: "Name another directory.",
    errno.EACCES: "Change its permissions, or name another path.",
    errno.EPERM: "Change its permissions, or name another path.",
    errno.ENOENT: "Check the path.",
    errno.ENOTDIR: "A part of the path is a file: name another path.",
    errno.EISDIR: "Name a file.",
    errno.EEXIST: "Name another path, or move it away.",
    errno.ENOTEMPTY: "Name another path, or move it away.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.EADDRINUSE: "Choose another --port, or end the program that has this one.",
    errno.EADDRNOTAVAIL: "Choose an address of this machine.",
}
"""What to do about an error of the system; those with `_NAMELESS` name no file."""
_NAMELESS = {errno.ENOSPC, errno.EDQUOT, errno.EADDRINUSE, errno.EADDRNOTAVAIL}
_EXTRAS = {
    "hf": ("torch", "transformers", "tokenizers", "safetensors", "huggingface_hub"),
    "plot": ("matplotlib", "PIL"),
    "server": ("starlette", "uvicorn", "websockets"),
    "data": ("datasets", "pyarrow"),
    "rg": ("reasoning_gym",),
    "math": ("math_verify", "pebble"),
    "search": ("bm25s",),
    "ray": ("ray",),
    "mcp": ("mcp",),
}
_EXTRA_OF = {module: extra for extra, modules in _EXTRAS.items() for module in modules}


def in_one_line(error: BaseException) -> str | None:
    """Return the line for an error that the user can correct; ``None``: it is a defect.

    >>> in_one_line(FileNotFoundError(2, "No such file or directory", "a.txt"))
    'a.txt: No such file or directory. Check the path.'
    """
    if isinstance(error, GemError):
        return " ".join(str(error).split("\n"))
    if isinstance(error, ModuleNotFoundError):
        return _missing_module(error)
    if isinstance(error, OSError):
        return _of_the_system(error)
    if isinstance(error, UnicodeDecodeError):
        place = f"byte 0x{error.object[error.start]:02x} at position {error.start}"
        return f"A file is not UTF-8 text ({place}): save it as UTF-8."
    return None


def _of_the_system(error: OSError) -> str | None:
    if error.filename is None and error.errno not in _NAMELESS:
        return None
    # The name may be a file descriptor or bytes.
    name = "" if error.filename is None else f"{error.filename!s}: "
    advice = _ADVICE.get(error.errno or 0, "")
    return f"{name}{error.strerror}. {advice}".strip()


def _missing_module(error: ModuleNotFoundError) -> str | None:
    """Return the line for a package that is not installed; a missing module of one that is, is a
    defect."""
    package = (error.name or "").partition(".")[0]
    if not package or package.startswith("gem_") or _is_installed(package):
        return None
    extra = _EXTRA_OF.get(package)
    how = f"pip install 'gem-core[{extra}]'" if extra else "install it in this environment"
    return f"The package {package} is missing in {sys.prefix}: {how}."


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # what an adapter puts in the place of a module has no specification
        return True
