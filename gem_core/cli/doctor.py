"""``gem-core doctor``: which trainers can run here, and how untrusted programs are isolated."""

from __future__ import annotations

import argparse
import platform
import sys

from gem_core.report.tables import plain_table
from gem_core.sandbox import DEFAULTS, offers
from gem_core.training.trainers import check, get_trainer, installed_version, list_trainers


def doctor(arguments: argparse.Namespace) -> int:
    """Print which trainers can run here; return 1 if the chosen trainer cannot."""
    chosen = arguments.trainer
    trainers = [get_trainer(chosen)] if chosen else list(list_trainers().values())
    statuses = [check(trainer) for trainer in trainers]
    print(f"gem-core {installed_version('gem-core')}, Python {platform.python_version()}")
    print(f"{sys.executable}\n")
    print(
        plain_table(
            ("trainer", "package", "installed", "tested", "state"),
            [
                (
                    s.trainer.name,
                    s.trainer.distribution,
                    s.version or "-",
                    s.trainer.tested_range,
                    "ready" if s.ready else "cannot run here",
                )
                for s in statuses
            ],
        )
    )
    for status in statuses:
        for problem in status.problems:
            print(f"\n{status.trainer.name}: {problem}")
    if not chosen:
        print(
            "\nThe trainers pin conflicting packages, so each needs an environment of its own "
            "(see docs/install.md)."
        )
        print(f"\n{_sandbox_levels()}")
    return 0 if not chosen or statuses[0].ready else 1


def _sandbox_levels() -> str:
    """Return which levels of the sandbox this machine offers, and which is the default."""
    tried = offers()
    default = next((o.level for o in tried if o.how and o.level in DEFAULTS), None)
    table = plain_table(
        ("sandbox level", "here", ""),
        [(o.level, o.how or "no", "default" if o.level == default else "") for o in tried],
    )
    reasons = [o.reason for o in tried if o.reason]
    if any(o.how == "unshare" for o in tried):
        reasons.append(
            "Level 'strict' is made without bubblewrap (bwrap), which is not usable here."
        )
    if default is None:
        reasons.append(
            "Untrusted programs cannot be isolated here: python tools and code graders need a "
            "level by name (GEM_CORE_SANDBOX=guarded is for trusted programs; see SECURITY.md)."
        )
    return "\n".join([table, *reasons])
