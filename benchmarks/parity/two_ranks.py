"""Advantages of one batch in two processes of Oat, which reduce statistics over gloo.

`differences` starts both: ``two_ranks.py RANK PORT FOLDER BROKEN`` estimates one half of a recorded
batch by Oat's own reduction, or with ``BROKEN`` = 1 without it.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from gem_core.runs.recipe.recipe import Recipe
from gem_parity.cases import RUNS
from gem_parity.frozen import frozen_episodes
from gem_parity.replay import turn_advantages

RANKS = 2
BOUND = 1e-9


def differences(folder: str, broken: bool) -> list[str]:
    """Return what is not as in the reference's advantages of the whole batch.

    Args:
        folder: an empty directory.
        broken: whether the processes leave the reduction out.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, __file__]
    workers = [
        subprocess.Popen([*command, str(rank), port, folder, str(int(broken))])
        for rank in range(RANKS)
    ]
    codes = [worker.wait(timeout=300) for worker in workers]
    if any(codes):
        raise RuntimeError(f"The processes of the two ranks ended with {codes}.")
    files = [Path(folder, f"{rank}.json") for rank in range(RANKS)]
    found = np.array([number for file in files for number in json.loads(file.read_text())])
    per_episode = turn_advantages(_recipe(), frozen_episodes())
    expected = np.array([number for turns in per_episode for number in turns])
    largest = float(np.abs(found - expected).max())
    return [f"advantages of two ranks differ by {largest:.1e}"] if largest > BOUND else []


def _recipe() -> Recipe:
    return RUNS["rebn"].recipe(["algorithm.entropy_coef"])


def estimate(rank: int, port: str, folder: str, broken: bool) -> None:
    """Write the advantages of one rank's half of the episodes."""
    from gem_oat.cpu import install

    install()
    import torch
    import torch.distributed as dist
    from oat.utils.deepspeed import DeepspeedStrategy

    from gem_core.advantages import identity
    from gem_oat.advantages import GemAdvantages, estimate_rows
    from gem_oat.rows import turn_rows

    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=RANKS)
    strategy = DeepspeedStrategy(args=SimpleNamespace())
    strategy.world_size = RANKS
    learner = SimpleNamespace(strategy=strategy)
    episodes = frozen_episodes()
    envs = sorted({episode.env_id for episode in episodes})
    half = len(episodes) // RANKS
    rows = [
        row
        for number, episode in enumerate(episodes)
        if number // half == rank
        for row in turn_rows(episode, number, envs.index(episode.env_id))
    ]
    algorithm = _recipe().algorithm
    own = partial(GemAdvantages.reduce, learner)
    result = estimate_rows(rows, algorithm, identity if broken else own)
    Path(folder, f"{rank}.json").write_text(json.dumps(result.advantages.tolist()))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    estimate(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "1")
