"""``python -m gem_rl2.testing RUN_DIR [--resume]``: one rank of a prepared run, on a CPU."""

from __future__ import annotations

import sys
from importlib import import_module

from gem_rl2.testing import enable

if __name__ == "__main__":
    enable()
    from gem_rl2._compat import NEWER

    worker = import_module("gem_rl2.newer" if NEWER else "gem_rl2.worker")
    worker.main(sys.argv[1:])
