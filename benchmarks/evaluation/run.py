"""What an evaluation costs on the client's side, beside other packages in the same run.

    python benchmarks/evaluation/run.py --other ENV/bin/python

``ENV`` is a virtual environment of its own with ``pip install inspect-ai openai``. Without the
option only gem-core is measured. All clients play the same number of episodes of five turns at
once, against a server that answers at once, one client after another.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gem_core.runs import provenance

HERE = Path(__file__).resolve().parent
MOST_MS = 1.0
"""Processor milliseconds of a turn that `gem-core eval` may cost."""
MOST_MB = 200.0
"""Resident megabytes that it may need."""
OTHERS = ("openai SDK alone", "inspect_ai")
_VERSIONS = "import importlib.metadata as m; print(m.version('openai'), m.version('inspect_ai'))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--other", metavar="PYTHON", help="Python that has inspect-ai and openai")
    parser.add_argument("--out", type=Path, help="file of the result")
    provenance.add_option(parser)
    options = parser.parse_args()
    provenance.check_option(parser, options)
    result = {
        "commit": provenance.commit(),
        "machine": f"{os.cpu_count()} cores, {platform.release()}",
        "python": platform.python_version(),
        "versions": {"gem-core": version("gem-core"), **_versions(options.other)},
        "load_before": os.getloadavg()[0],
        "clients": measure(options.episodes, options.repeats, options.other),
    }
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text, encoding="utf-8")
    ours = result["clients"][0]
    if ours["cpu_ms_per_turn"] > MOST_MS or ours["rss_mb"] > MOST_MB:
        raise SystemExit(f"gem-core eval needs more than {MOST_MS} ms per turn or {MOST_MB} MB.")


def measure(episodes: int, repeats: int, other: str | None) -> list[dict[str, Any]]:
    """Return the median run of each client."""
    server = subprocess.Popen(
        [sys.executable, str(HERE / "server.py")], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        clients = [("gem-core eval", sys.executable)]
        if other is not None:
            clients += [(name, other) for name in OTHERS]
        return [_median(name, python, url, episodes, repeats) for name, python in clients]
    finally:
        server.terminate()
        server.wait()


def _median(name: str, python: str, url: str, episodes: int, repeats: int) -> dict[str, Any]:
    runs = []
    for _ in range(repeats):
        command = [python, str(HERE / "client.py"), name, url, str(episodes)]
        done = subprocess.run(
            command,
            env={**os.environ, "NO_PROXY": "127.0.0.1"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    runs.sort(key=lambda run: run["cpu_ms_per_turn"])
    chosen: dict[str, Any] = runs[len(runs) // 2]
    return chosen


def _versions(other: str | None) -> dict[str, str]:
    if other is None:
        return {}
    done = subprocess.run([other, "-c", _VERSIONS], capture_output=True, text=True, check=True)
    openai, inspect_ai = done.stdout.split()
    return {"openai": openai, "inspect_ai": inspect_ai}


if __name__ == "__main__":
    main()
