"""Runs programs with gem-llm's Python tool; started by ``run.py`` with the Python that has it."""

from __future__ import annotations

import json
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from gem.tools.python_code_tool import PythonCodeTool


def main() -> None:
    job = json.loads(sys.argv[1])
    tool = PythonCodeTool(timeout=job["deadline"])
    action = f"<python>{job['program']}</python>"
    tool.execute_action(action)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = [timed(tool, action, job["pause"]) for _ in range(job["calls"])]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    started = time.perf_counter()
    with ThreadPoolExecutor(job["threads"]) as pool:
        list(pool.map(lambda _: tool.execute_action(action), range(job["calls"])))
    rate = job["calls"] / (time.perf_counter() - started)
    hanging = [timed(tool, f"<python>{code}</python>", 0) for code in job["hanging"]]
    print(
        json.dumps(
            {
                "seconds": seconds,
                "cpu_ms": 1000 * cpu / job["calls"],
                "rate": rate,
                "overshoot": [taken - job["deadline"] for taken in hanging],
            }
        )
    )


def timed(tool: PythonCodeTool, action: str, pause: float) -> float:
    started = time.perf_counter()
    tool.execute_action(action)
    taken = time.perf_counter() - started
    time.sleep(pause)
    return taken


if __name__ == "__main__":
    main()
