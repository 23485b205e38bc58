"""Two steps of Oat's program (shared memory, actor, learner) with the CPU backend's launcher.

Run as ``three_processes.py FOLDER [fail]``; writes the run and, after every sync, digests of the
learner's and of the actor's weights.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.recipe.load import load_recipe
from gem_oat.cpu import processes


def digest(parameters):
    sha256 = hashlib.sha256()
    for name, weight in sorted(parameters):
        sha256.update(name.encode() + weight.detach().float().numpy().tobytes())
    return sha256.hexdigest()


class Actor(processes.CpuActor):
    def weights(self):
        return digest(self.llm.model.named_parameters())

    def step(self, *args, **kwargs):
        if self.args.wb_run_name == "fail":
            sys.exit("the actor is gone")
        return super().step(*args, **kwargs)


class Learner(processes.CpuLearner):
    def sync_params_to_actors(self):
        super().sync_params_to_actors()
        mine = digest(self.model.model.module.named_parameters())
        with (self.run_dir.path.parent / "digests").open("a") as file:
            file.write(f"{mine} {self.actors[0].weights()}\n")


def main(folder: Path, name: str) -> None:
    from gem_oat import launch

    recipe = load_recipe(
        "guess-the-number-easy",
        "tiny",
        [
            "batch.episodes=8",
            "train.steps=2",
            "algorithm.epochs=2",
            "eval.every=2",
            "eval.inside_episodes=4",
            "trainer.oat.shm_size_mb=200",
            "trainer.oat.vllm_sleep=true",
            "trainer.oat.enable_prefix_caching=true",
            f"trainer.oat.wb_run_name={name}",
        ],
    )
    run = RunDir.create(folder / "run", recipe, "oat")
    processes.CpuLearner = Learner
    processes.CpuActor = Actor
    launch.launch_program(launch.arguments(recipe, run))


if __name__ == "__main__":
    main(Path(sys.argv[1]), (sys.argv[2:] or ["train"])[0])
