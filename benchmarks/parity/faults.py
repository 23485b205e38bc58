"""Faults that the recorded runs must find: ``python benchmarks/parity/faults.py``.

Each is put into a real adapter's path on purpose, in the trainer's own environment; the reference
does not know of it. The fault is found if the comparison after a few steps has any fault. Writes
``faults.md``; exit code 1 if a fault stays green, or if the run without a fault is not green.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gem_parity.faults import (
    INPUT_FAULTS,
    LR,
    STEPS,
    Batches,
    change_recipe,
    no_bootstrap,
    shift_masks,
    train_failed_episodes,
    wrong_groups,
)
from gem_parity.replays import load_replay

HERE = Path(__file__).resolve().parent
PAGE = HERE / "faults.md"


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        case: the recorded run that must find it.
        trainers: where it is injected.
        recipe: overrides of what the trainer gets, as a wrong translation would hand on.
        both: overrides of what the trainer and the reference get, so that the fault shows.
        data: changes the episodes on their way into the adapter, in place.
        code: for a trainer, a context in which its path is broken.
        model: entries of the model's config.json that the trainer gets.
        ranks: instead of a run, the advantages of two processes, which do not reduce.
    """

    case: str
    trainers: tuple[str, ...]
    recipe: tuple[str, ...] = ()
    both: tuple[str, ...] = ()
    data: Callable[[Batches], None] | None = None
    code: Callable[[str], AbstractContextManager[Any]] | None = None
    model: tuple[tuple[str, Any], ...] = ()
    ranks: bool = False


# -- faults in the code ---------------------------------------------------------------------------


def shifted_old_logprobs(trainer: str) -> AbstractContextManager[Any]:
    """Shift the old policy's log-probabilities by one token."""
    return {
        "trl": _trl_old,
        "verl": _verl_old,
        "openrlhf": _openrlhf_old,
        "oat": _oat_old,
        "rl2": _rl2_old,
    }[trainer]()


def _trl_old() -> AbstractContextManager[Any]:
    from gem_trl.trainer import GemTrainer

    original = GemTrainer._generate_and_score_completions

    def broken(self: Any, inputs: Any) -> Any:
        output = original(self, inputs)
        output["old_per_token_logps"] = output["old_per_token_logps"].roll(1, dims=1)
        return output

    return patch.object(GemTrainer, "_generate_and_score_completions", broken)


def _verl_old() -> AbstractContextManager[Any]:
    import torch

    from gem_verl.cpu.local import LocalActor

    original = LocalActor._log_probs

    def broken(self: Any, batch: Any) -> Any:
        rows = [row.roll(1) for row in original(self, batch).unbind()]
        return torch.nested.as_nested_tensor(rows, layout=torch.jagged)

    return patch.object(LocalActor, "_log_probs", broken)


def _openrlhf_old() -> AbstractContextManager[Any]:
    from gem_openrlhf.cpu.in_process import InProcess

    original = InProcess.experiences

    def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
        experiences = original(self, *args, **kwargs)
        for experience in experiences:
            experience.action_log_probs = experience.action_log_probs.roll(1, dims=1)
        return experiences

    return patch.object(InProcess, "experiences", broken)


def _oat_old() -> AbstractContextManager[Any]:
    from gem_oat.cpu import install

    install()
    from gem_oat.learner import GemLearner

    original = GemLearner.get_batch_logps

    def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
        logps, entropy = original(self, *args, **kwargs)
        of_old = kwargs["model"] is self.model and not kwargs["compute_entropy"]
        return (logps.roll(1, dims=1) if of_old else logps), entropy

    return patch.object(GemLearner, "get_batch_logps", broken)


def _rl2_old() -> AbstractContextManager[Any]:
    from gem_rl2.cpu import enable

    enable()
    from gem_rl2.worker import Actor

    original = Actor.compute_logps

    def broken(self: Any, tensors: Any, step: int) -> Any:
        tensors = original(self, tensors, step)
        if self.train:
            tensors["old_logps"] = tensors["old_logps"].roll(1, dims=1)
        return tensors

    return patch.object(Actor, "compute_logps", broken)


@contextmanager
def token_statistics(trainer: str) -> Iterator[None]:
    """Normalise OpenRLHF's advantages over tokens, as stock OpenRLHF does, not over turns."""
    import torch

    from gem_openrlhf.cpu.in_process import InProcess

    original = InProcess.experiences

    def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
        experiences = original(self, *args, **kwargs)
        pairs = [(e.advantages, e.action_mask.bool()) for e in experiences]
        tokens = torch.cat([advantages[mask] for advantages, mask in pairs])
        for experience, (advantages, mask) in zip(experiences, pairs, strict=True):
            normal = (advantages - tokens.mean()) / tokens.std()
            experience.advantages = normal * mask
        return experiences

    with patch.object(InProcess, "experiences", broken):
        yield


@contextmanager
def last_update_missing(trainer: str) -> Iterator[None]:
    """Export TRL's weights as they were one training step before."""
    from gem_replays import trl as replay

    original = replay._Report._trace
    kept: list[Any] = []

    def broken(self: Any, minibatches: Any) -> Any:
        trace = original(self, minibatches)
        kept.append(trace.weights)
        trace.weights = kept[max(0, len(kept) - 2)]
        return trace

    with patch.object(replay._Report, "_trace", broken):
        yield


def _of_input(name: str, trainers: tuple[str, ...]) -> Fault:
    """Return a fault that every replay must find, tried in these trainers."""
    fault = INPUT_FAULTS[name]
    return Fault(fault.case, trainers, fault.recipe, data=fault.data)


ALL = ("oat", "openrlhf", "rl2", "trl", "verl")
FAULTS: dict[str, Fault] = {
    "masks shifted by a token": Fault("rebn", ("trl", "openrlhf"), data=shift_masks),
    "stop tokens not trained": _of_input("stop tokens not trained", ALL),
    "rewards shifted by a turn": _of_input("rewards shifted by a turn", ALL),
    "last reward dropped at a turn limit": _of_input("last reward dropped at a turn limit", ALL),
    "group ids wrong": Fault("grpo", ("trl", "verl"), data=wrong_groups),
    "failed episodes trained": Fault("rebn", ("trl", "rl2"), data=train_failed_episodes),
    "bootstrap dropped": Fault("ppo", ("oat", "openrlhf", "rl2", "trl"), data=no_bootstrap),
    "old log-probs shifted by a token": Fault("rebn", ALL, code=shifted_old_logprobs),
    "statistics over tokens": Fault("rebn", ("openrlhf",), code=token_statistics),
    "weights exported before the last update": Fault("rebn", ("trl",), code=last_update_missing),
    "gamma ignored": _of_input("gamma ignored", ALL),
    "lambda ignored": Fault("ppo", ("trl", "rl2"), ("algorithm.lam=1.0",)),
    "statistics over both environments": _of_input(
        "statistics over both environments", ("trl", "rl2")
    ),
    "clip range swapped": Fault(
        "unequal clip",
        ("trl", "verl"),
        ("algorithm.clip_low=0.05", "algorithm.clip_high=0.02"),
    ),
    "KL sign": Fault("rebn", ("trl", "openrlhf"), ("algorithm.kl_coef=-0.05",)),
    "KL term left out": Fault("rebn", ("oat", "verl"), ("algorithm.kl_coef=0.0",)),
    "KL term times the ratio": Fault(
        "rebn",
        ("trl",),
        ("trainer.trl.use_bias_correction_kl=true",),
        both=("algorithm.kl_coef=2.0",),
    ),
    "entropy sign": Fault("rebn", ("trl", "openrlhf"), ("algorithm.entropy_coef=-0.01",)),
    "loss aggregation": _of_input("loss aggregation", ("rl2", "verl")),
    "an epoch too few": _of_input("an epoch too few", ALL),
    "one minibatch instead of two": _of_input("one minibatch instead of two", ("openrlhf",)),
    "warm-up a step too long": _of_input("warm-up a step too long", ("oat", "rl2")),
    "schedule of another shape": _of_input("schedule of another shape", ("openrlhf",)),
    "gradient not clipped": _of_input("gradient not clipped", ("rl2", "trl")),
    "weight decay left out": _of_input("weight decay left out", ("verl",)),
    "Adam's second beta": _of_input("Adam's second beta", ("oat", "rl2")),
    "Adam's epsilon": Fault("rebn", ("trl",), ("trainer.trl.adam_epsilon=1e-5",)),
    "critic's learning rate": Fault("ppo", ("verl", "oat"), ("algorithm.critic_lr=1e-3",)),
    "missing rank reduction": Fault("rebn", ("oat",), ranks=True),
    "values not clipped": Fault(
        "ppo, whitened", ("trl", "rl2", "oat"), ("algorithm.value_clip=1000.0",)
    ),
    "dropout left on": Fault("rebn", ("trl",), model=(("attention_dropout", 0.1),)),
}
"""Name -> fault."""
ELSEWHERE = {
    "missing rank reduction in the other trainers": "tests/integrations/trl/test_ranks.py, "
    "tests/integrations/rl2/test_training.py, tests/integrations/verl/test_end_to_end.py",
    "stale weights in the engine": "needs an engine, which a replay leaves out: "
    "tests/integrations/rl2/test_training.py, tests/integrations/oat/test_guards.py, and lockstep "
    "runs",
}
"""Faults that another instrument must find -> which."""


# -- measuring ------------------------------------------------------------------------------------


def inject(name: str, trainer: str, model_dir: str, folder: str) -> list[str]:
    """Return what the comparison finds with a fault injected.

    Args:
        name: of the fault; "" for none.
        trainer: where.
        model_dir: the initial policy.
        folder: an empty directory.
    """
    from gem_parity.recorded import recorded_run
    from gem_parity.teacher_forced import Follower

    fault = FAULTS[name] if name else Fault("rebn", (trainer,))
    if fault.ranks:
        return _of_two_ranks(folder)
    adapter = load_replay(trainer)
    recipe = _recipe(fault.case, trainer, fault.both)
    batches = recorded_run(recipe)
    if fault.data:
        fault.data(batches)
    source = changed_model(fault, model_dir, folder)
    follower = Follower(recipe, recorded_run(recipe), model_dir, adapter.TRAITS)
    with follower, fault.code(trainer) if fault.code else nullcontext():
        adapter.replay_run(change_recipe(recipe, fault.recipe), batches, source, follower)
    return follower.finish().faults


def _of_two_ranks(folder: str) -> list[str]:
    """Return what is found in two processes that do not reduce.

    Raises:
        RuntimeError: it is found where they do, too.
    """
    sys.path.insert(0, str(HERE))
    from two_ranks import differences

    sound = differences(folder, broken=False)
    if sound:
        raise RuntimeError(f"Two sound ranks are not equal to the reference: {sound}.")
    return differences(folder, broken=True)


def _recipe(case: str, trainer: str, overrides: Sequence[str] = ()) -> Any:
    from gem_core.runs.recipe.load import override
    from gem_parity.cases import RUNS

    table = json.loads((HERE / "refusals.json").read_text(encoding="utf-8"))
    recipe = RUNS[case].recipe(list(table.get(trainer, {})), STEPS)
    return override(recipe, [f"algorithm.lr={LR}", *overrides])  # large: a short run must find it


def changed_model(fault: Fault, model_dir: str, folder: str) -> str:
    """Return a model directory with the fault's entries in its configuration."""
    import shutil

    if not fault.model:
        return model_dir
    target = Path(folder) / "model"
    shutil.copytree(model_dir, target)
    path = target / "config.json"
    settings = json.loads(path.read_text(encoding="utf-8")) | dict(fault.model)
    path.write_text(json.dumps(settings), encoding="utf-8")
    return str(target)


def work(trainer: str, model_dir: str, out: str) -> None:
    """Inject every fault of one trainer, in its environment, and write what was found."""
    from gem_core.errors import GemError, RecipeError

    names = ["", *(name for name, fault in FAULTS.items() if trainer in fault.trainers)]
    found: dict[str, list[str]] = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found[name] = inject(name, trainer, model_dir, folder)
            except GemError as error:  # a guard of the adapter may stop the run before
                if not name or isinstance(error, RecipeError):
                    raise
                found[name] = [f"{type(error).__name__}: {error}"]
    Path(out).write_text(json.dumps(found), encoding="utf-8")


def main() -> int:
    """Inject all faults, write the page, print it."""
    from run import MODEL, QUIET

    from gem_compare.runner import trainer_python

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainers", nargs="+", default=list(ALL))
    parser.add_argument("--worker", nargs=3, metavar=("TRAINER", "MODEL", "OUT"))
    arguments = parser.parse_args()
    if arguments.worker:
        work(*arguments.worker)
        return 0
    found: dict[str, dict[str, list[str]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, **QUIET}
        model = Path(folder) / "model"
        python = trainer_python(arguments.trainers[0])
        subprocess.run([python, "-c", MODEL, str(model)], env=env, check=True, capture_output=True)
        for trainer in arguments.trainers:
            out = Path(folder) / f"{trainer}.json"
            command = [trainer_python(trainer), str(HERE / "faults.py"), "--worker", trainer]
            subprocess.run([*command, str(model), str(out)], env=env, check=True)
            found[trainer] = json.loads(out.read_text(encoding="utf-8"))
    text = page(found)
    print(text)
    if sorted(found) == sorted(ALL):
        PAGE.write_text(text, encoding="utf-8")
    return int(bool(green(found)) or any(faults[""] for faults in found.values()))


def green(found: dict[str, dict[str, list[str]]]) -> list[str]:
    """Return the faults that stayed green."""
    return [
        f"{name} ({trainer})"
        for trainer, faults in found.items()
        for name, what in faults.items()
        if name and not what
    ]


def page(found: dict[str, dict[str, list[str]]]) -> str:
    """Return the page of the faults."""
    lines = ["| fault | found in | by |", "|---|---|---|"]
    for name, fault in FAULTS.items():
        measured = {t: found[t][name] for t in fault.trainers if t in found}
        places = [f"{t}" if what else f"**not in {t}**" for t, what in measured.items()]
        first = next((what[0] for what in measured.values() if what), "")
        lines.append(f"| {name} | {', '.join(places)} | {first[:120]} |")
    others = [f"- {name}: {where}." for name, where in ELSEWHERE.items()]
    clean = ", ".join(t for t, faults in found.items() if not faults[""])
    return "\n".join(
        [
            "# Injected faults\n",
            "Generated by `python benchmarks/parity/faults.py`; do not edit.\n",
            f"Each fault is put into a real adapter's path; a recorded run of {STEPS} steps must",
            "find it. By: what the comparison said in the first trainer.\n",
            *lines,
            f"\nWithout a fault the same runs are green in: {clean}.\n",
            "Faults that a replay cannot see, and the instrument that finds them:\n",
            *others,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
