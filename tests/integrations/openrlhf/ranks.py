"""One rank of ``test_ranks.py``: ``ranks.py RANK RANKS PORT MODEL OUT CASES``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

BATCH = (
    "batch.episodes=16",
    "batch.group_size=2",
    "algorithm.epochs=1",
    "algorithm.estimator=gae",
    "algorithm.gamma=0.9",
)
FAILED_FIRST = "seed=1"
"""The failed episodes come first: they are all that a rank has in some forward pass."""


def update(model_dir, overrides, rank=0, ranks=1):
    """The figures of one update on this rank's share of the frozen episodes."""
    from gem_core.runs.recipe.load import load_recipe
    from gem_openrlhf.cpu.in_process import InProcess
    from gem_parity.frozen import frozen_episodes

    keys = (*BATCH, *overrides, f"hardware.gpus_per_node={ranks}")
    recipe = load_recipe("guess-the-number-easy", "tiny", keys)
    trainer = InProcess(recipe, model_dir, rank=rank, ranks=ranks)
    history = recipe.context.history
    drawn = recipe.sampling.support == "drawn"
    episodes = frozen_episodes(16, group_size=2, history=history, support=drawn)
    if FAILED_FIRST in overrides:
        episodes.sort(key=lambda episode: not episode.stop_reason.failed)
        for place, episode in enumerate(episodes):
            episode.index = place
    lengths = {len(segment.token_ids) for episode in episodes for segment in episode.segments}
    assert len(lengths) > 8 and any(episode.stop_reason.failed for episode in episodes)
    status = trainer.train(trainer.share(trainer.experiences(episodes)))
    figures = {name: value for name, value in status.items() if name.startswith("gem/")}
    if history != "append":  # how many rows only fill up depends on the ranks
        figures["trained rows"] = figures.pop("gem/rows/all") - figures.pop("gem/rows/masked")
        rows = sum(any(segment.loss_mask) for e in episodes for segment in e.segments)
        assert figures["trained rows"] == rows and rows % 4  # no whole passes of equal size
    return figures


def main(rank, ranks, port, model_dir, out, cases):
    """Make the update of each case; write the figures."""
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = port
    figures = [update(model_dir, case, int(rank), int(ranks)) for case in json.loads(cases)]
    Path(out).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
