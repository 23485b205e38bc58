"""The page in chromium with 100,000 and 1,000,000 episodes: opened, scrolled, sorted.

    .venvs/core/bin/python benchmarks/view/run.py         # makes the runs and their indexes
    .venvs/view/bin/python benchmarks/view/browser.py

Seconds from the start of a new server process to the first rows on the screen, the browser being
started already. A scroll jumps to a random place of the list and ends when its rows are drawn.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from gem_core.runs import provenance

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / "build" / "view"
SERVE = [sys.executable, str(HERE / "run.py"), "--serve"]
ROWS = "return [...document.querySelectorAll('.row')].map(r => Number(r.dataset.row))"
SCROLL = "const s = document.querySelector('.scroll'); s.scrollTop = arguments[0] * s.scrollHeight"
LONGEST_S = 60
SCROLLS = 40


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--counts", type=int, nargs="+", default=[100_000, 1_000_000])
    provenance.add_option(parser)
    arguments = parser.parse_args()
    provenance.check_option(parser, arguments)
    commit = provenance.commit()  # of the code that runs, not of a later one
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--window-size=1000,800")
    browser = webdriver.Chrome(options, Service("/usr/bin/chromedriver"))
    try:
        cells = [
            {"episodes": count, "index": index, **measure(browser, count, index)}
            for count in arguments.counts
            for index in (False, True)
        ]
    finally:
        browser.quit()
    target = HERE / "results" / "browser.json"
    result = {"commit": commit, "cores": os.cpu_count(), "cells": cells}
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(target.read_text(encoding="utf-8"))
    return 0


def measure(browser: webdriver.Chrome, count: int, index: bool) -> dict[str, Any]:
    """Open the list of a run in a new server process, and use it; without ``index`` it is made."""
    if not index:
        shutil.rmtree(FOLDER / "cache", ignore_errors=True)
    environment = {**os.environ, "GEM_CORE_CACHE": str(FOLDER / "cache")}
    browser.get("about:blank")
    begun = time.perf_counter()
    command = [*SERVE, str(FOLDER / f"run-{count}")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            browser.get(f"http://127.0.0.1:{port}/#/run/0/episodes")
            text = f"{count:,} of {count:,} episodes"
            wait(lambda: browser.execute_script(ROWS))
            figures = {"first_rows_s": round(time.perf_counter() - begun, 2)}
            wait(lambda: text in browser.find_element("id", "count").text)
            figures["whole_list_s"] = round(time.perf_counter() - begun, 2)
            return {**figures, **scrolled(browser, count)}
        finally:
            process.terminate()


def scrolled(browser: webdriver.Chrome, count: int) -> dict[str, float]:
    generator = random.Random(0)
    seconds = []
    for _ in range(SCROLLS):
        place = generator.random() * 0.98
        before = browser.execute_script(ROWS)
        begun = time.perf_counter()
        browser.execute_script(SCROLL, place)
        wait(lambda rows=before: browser.execute_script(ROWS) not in ([], rows))
        seconds.append(time.perf_counter() - begun)
    median = statistics.median(seconds)
    rows = len(browser.execute_script(ROWS))
    return {
        "scroll_median_ms": round(median * 1000),
        "scroll_worst_ms": round(max(seconds) * 1000),
        "rows_in_the_page": rows,
    }


def wait(condition: Callable[[], Any]) -> None:
    """Wait until ``condition`` holds."""
    until = time.monotonic() + LONGEST_S
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("the page does not show what it should")
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(main())
