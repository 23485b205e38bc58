"""``python -m gem_rl2.cpu RUN_DIR [--resume]``: one rank of a prepared run, on a CPU."""

from __future__ import annotations

import sys

from gem_rl2.cpu import enable

if __name__ == "__main__":
    enable()
    from gem_rl2.launch import main

    main(sys.argv[1:])
