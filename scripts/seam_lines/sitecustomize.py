"""Notes which statements of an adapter run, in every process that inherits the environment.

Python imports it at its start where this folder is on ``PYTHONPATH``; `gpu_seams.py` puts it there.
Modules of the adapter are compiled with a call before each statement, so that other code is as fast
as ever and every thread is seen. A line is written when it runs for the first time, as trainers end
many of their processes by a signal.

``GEM_CORE_SEAM_LINES`` is the folder for the files (one for each process), ``GEM_CORE_SEAM_SOURCE``
what the paths of the adapter's modules begin with.
"""

import ast
import builtins
import os
from importlib.machinery import SourceFileLoader

_SOURCE = os.environ.get("GEM_CORE_SEAM_SOURCE")
_FOLDER = os.environ.get("GEM_CORE_SEAM_LINES")
_NAME = "__gem_core_seam__"
_seen = set()
_files = {}
_get_code = SourceFileLoader.get_code


def _note(file, line):
    if (file, line) not in _seen:
        _seen.add((file, line))
        pid = os.getpid()  # after a fork it is another
        if pid not in _files:
            path = os.path.join(_FOLDER, f"{pid}.txt")
            _files[pid] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(_files[pid], f"{file}:{line}\n".encode())


def _with_notes(path, source):
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, name, [new for old in block for new in _noted(path, old)])
    return ast.fix_missing_locations(tree)


def _noted(path, statement):
    text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    if text or future:
        return [statement]
    arguments = [ast.Constant(path), ast.Constant(statement.lineno)]
    call = ast.Expr(ast.Call(ast.Name(_NAME, ast.Load()), arguments, []))
    return [ast.copy_location(call, statement), statement]


def _compiled(loader, name):
    path = loader.get_filename(name)
    if not path.startswith(_SOURCE):
        return _get_code(loader, name)
    return compile(_with_notes(path, loader.get_data(path)), path, "exec", dont_inherit=True)


if _SOURCE and _FOLDER:
    setattr(builtins, _NAME, _note)
    SourceFileLoader.get_code = _compiled
