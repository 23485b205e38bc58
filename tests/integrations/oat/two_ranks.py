"""One of two learners: the advantages of its parts of the frozen batch, as Oat reduces them.

Run as ``two_ranks.py RANK PORT FOLDER``; the folder holds ``cases.pkl`` and gets ``RANK.pkl``.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import SimpleNamespace


def main(rank: int, port: str, folder: Path) -> None:
    from gem_oat.cpu import install

    install()
    import torch
    import torch.distributed as dist
    from oat.utils.deepspeed import DeepspeedStrategy

    from gem_oat.advantages import GemAdvantages, estimate_rows

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    strategy = DeepspeedStrategy(args=SimpleNamespace())
    strategy.world_size = 2
    learner = SimpleNamespace(strategy=strategy)
    recipe, cases = pickle.loads((folder / "cases.pkl").read_bytes())

    def reduce(array):
        return GemAdvantages.reduce(learner, array)

    results = [estimate_rows(parts[rank], recipe.algorithm, reduce) for parts in cases]
    (folder / f"{rank}.pkl").write_bytes(pickle.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
