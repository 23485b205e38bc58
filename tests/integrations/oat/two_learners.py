"""One of two learners: the metrics of the first update on its part of the frozen batch.

Run as ``two_learners.py RANK PORT FOLDER FIRST LAST OVERRIDE...``: the numbers of its episodes, and
the recipe's overrides; the folder gets ``RANK.json``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

RANKS = 2


def main(rank: str, port: str, folder: Path, first: int, last: int, overrides: list[str]) -> None:
    from gem_oat.cpu.in_process import make

    # isort: split
    import torch

    from gem_core.runs.directory.run_dir import RunDir
    from gem_core.runs.recipe.load import load_recipe
    from gem_oat.launch import arguments
    from gem_oat.rollout import to_native
    from gem_parity.frozen import frozen_episodes

    torch.set_num_threads(1)
    recipe = load_recipe("guess-the-number-easy", "tiny", overrides)
    args = arguments(recipe, RunDir.create(folder / f"run{rank}", recipe, "oat"))
    args.train_batch_size *= RANKS  # a recipe has one learner on a CPU
    args.rollout_batch_size *= RANKS
    made = make(args, alone=True)
    # What it was told of a single learner.
    os.environ |= {"RANK": rank, "WORLD_SIZE": str(RANKS), "MASTER_PORT": port}
    made._init(made.args, made.actors)
    made.steps = 0
    made.gradient_update_st = 0.0
    env_ids = ["frozen:dense", "frozen:terminal"]
    episodes = frozen_episodes(16, group_size=2)
    data = []
    for number in range(first, last):
        env = env_ids.index(episodes[number].env_id)
        data += to_native(episodes[number], number, env)
    made.process_feedback_data(data)
    made.learn(1)
    result = {**made.losses, **made.summary, "ranks": made.strategy.world_size}
    (folder / f"{rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(
        sys.argv[1],
        sys.argv[2],
        Path(sys.argv[3]),
        int(sys.argv[4]),
        int(sys.argv[5]),
        sys.argv[6:],
    )
