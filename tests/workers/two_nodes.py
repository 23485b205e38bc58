"""Plays 200 episodes on a Ray cluster of two nodes, kills one; prints what became of them all."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import faulty_env
import ray
from ray.cluster_utils import Cluster

from gem_core.env.registration import register
from gem_core.episodes.data import Completion
from gem_core.episodes.rollout import play_many
from gem_core.runs.environments.pools import run_pool
from gem_core.runs.recipe.load import recipe_from_dict
from gem_core.runs.tasks import MachineFactory

EPISODES = 200
CONCURRENCY = 50


class Slowly:
    """A policy whose engine takes 20 ms for each completion."""

    async def complete(self, request):
        await asyncio.sleep(0.02)
        return Completion([], text="a")


def processes_of(node):
    """The processes of a node: what its raylet started, and what these started."""
    raylet = node.all_processes["raylet"][0].process.pid
    found = {raylet}
    while True:
        more = {
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/stat")
            if int(path.read_text().rpartition(")")[2].split()[1]) in found
        }
        if more <= found:
            return found
        found |= more


def main():
    register(faulty_env.ID, "faulty_env:Faulty")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    doomed = cluster.add_node(num_cpus=2)
    workers = {"backend": "ray", "number": 4, "address": cluster.address}
    env = {"id": faulty_env.ID, "kwargs": {"slow": True, "reset_s": 1.0}}
    recipe = recipe_from_dict({"name": "w", "env": [env], "workers": workers})
    factory = MachineFactory(recipe)
    first = asyncio.run(play_many([factory.train(k) for k in range(40)], Slowly()))
    pool = run_pool(recipe.workers)
    theirs = processes_of(doomed) & set(pool.pids)
    ours = set(pool.pids) - theirs

    def kill():
        time.sleep(0.3)
        for pid in processes_of(doomed):  # all at once, as when a machine loses its power
            os.kill(pid, signal.SIGKILL)

    threading.Thread(target=kill).start()
    machines = [factory.train(k) for k in range(EPISODES)]
    episodes = asyncio.run(play_many(machines, Slowly(), concurrency=CONCURRENCY))
    told = {
        "before": Counter(episode.stop_reason.value for episode in first),
        "reasons": Counter(episode.stop_reason.value for episode in episodes),
        "errors": Counter(e.error.partition(": ")[2] for e in episodes if e.error),
        "nodes": [len(theirs), len(ours)],
        "concurrency": CONCURRENCY,
        "restarts": pool.restarts,
        "left": [pid for pid in theirs if Path("/proc", str(pid)).exists()],
        "workers": len(pool.pids),
    }
    last = set(pool.pids)
    pool.close()
    told["after"] = [pid for pid in last | ours if Path("/proc", str(pid)).exists()]
    print("RESULT", json.dumps(told), flush=True)
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
