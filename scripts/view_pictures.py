#!/usr/bin/env python3
"""Take the pictures of docs/view.md: ``python scripts/view_pictures.py GRID RUN COMPARED...``.

``GRID`` is a directory of runs for the page of all runs, ``RUN`` a run with episodes, ``COMPARED``
two or more runs that logged the same tasks. ``--only episode --suffix=-gemma`` takes the one of
docs/real-model.md (hotpot-qa-search, seed 0). It needs what ``make test-view`` needs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from gem_view.server import make_server

ROOT = Path(__file__).resolve().parents[1]
MAX_BYTES = 200_000


def main() -> int:
    """Take every picture and print its size; return 1 if one is too large."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("grid", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("compared", type=Path, nargs="+")
    parser.add_argument("--episode", type=int, default=1)
    parser.add_argument("--only", metavar="NAME", help="take only this picture")
    parser.add_argument("--suffix", default="", help="of the pictures' names")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    compared = ",".join(str(k) for k in range(len(arguments.compared)))
    task = f"compare?runs={compared}&step=1&split=train&idx=0"
    colour = "gem.tokenSettings.colouring = '{}'"
    episode = f"run/0/episode/{arguments.episode}"
    shots = [
        ("runs", [arguments.grid], "", 1000, ""),
        ("runs-dark", [arguments.grid], "", 1000, dark() + wheel(620)),
        ("run", [arguments.run], "run/0", 1000, ""),
        ("episodes", [arguments.run], "run/0/episodes?sort=reward&order=desc", 1000, ""),
        ("episode", [arguments.run], episode, 1000, colour.format("logprob")),
        ("episode-phone", [arguments.run], episode, 500, ""),
        ("compare", arguments.compared, task, 1200, ""),
    ]
    sizes = [
        take(arguments.out / f"view-{name}{arguments.suffix}.png", *shot)
        for name, *shot in shots
        if arguments.only in (None, name)
    ]
    return int(max(sizes) > MAX_BYTES)


def dark() -> str:
    """Return the script that makes the page dark, with one seed of one algorithm."""
    theme = "document.documentElement.dataset.theme = 'dark';"
    return f"{theme} gem.settings.filter = 'rebn seed0';"


def wheel(pixels: int) -> str:
    """Return the script that scrolls the page."""
    return f"setTimeout(() => scrollTo(0, {pixels}), 1000);"


def take(target: Path, runs: list[Path], page: str, width: int, script: str) -> int:
    """Take one picture; return its bytes."""
    server = make_server(runs)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = start(width)
    try:
        browser.get(f"{server.address}#/absent")
        time.sleep(0.5)
        browser.execute_script(script)
        browser.execute_script(f"location.hash = '#/{page}'")
        time.sleep(2.5)
        browser.save_screenshot(str(target))
    finally:
        browser.quit()
        server.shutdown()
    size = target.stat().st_size
    print(f"{target} {size:,} bytes")
    return size


def start(width: int) -> webdriver.Chrome:
    """Start chromium with a window of ``width`` pixels."""
    chromium = shutil.which("chromium")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        sys.exit("install chromium and its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument(f"--window-size={width},900")
    return webdriver.Chrome(options=options, service=Service(driver))


if __name__ == "__main__":
    sys.exit(main())
