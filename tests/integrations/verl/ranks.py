"""One rank of verl's actor: ``python ranks.py FILE``, with torchrun's variables.

FILE has pickled cases: name -> recipe, model's directory, and samples. Of each case rank 0 prints
the gradient's norm of the first update, and how many tokens each rank had.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import torch

import gem_verl.cpu.local as local


def padded(batch, multiple):
    """The rows, with verl's padding rows up to a multiple of the number of ranks."""
    from tensordict import TensorDict
    from verl.trainer.ppo.padding_utils import construct_minimal_padding_template

    names = list(batch.keys())
    rows = [{name: batch[name][i] for name in names} for i in range(len(batch))]
    padding, _ = construct_minimal_padding_template(rows[0], {}, eos_token_id=2)
    padding |= {name: torch.zeros(1) for name in ("old_log_probs", "advantages", "returns")}
    while len(rows) % multiple:
        rows.append(padding)
    return rows, lambda some: TensorDict(
        {
            name: torch.nested.as_nested_tensor([row[name] for row in some], layout=torch.jagged)
            for name in names
        },
        batch_size=len(some),
    )


def update(recipe, model_dir, samples):
    """Train one update on this rank's rows; return what is printed of it."""
    actor = local.LocalActor(recipe, model_dir)
    rank = torch.distributed.get_rank()
    world = torch.distributed.get_world_size()
    rows, join = padded(actor.prepare(samples), world)
    share = len(rows) // world
    mine = rows[rank * share : (rank + 1) * share]
    metrics = actor.update(join(mine))
    tokens = [None] * world
    torch.distributed.all_gather_object(tokens, sum(len(row["input_ids"]) for row in mine))
    return {"norm": float(np.sum(metrics["grad_norm"])), "tokens": tokens, "rows": len(rows)}


def main():
    """Train the first update of each case; importing verl takes longer than all of them."""
    cases = pickle.loads(Path(sys.argv[1]).read_bytes())
    updates = {name: update(*case) for name, case in cases.items()}
    if torch.distributed.get_rank() == 0:
        print(json.dumps(updates))


if __name__ == "__main__":
    main()
