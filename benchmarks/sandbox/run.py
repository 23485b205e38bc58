"""How fast and how clean a sandboxed Python call is, beside gem-llm's in the same run.

    python benchmarks/sandbox/run.py --gem-python ENV/bin/python

``ENV`` is a virtual environment with ``pip install gem-llm==0.1.0`` (it conflicts with nothing of
gem-core, but brings many packages). Without the option only our side is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gem_core.execution.sandbox import SandboxLimits, SandboxUnavailable
from gem_core.runs import provenance
from gem_sandbox import Sandbox
from gem_sandbox.processes import members

HERE = Path(__file__).resolve().parent
PROGRAM = "import math\nprint(sum(math.sqrt(n) for n in range(100)))"
HANGING = ["import time; time.sleep(30)", "while True: pass"]
RUNAWAYS = [
    "while True: pass",
    "import signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(60)",
    "while True: print('x' * 1000)",
    "import os\nwhile True: os.fork()",
    "for n in range(20): open(f'f{n}', 'w').write('x' * 1000)\nwhile True: pass",
    "import os; os.kill(os.getpid(), 9)",
]
DEADLINE = 1
THREADS = 8
PAUSE = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gem-python", help="Python that has gem-llm 0.1.0")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--runaways", type=int, default=1000)
    parser.add_argument("--concurrent-calls", type=int, default=2000)
    provenance.add_option(parser)
    options = parser.parse_args()
    provenance.check_option(parser, options)
    result: dict[str, Any] = {
        "commit": provenance.commit(),
        "machine": f"{os.cpu_count()} cores, {platform.release()}, Python "
        f"{platform.python_version()}",
        "load_before": os.getloadavg()[0],
        "levels": {},
    }
    for level in ("strict", "confined"):
        try:
            result["levels"][level] = measure(level, options)
        except SandboxUnavailable as refusal:
            print(refusal, file=sys.stderr)
    result["faults"] = faults(options.concurrent_calls)
    result["runaways"] = runaways(options.runaways)
    if options.gem_python:
        result["gem"] = gem(options.gem_python, options.calls)
    result["load_after"] = os.getloadavg()[0]
    (HERE / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    page = written(result)
    (HERE / "README.md").write_text(page)
    print(page)


def measure(level: str, options: argparse.Namespace) -> dict[str, Any]:
    with Sandbox(level, limits=SandboxLimits(seconds=DEADLINE)) as sandbox:
        sandbox.run(PROGRAM)
        before = cpu_seconds(sandbox)
        seconds = timed(lambda: sandbox.run(PROGRAM), options.calls, PAUSE)
        cpu_ms = 1000 * (cpu_seconds(sandbox) - before) / options.calls
        overshoot = [sandbox.run(code).seconds - DEADLINE for code in HANGING * 3]
        with sandbox.session(branches=True) as session:
            session.run("x = 1")
            kept = timed(lambda: session.run("x += 1"), options.calls, 0)
            branches = timed(lambda: session.branch().close(), 16, 0.05)
        how = sandbox.how
    with Sandbox(level, servers=2, spares=4) as sandbox:
        rate = calls_per_second(sandbox, options.calls)
    return {
        "how": how,
        "p50_ms": 1000 * quantile(seconds, 0.5),
        "p99_ms": 1000 * quantile(seconds, 0.99),
        "min_ms": 1000 * min(seconds),
        "cpu_ms": cpu_ms,
        "rate": rate,
        "overshoot_ms": 1000 * max(overshoot),
        "session_p50_ms": 1000 * quantile(kept, 0.5),
        "branch_p50_ms": 1000 * quantile(branches, 0.5),
    }


def timed(call: Callable[[], Any], calls: int, pause: float) -> list[float]:
    seconds = []
    for _ in range(calls):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
        time.sleep(pause)
    return seconds


def calls_per_second(sandbox: Sandbox, calls: int) -> float:
    started = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(lambda _: sandbox.run(PROGRAM), range(calls)))
    assert all(result.ok for result in results)
    return calls / (time.perf_counter() - started)


def cpu_seconds(sandbox: Sandbox) -> float:
    """CPU time of the server and of the programs that have ended."""
    server = sandbox._servers[0]
    assert server is not None
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    total = 0.0
    session = set(members(server.pid))
    for pid in pids:
        if pid in session:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


def faults(calls: int) -> dict[str, float]:
    """p99 of healthy calls, without faults and among 5 % that hang and 5 % that crash."""
    with Sandbox(limits=SandboxLimits(seconds=3 * DEADLINE), servers=2, spares=4) as sandbox:
        without = healthy_p99(sandbox, calls, faulty=False)
        among = healthy_p99(sandbox, calls, faulty=True)
    return {"without_ms": 1000 * without, "among_ms": 1000 * among, "calls": calls}


def healthy_p99(sandbox: Sandbox, calls: int, *, faulty: bool) -> float:
    """Every call begins 10 ms after the one before, so that hanging calls make no pauses."""
    seconds: list[float] = []

    def one(number: int) -> None:
        time.sleep(max(0.0, started + 0.01 * number - time.perf_counter()))
        kind = number % 20 if faulty else 2
        code = {0: HANGING[0], 1: "import os; os.abort()"}.get(kind, PROGRAM)
        began = time.perf_counter()
        result = sandbox.run(code)
        if kind > 1:
            seconds.append(time.perf_counter() - began)
        assert result.ok or kind <= 1 or result.error == "timeout", result

    started = time.perf_counter()
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(one, range(calls)))
    return quantile(seconds, 0.99)


def runaways(calls: int) -> dict[str, Any]:
    """Processes and files that are left after programs that end in no good way."""
    with Sandbox("confined", limits=SandboxLimits(seconds=0.1), servers=1) as sandbox:
        server = sandbox._servers[0]
        assert server is not None
        with ThreadPoolExecutor(THREADS) as pool:
            codes = [RUNAWAYS[number % len(RUNAWAYS)] for number in range(calls)]
            results = list(pool.map(sandbox.run, codes))
        time.sleep(1)
        spares = sum(1 for _ in members(server.pid)) - 2  # it, and the process that forks children
        files = list(Path(server._folder).glob("call-*/main/*"))
        folder = Path(server._folder)
    return {
        "calls": calls,
        "ended_well": sum(result.ok for result in results),
        "running_after": spares - 2,  # the two spares that wait for the next call
        "files_after": len(files),
        "processes_after_close": len(list(members(server.pid))),
        "folder_after_close": folder.exists(),
    }


def gem(python: str, calls: int) -> dict[str, Any]:
    job = {
        "program": PROGRAM,
        "calls": calls,
        "pause": PAUSE,
        "threads": THREADS,
        "deadline": DEADLINE,
        "hanging": ["import time; time.sleep(8)", "import time; time.sleep(8)"],
    }
    command = [python, str(HERE / "gem_worker.py"), json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"gem-llm could not be run with {python}: {done.stderr[-500:]}\n"
            "Make an environment: python3.11 -m venv ENV && ENV/bin/pip install gem-llm==0.1.0"
        )
    answer = json.loads(done.stdout.splitlines()[-1])
    return {
        "p50_ms": 1000 * quantile(answer["seconds"], 0.5),
        "p99_ms": 1000 * quantile(answer["seconds"], 0.99),
        "min_ms": 1000 * min(answer["seconds"]),
        "cpu_ms": answer["cpu_ms"],
        "rate": answer["rate"],
        "overshoot_ms": 1000 * max(answer["overshoot"]),
    }


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def written(result: dict[str, Any]) -> str:
    rows = [(f"{level} ({row['how']})", row) for level, row in result["levels"].items()]
    if "gem" in result:
        rows.append(("gem-llm 0.1.0 (no isolation)", result["gem"]))
    columns = {
        "p50 ms": "p50_ms",
        "min ms": "min_ms",
        "p99 ms": "p99_ms",
        "CPU ms": "cpu_ms",
        "calls/s, 8 threads": "rate",
        "deadline overshoot ms": "overshoot_ms",
        "session call p50 ms": "session_p50_ms",
        "branch p50 ms": "branch_p50_ms",
    }  # fmt: skip
    lines = [
        "# A sandboxed Python call",
        "",
        "Generated by `python benchmarks/sandbox/run.py --gem-python PATH`; do not edit.",
        "",
        f"Commit {provenance.short(result['commit'])}; {result['machine']}; "
        f"load {result['load_before']:.1f} before and {result['load_after']:.1f} after. "
        "A busy machine multiplies wall times: the minimum and the CPU time are the better "
        "figures there.",
        "",
        "| | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for name, row in rows:
        cells = [f"{row[key]:.2f}" if key in row else "-" for key in columns.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    left = result["runaways"]
    fault = result["faults"]
    lines += [
        "",
        f"**Faults.** p99 of healthy calls: {fault['without_ms']:.1f} ms in a run without faults, "
        f"{fault['among_ms']:.1f} ms among 5 % that hang and 5 % that crash "
        f"({fault['calls']} calls each, one every 10 ms).",
        "",
        f"**Runaway programs.** After {left['calls']} calls (loops, forks, sleeps that ignore "
        f"signals, floods of output, files, kills): {left['running_after']} processes and "
        f"{left['files_after']} files left; after closing {left['processes_after_close']} "
        f"processes, folder {'left' if left['folder_after_close'] else 'removed'}.",
        "",
        "The escape suite's table is [escapes.md](escapes.md).",
    ]
    lines += episodes()
    return "\n".join(lines) + "\n"


def episodes() -> list[str]:
    """Return what ``episodes.py`` measured, if it was run."""
    path = HERE / "episodes.json"
    if not path.exists():
        return []
    result = json.loads(path.read_text())
    without, among = result["without_faults"], result["with_faults"]
    return [
        "",
        f"**Episodes** (`python benchmarks/sandbox/episodes.py`, load {result['load']:.1f}). "
        f"{among['calls']} Python calls in `play_many` with 5 % that hang and 5 % that crash: "
        f"{sum(among['episodes'].values())} episodes, ended as {among['episodes']}; p99 of healthy "
        f"calls {without['healthy_p99_ms']:.0f} ms without faults, "
        f"{among['healthy_p99_ms']:.0f} ms among them ({result['p99_ratio']:.2f} times).",
    ]


if __name__ == "__main__":
    main()
