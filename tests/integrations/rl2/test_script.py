"""``recipes/rl2/train.py`` shows the wiring.

``tests/contract/test_repeatable.py`` shows that it trains what ``gem-core train`` trains.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gem_rl2.config import translate

SCRIPT = Path(__file__).parents[3] / "recipes" / "rl2" / "train.py"


def script(*arguments):
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_shows_rl2s_own_overrides(tiny):
    assert script("--print").splitlines() == translate(tiny())
