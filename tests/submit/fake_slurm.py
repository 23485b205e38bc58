"""A stand-in for Slurm: what submitit calls of it, with processes of this machine as jobs.

It is called as sbatch, srun, sacct and scontrol. Its state is the folder ``$FAKE_SLURM``: each
script that was submitted (``100.sh``), and the state of each job (``100_0``) in Slurm's words. Jobs
stay in the queue while there is a file ``held``, and are refused while there is one ``refused``;
with one ``silent`` sacct knows no job, as shortly after a submission.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

STATE = Path(os.environ["FAKE_SLURM"])


def sbatch(script: str) -> None:
    if (STATE / "refused").exists():
        sys.exit("sbatch: error: invalid partition specified: nowhere")
    number = 100 * (1 + len(list(STATE.glob("*.sh"))))
    text = Path(script).read_text()
    (STATE / f"{number}.sh").write_text(text)
    array = re.search(r"^#SBATCH --array=0-(\d+)", text, re.MULTILINE)
    jobs = [f"{number}_{k}" for k in range(int(array[1]) + 1)] if array else [str(number)]
    for job in jobs:
        (STATE / job).write_text("PENDING")
        if not (STATE / "held").exists():
            start(job)
    print(f"Submitted batch job {number}")


def start(job: str) -> None:
    """Run a job beside this process, as often as it is queued again."""
    subprocess.Popen(
        [sys.executable, __file__, "run", job],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def run(job: str) -> None:
    number, _, index = job.partition("_")
    own = {"SLURM_JOB_ID": number + index, "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}
    own |= {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": index} if index else {}
    again = True
    while again:
        (STATE / job).write_text("RUNNING")
        code = subprocess.run(
            ["bash", STATE / f"{number}.sh"], env={**os.environ, **own}
        ).returncode
        again = (STATE / f"{job}.requeued").exists()
        (STATE / f"{job}.requeued").unlink(missing_ok=True)
    (STATE / job).write_text("FAILED" if code else "COMPLETED")


def srun(*words: str) -> None:
    """Replace this process by the command, in which submitit handles the signals of the job."""
    rest = list(words)
    output = ""
    while rest[0].startswith("--"):
        option = rest.pop(0)
        output = rest.pop(0) if option == "--output" else output
    for mark, key in (("%A", "ARRAY_JOB_ID"), ("%a", "ARRAY_TASK_ID"), ("%j", "JOB_ID")):
        output = output.replace(mark, os.environ.get(f"SLURM_{key}", ""))
    with open(output.replace("%t", "0"), "a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.setpgid(0, 0)  # Slurm signals the process group of a task
    os.execvp(rest[0], rest)


def sacct(*words: str) -> None:
    wanted = {word for option, word in pairwise(words) if option == "-j"}
    print("JobID|State|NodeList")
    if (STATE / "silent").exists():
        return
    for job in sorted(path.name for path in STATE.iterdir() if not path.suffix):
        if job.split("_")[0] in wanted:
            print(f"{job}|{(STATE / job).read_text()}|node1")


def scontrol(action: str, job: str) -> None:
    assert action == "requeue"
    (STATE / f"{job}.requeued").touch()


if __name__ == "__main__":
    {"sbatch": sbatch, "srun": srun, "sacct": sacct, "scontrol": scontrol, "run": run}[sys.argv[1]](
        *sys.argv[2:]
    )
