"""Small runs for the tests of lockstep: a policy of numbers that draws with the project's noise.

The policy has one row of logits per turn and is trained by REINFORCE. Rounding is a random change
of 1e-7 of each update; a fault is what a test makes of it.
"""

from __future__ import annotations

import json

import numpy as np

from gem_compare.grid import Cell
from gem_compare.lockstep.recipe import overrides
from gem_core.episodes.data import Completion, Episode, Segment, Turn
from gem_core.episodes.request_seed import request_seed
from gem_core.policies.engine.philox import uniforms

STEPS = 6
EPISODES = 8
TURNS = 2
TOKENS = 3
VOCABULARY = 6
LR = 0.5
EXTRA = (*overrides(STEPS), f"batch.episodes={EPISODES}")


class Faults:
    """What a trainer does wrong, from a step on.

    Attributes:
        start: the first step with the fault.
        lr: factor of the learning rate, which the log does not show if ``hidden``.
        hidden: whether the logged rate is the right one.
        drop_last: whether the last reward counts as 0 in the advantages.
        prompt: what is added to the first token of the prompts.
    """

    def __init__(self, start=1, lr=1.0, hidden=False, drop_last=False, prompt=0):
        self.start = start
        self.lr = lr
        self.hidden = hidden
        self.drop_last = drop_last
        self.prompt = prompt


def make_run(
    out, trainer, faults=None, rounding=1e-7, logprobs=True, baseline="guess-the-number-easy"
):
    """Write a finished run as `gem-core compare` has it; return its directory."""
    cell = Cell(baseline, trainer, "rebn", 0)
    folder = out / cell.name
    folder.mkdir(parents=True)
    recipe = cell.recipe("tiny", EXTRA)
    (folder / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    (folder / "run.json").write_text(json.dumps({"trainer": trainer}))
    logits = np.random.default_rng(1).normal(size=(TURNS, VOCABULARY))
    noise = np.random.default_rng(sum(map(ord, trainer)))
    episodes, metrics = [], []
    for step in range(1, STEPS + 1):
        active = faults if faults is not None and step >= faults.start else Faults()
        batch = [play(logits, step, k, active, logprobs) for k in range(EPISODES)]
        episodes += [{"step": step, "split": "train", **e.to_dict()} for e in batch]
        update, row = learn(logits, batch, active)
        logits = logits + update + rounding * noise.normal(size=logits.shape)
        metrics.append({"step": step, **row})
    (folder / "episodes.jsonl").write_text("".join(json.dumps(e) + "\n" for e in episodes))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(m) + "\n" for m in metrics))
    write_model(folder / "model", {"policy": logits.astype(np.float32)})
    (folder / "result.json").write_text(json.dumps(result(trainer)))
    return folder


def play(logits, step, place, faults, logprobs):
    index = (step - 1) * EPISODES + place
    segment = Segment()
    turns = []
    for turn in range(TURNS):
        segment.add_context([10 + faults.prompt, 20 + turn])
        values = log_softmax(logits[turn])
        noise = uniforms(
            [request_seed(0, "train", index, index, turn)] * TOKENS, range(TOKENS), VOCABULARY
        )
        tokens = [int(k) for k in np.argmax(values - np.log(-np.log(noise)), axis=-1)]
        chosen = [float(values[k]) for k in tokens]
        segment.add_action(turn, Completion(tokens, chosen if logprobs else None))
        reward = float(tokens[0] == 2) - 0.1 * turn
        turns.append(Turn(turn, f"turn {turn}", "".join(map(str, tokens)), reward))
    return Episode("test", index, index, index, turns, [segment])


def learn(logits, batch, faults):
    rewards = np.array([episode.rewards for episode in batch])
    if faults.drop_last:
        rewards[:, -1] = 0.0
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
    update = np.zeros_like(logits)
    for episode, row in zip(batch, advantages, strict=True):
        for turn, (_, _, start, end) in enumerate(episode.spans()):
            for token in episode.segments[0].token_ids[start:end]:
                update[turn] += row[turn] * (
                    np.eye(VOCABULARY)[token] - np.exp(log_softmax(logits[turn]))
                )
    update /= EPISODES * TURNS * TOKENS
    lr = LR * faults.lr
    metrics = {
        "success/mean": 0.5,
        "tokens/action": float(TURNS * TOKENS),
        "reward/mean": float(np.mean([episode.total_reward for episode in batch])),
        "advantage/mean": float(advantages.mean()),
        "advantage/std": float(advantages.std()),
        "advantage/cubed": float((advantages**3).mean()),
        "loss/policy": -float((update * logits).sum()),
        "grad_norm": float(np.linalg.norm(update)),
        "entropy": 1.0,
        "clip_ratio": 0.0,
        "lr": LR if faults.hidden else lr,
    }
    return lr * update, metrics


def log_softmax(values):
    return values - np.log(np.exp(values - values.max()).sum()) - values.max()


def write_model(folder, weights, kind="F32"):
    """Write arrays in the format of safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in weights.items():
        raw = array.tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


def result(trainer):
    return {
        "format": 2, "name": "guess-the-number-easy", "trainer": trainer, "seed": 0, "n": 0,
        "estimator": "rebn", "before": None, "after": None, "steps": STEPS,
        "episodes": STEPS * EPISODES, "seconds": {"train": 1.0}, "versions": {"gem-core": "0.1.0"},
        "python": "3.11", "commit": "0123456789ab",
        "hardware": {"processor": "cpu", "cores": 2, "gpus": []},
    }  # fmt: skip
