"""``stubborn_nodes.py FOLDER end|fail|kill|wait``: a launcher that leaves its nodes behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from gem_oat.watchdog import VARIABLE

NODE = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: pathlib.Path(sys.argv[1], "asked").touch())
pathlib.Path(sys.argv[1], sys.argv[2]).touch()
while True:
    time.sleep(0.05)
"""


def main() -> None:
    folder, how = Path(sys.argv[1]), sys.argv[2]
    for name, session in (("first", True), ("second", False)):
        command = [sys.executable, "-c", NODE, str(folder), name]
        subprocess.Popen(command, start_new_session=session)
        while not (folder / name).exists():
            time.sleep(0.02)
    (folder / "written").write_text(os.environ[VARIABLE])
    (folder / "written").rename(folder / "mark")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "wait":
        time.sleep(60)
    sys.exit(3 if how == "fail" else 0)


if __name__ == "__main__":
    main()
