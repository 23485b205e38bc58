"""``python -m gem_core`` is the command ``gem-core``."""

from __future__ import annotations

import sys

from gem_core.cli import main

if __name__ == "__main__":
    sys.exit(main())
