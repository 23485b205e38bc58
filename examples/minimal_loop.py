"""A whole RL experiment in one file: play episodes, estimate advantages, update with PPO's clip.

    python examples/minimal_loop.py [--steps N] [--seed S] [--out DIR]

A two-layer language model learns to guess a number from 1 to 10 in 4 turns, in about a minute on
a CPU. gem_core plays the episodes and computes the advantages; the trainer is plain PyTorch, here.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

import gem_core
from gem_adapters.turn_batch import turn_batch
from gem_core import Episode, Recipe
from gem_core.policies.engine.policy import HFPolicy
from gem_core.training.tiny import model_path


def to_tensors(episodes: Sequence[Episode], recipe: Recipe) -> tuple[Tensor, ...]:
    """Token ids and action mask [episodes, tokens]; log-probs and advantages [action tokens]."""
    # An episode whose environment broke is kept as a record, but nothing is learned from it.
    episodes = [episode for episode in episodes if not episode.stop_reason.failed]
    # Credit is assigned to turns. ReBN: a turn's discounted return, normalised over all turns.
    name, gamma = recipe.algorithm.estimator, recipe.algorithm.gamma
    per_turn = gem_core.compute_advantages(name, turn_batch(episodes), gamma=gamma)
    # The history only grows, so an episode is one sequence: rules, guess, hint, guess, ...
    # Its ids are the sampled ones: training on re-tokenised text would train other actions.
    sequences = [episode.segments[0] for episode in episodes]
    ids = pad_sequence([torch.tensor(s.token_ids) for s in sequences], batch_first=True)
    acted = pad_sequence([torch.tensor(s.loss_mask).bool() for s in sequences], batch_first=True)
    old = pad_sequence([torch.tensor(s.logprobs) for s in sequences], batch_first=True)[acted]
    # Every token of an action gets the advantage of its turn.
    lengths = torch.tensor([end - start for s in sequences for _, start, end in s.spans])
    return ids, acted, old, torch.tensor(per_turn).repeat_interleave(lengths).float()


def action_logprobs(model: Any, ids: Tensor, acted: Tensor) -> Tensor:
    """Log-probability of every sampled token under ``model`` [action tokens]."""
    # Padding is on the right, where causal attention hides it. Position t predicts token t + 1;
    # only positions that predict an action go through the output layer, which costs the most.
    chosen = acted[:, 1:]
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    logprobs = model.lm_head(hidden[chosen]).log_softmax(dim=-1)
    return logprobs.gather(1, ids[:, 1:][chosen][:, None])[:, 0]


def ppo_loss(new: Tensor, old: Tensor, advantages: Tensor, recipe: Recipe) -> Tensor:
    """PPO's clipped objective, mean over action tokens; while new = old, the policy gradient."""
    ratio = torch.exp(new - old)
    clipped = ratio.clamp(1 - recipe.algorithm.clip_low, 1 + recipe.algorithm.clip_high)
    return -torch.minimum(ratio * advantages, clipped * advantages).mean()


def train(recipe: Recipe) -> list[float]:
    """Train as ``recipe`` says and return the success rate of each step's episodes."""
    torch.set_num_threads(1)  # tiny matrices: more threads only wait for each other
    folder = model_path(recipe)  # built by the first call (it imitates a poor player), then cached
    model = AutoModelForCausalLM.from_pretrained(folder)
    factory = gem_core.MachineFactory(recipe, AutoTokenizer.from_pretrained(folder))
    policy = HFPolicy(model, factory.stop_ids)  # samples from the live weights
    algorithm = recipe.algorithm
    optimizer = torch.optim.AdamW(model.parameters(), algorithm.lr, algorithm.betas, weight_decay=0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.train.steps)
    curve: list[float] = []
    for step in range(recipe.train.steps):
        # A machine is one environment, its prompt and its seed; all play at once, turn by turn.
        # Every step has new seeds and plays before it trains: its success rate is not flattered.
        machines = [factory(task) for task in gem_core.step_tasks(recipe, step)]
        episodes = gem_core.play_batch(machines, policy)
        curve.append(sum(episode.success for episode in episodes) / len(episodes))
        print(f"step {step + 1:3d} success {curve[-1]:.2f} " + "#" * round(40 * curve[-1]))
        ids, acted, old, advantages = to_tensors(episodes, recipe)
        for _ in range(algorithm.epochs):  # new differs from old after the first: hence the clip
            loss = ppo_loss(action_logprobs(model, ids, acted), old, advantages, recipe)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), algorithm.max_grad_norm)
            optimizer.step()
        schedule.step()
    return curve


def save(curve: Sequence[float], out: Path) -> None:
    """Write ``curve.csv``, and ``curve.png`` where matplotlib is installed."""
    out.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{step},{rate:.4f}\n" for step, rate in enumerate(curve, start=1))
    (out / "curve.csv").write_text("step,success\n" + rows)
    if find_spec("matplotlib"):
        from matplotlib.figure import Figure

        figure = Figure()
        figure.subplots().plot(range(1, len(curve) + 1), curve)
        figure.savefig(out / "curve.png")
    print(f"success {curve[0]:.2f} -> {curve[-1]:.2f}; the curve is in {out}")


def main() -> None:
    """Parse the command line, train, save the learning curve."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default="runs/minimal_loop")
    args = parser.parse_args()
    settings = [f"train.steps={args.steps}", f"seed={args.seed}", "batch.episodes=192"]
    save(train(gem_core.load_recipe("guess-the-number-easy", "tiny", settings)), args.out)


if __name__ == "__main__":
    main()
