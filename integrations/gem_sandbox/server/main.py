"""The server: one process that keeps confined children ready and passes calls to them.

``main`` is started by `gem_sandbox.launch` with its options in JSON. Descriptor 0 is
the control socket: a first message reports that the server is ready, or why not; then each message
from the client brings one connected socket, on which it sends its calls (see `client`).
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys

_OPTIONS = json.loads(sys.argv[1])
_register = os.register_at_fork
os.register_at_fork = lambda **hooks: None
# What programs import most is imported here, once. The at-fork hooks of threading and random would
# touch many pages in each fork; `child` seeds random itself.
import bisect  # noqa: E402, F401
import collections  # noqa: E402, F401
import copy  # noqa: E402, F401
import dataclasses  # noqa: E402, F401
import datetime  # noqa: E402, F401
import decimal  # noqa: E402, F401
import enum  # noqa: E402, F401
import fractions  # noqa: E402, F401
import functools  # noqa: E402, F401
import hashlib  # noqa: E402, F401
import heapq  # noqa: E402, F401
import itertools  # noqa: E402, F401
import math  # noqa: E402, F401
import operator  # noqa: E402, F401
import random  # noqa: E402, F401
import re  # noqa: E402, F401
import statistics  # noqa: E402, F401
import string  # noqa: E402, F401
import textwrap  # noqa: E402, F401
import time  # noqa: E402, F401
import typing  # noqa: E402, F401

from . import confine, landlock, libc, library, namespaces, syscalls  # noqa: E402
from .server import Server  # noqa: E402
from .slots import Slots  # noqa: E402

os.register_at_fork = _register
_INNER_LEVEL = {"strict": "strict", "container": "confined"}


def main() -> None:
    """Set up what the level asks for, report that the server is ready, and serve until the end."""
    control = _control()
    try:
        server = _make_server(control)
    except OSError as error:
        reply = {"error": f"{error.strerror or error}"}
        control.send(json.dumps(reply).encode())
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    control.send(json.dumps({"ready": server.described}).encode())
    server.serve()


def _control() -> socket.socket:
    path = _OPTIONS.get("socket")
    if path is None:
        control = socket.socket(fileno=os.dup(0))
    else:
        control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.connect(path)
    control.set_inheritable(False)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    os.close(null)
    return control


def _make_server(control: socket.socket) -> Server:
    if not syscalls.NUMBERS:
        raise OSError(f"there is no table of system calls for {syscalls.MACHINE}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trainer's business
    for path in reversed(_OPTIONS["packages"]):
        sys.path.insert(0, path)
    for name in _OPTIONS["preload"]:
        __import__(name)
    folder = _OPTIONS["folder"]
    packages = tuple(_OPTIONS["packages"])
    if _OPTIONS["namespaces"]:
        readable = [*library.readable_paths(), *packages, "/dev/null"]
        if _OPTIONS["programs"]:
            readable += library.program_paths()
        if _OPTIONS["programs"] or landlock.abi():
            readable.append("/dev/zero")
        namespaces.enter(folder, readable)
        folder = namespaces.WORK
    libc.adopt_orphans()
    level = _INNER_LEVEL.get(_OPTIONS["level"], _OPTIONS["level"])
    volume = _OPTIONS["volume"]
    confinement = confine.Confinement(
        level, packages, programs=_OPTIONS["programs"], looks=not volume
    )
    slots = Slots(confinement, folder, _OPTIONS["slots"], volume, _OPTIONS["tmpfs_mb"])
    return Server(control, confinement, slots, _OPTIONS["spares"])
