"""Measure one case in this Python, which must be that of the trainer; print it as JSON."""

from __future__ import annotations

import importlib
import json
import sys

from cases import Case


def main() -> None:
    """``one.py TRAINER MODEL GPUS TOKENS [KEY=VALUE ...]``."""
    trainer, model, world, tokens, *overrides = sys.argv[1:]
    case = Case(trainer, model, int(world), int(tokens), tuple(overrides))
    module = importlib.import_module(f"{trainer}_update")
    print(json.dumps(module.measure(case)))


if __name__ == "__main__":
    main()
