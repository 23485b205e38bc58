"""Notes which lines of an adapter run, in every process that inherits the environment.

Python imports it at its start where this folder is on ``PYTHONPATH``; `gpu_seams.py` puts it there.
A line is written when it runs for the first time, as trainers end many of their processes by a
signal. Threads that no Python code started are not followed.

``GEM_CORE_SEAM_LINES`` is the folder for the files (one for each process), ``GEM_CORE_SEAM_SOURCE``
the folder of the adapter.
"""

import os
import sys
import threading

_SOURCE = os.environ.get("GEM_CORE_SEAM_SOURCE")
_FOLDER = os.environ.get("GEM_CORE_SEAM_LINES")
_seen = set()
_files = {}


def _note(file, line):
    if (file, line) not in _seen:
        _seen.add((file, line))
        pid = os.getpid()  # after a fork it is another
        if pid not in _files:
            path = os.path.join(_FOLDER, f"{pid}.txt")
            _files[pid] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(_files[pid], f"{file}:{line}\n".encode())


def _line(frame, event, argument):
    if event == "line":
        _note(frame.f_code.co_filename, frame.f_lineno)
    return _line


def _call(frame, event, argument):
    return _line if frame.f_code.co_filename.startswith(_SOURCE) else None


if _SOURCE and _FOLDER:
    threading.settrace(_call)
    sys.settrace(_call)
