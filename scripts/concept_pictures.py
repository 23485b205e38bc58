#!/usr/bin/env python3
"""Draw the pictures of README.md and the pages: ``python scripts/concept_pictures.py``.

The numbers in them are computed by gem_core itself, from the two episodes of `REWARDS` and from one
that `segment_picture` plays. ``--check``
only tells whether the files in ``docs/pictures`` are up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from picture_parts import BLUE, GREEN, GREY, INK, RED, box, bracket, line, svg, write
from segment_picture import segments

from gem_core.advantages import TurnBatch, compute_advantages

TARGET = Path(__file__).resolve().parent.parent / "docs" / "pictures"
REWARDS = [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]
"""Guess The Number in 4 turns: one episode finds the number at the third guess, one does not."""
GAMMA = 0.9
NAMES = ("episode", "advantages", "credit", "lockstep", "overview", "flow")
TRAINERS = ("TRL", "verl", "OpenRLHF", "Oat", "RL2")


def main() -> int:
    """Write or check the pictures; return the exit status."""
    drawn = {name: globals()[name]() for name in NAMES} | {"segments": segments()}
    old = [name for name, text in drawn.items() if current(name) != text]
    for name in old:
        if "--check" in sys.argv:
            print(f"concept-{name}.svg is out of date: run python scripts/concept_pictures.py")
        else:
            (TARGET / f"concept-{name}.svg").write_text(drawn[name], encoding="utf-8")
    return int(bool(old and "--check" in sys.argv))


def current(name: str) -> str:
    """Return the picture as it is, or "" if there is none."""
    path = TARGET / f"concept-{name}.svg"
    return path.read_text(encoding="utf-8") if path.exists() else ""


# --- the pictures -----------------------------------------------------------------------------


def episode() -> str:
    """An episode: what is said, and the one row of tokens that it becomes."""
    said = [
        ("rules: guess 1 to 10", "\\boxed{5}", "0"),
        ("too low", "\\boxed{8}", "0"),
        ("too high", "\\boxed{7}", "1"),
    ]
    parts = [write(10, 24, "environment"), write(10, 64, "policy"), write(10, 104, "reward")]
    for turn, (observation, action, reward) in enumerate(said):
        x = 110 + 200 * turn
        parts += [box(x, 6, 150, 28, GREY, observation), box(x + 40, 46, 110, 28, BLUE, action)]
        parts += [write(x + 95, 104, reward, INK, "middle")]
        parts += bracket(x, x + 150, 112, f"turn {turn + 1}")
    parts.append(write(10, 174, "tokens"))
    x = 110
    for tokens, colour in ((9, GREY), (4, BLUE), (4, GREY), (4, BLUE), (4, GREY), (4, BLUE)):
        for _ in range(tokens):
            parts.append(box(x, 156, 18, 26, colour))
            x += 19
    parts += bracket(110, x - 1, 186, "one segment: grey = read (mask 0), blue = sampled (mask 1)")
    return svg(720, 220, parts)


def values() -> tuple[list[list[float]], list[list[float]]]:
    """Return the discounted returns and ReBN's advantages of each episode of `REWARDS`."""
    batch = TurnBatch.from_episodes(REWARDS)
    cuts = np.cumsum([len(rewards) for rewards in REWARDS])[:-1]
    both = (compute_advantages(name, batch, gamma=GAMMA) for name in ("reinforce", "rebn"))
    returns, rebn = ([part.tolist() for part in np.split(one, cuts)] for one in both)
    return returns, rebn


def advantages() -> str:
    """Rewards of two episodes, their returns, and the advantages by ReBN."""
    returns, rebn = values()
    parts = [
        write(10, 24, "rewards"),
        write(10, 64, "returns"),
        write(10, 150, "ReBN"),
        write(
            110, 225, f"returns: discounted by {GAMMA}. ReBN: minus their mean over all 7 turns,"
        ),
        write(110, 243, "divided by the standard deviation of all 7 turns"),
    ]
    x = 110
    for number, rewards in enumerate(REWARDS):
        for turn, reward in enumerate(rewards):
            height = 45 * rebn[number][turn]
            top = 145 - max(height, 0)
            colour = GREEN if height > 0 else RED
            parts += [
                box(x, 8, 66, 26, GREY, f"{reward:g}"),
                box(x, 48, 66, 26, BLUE, f"{returns[number][turn]:.2f}"),
                box(x + 18, top, 30, abs(height), colour),
                write(x + 33, 200, f"{rebn[number][turn]:+.2f}", INK, "middle"),
            ]
            x += 70
        x += 40
    end = 110 + 70 * 7 + 40
    parts.append(line(110, 145, end, 145))
    return svg(720, 255, parts)


def credit() -> str:
    """The advantage of a turn on each of its sampled tokens, nothing on the others."""
    _, rebn = values()
    parts = [write(10, 33, "tokens"), write(10, 73, "advantage")]
    x = 110
    for turn, advantage in enumerate(rebn[0]):
        read = 7 if turn == 0 else 3
        for token in range(read + 4):
            sampled = token >= read
            parts += [box(x, 14, 30, 28, BLUE if sampled else GREY)]
            shown = f"{advantage:+.1f}" if sampled else "0"
            parts += [box(x, 54, 30, 28, GREEN if sampled else "white", shown)]
            x += 31
        if turn == 1:
            break
    parts += bracket(110 + 31 * 7, 110 + 31 * 11, 86, "turn 1")
    parts += bracket(110 + 31 * 14, 110 + 31 * 18, 86, "turn 2")
    return svg(720, 120, parts)


def lockstep() -> str:
    """Two trainers with the same weights and noise draw the same tokens, step after step."""
    parts = [
        box(10, 14, 690, 30, GREY, "one recipe, one seed: the same start, tasks, prompts, noise"),
        write(10, 78, "trainer A"),
        write(10, 118, "trainer B"),
    ]
    for step in range(3):
        x = 110 + 200 * step
        same = ("5", "8", "7") if step < 2 else ("5", "3", "4")
        for row, tokens in enumerate((("5", "8", "7"), same)):
            for place, token in enumerate(tokens):
                differs = step == 2 and place > 0
                colour = RED if differs else BLUE
                parts.append(box(x + 34 * place, 60 + 40 * row, 32, 28, colour, token))
        parts.append(
            write(x, 160, f"step {step + 1}: " + ("equal" if step < 2 else "token 2 differs"))
        )
        if step < 2:
            parts.append(write(x + 112, 98, "update", INK))
    parts.append(write(110, 186, "Did rounding decide a tie, or do the trainers differ?"))
    return svg(720, 200, parts)


def overview() -> str:
    """One recipe and one environment, five trainers, one set of figures."""
    parts = [
        box(10, 20, 190, 44, GREY, "environment, written once"),
        box(10, 84, 190, 44, GREY, "recipe: one experiment"),
        box(10, 148, 190, 44, GREY, "estimator: ReBN, GRPO, ..."),
        box(520, 52, 190, 44, GREEN, "same episodes, same credit"),
        box(520, 116, 190, 44, GREEN, "one report, token by token"),
        write(235, 214, "the released packages, not forks"),
    ]
    for number, trainer in enumerate(TRAINERS):
        y = 10 + 39 * number
        parts += [box(300, y, 120, 32, BLUE, trainer), line(420, y + 16, 520, 106)]
        parts += [line(200, middle, 300, y + 16, GREY) for middle in (42, 106, 170)]
    return svg(720, 224, parts)


FLOW = {
    "recipe": (10, 10, "recipe (TOML)", "load_recipe"),
    "translate": (10, 90, "config.translate", "native configuration"),
    "trainer": (10, 170, "the trainer's own loop", "launch.run"),
    "tasks": (260, 10, "runs.tasks", "env, seed, group of episode i"),
    "factory": (260, 90, "MachineFactory(task)", "Env + Context + Limits"),
    "play": (260, 170, "episodes.rollout", "play, play_many, play_batch"),
    "policy": (510, 170, "rollout.EnginePolicy", "the trainer's engine"),
    "episode": (260, 250, "Episode", "turns and segments"),
    "native": (10, 330, "rollout.to_native", "the trainer's samples"),
    "batch": (260, 330, "TurnBatch", "one entry per turn"),
    "estimate": (510, 330, "gem_adapters.estimate", "one advantage per turn"),
    "loss": (510, 410, "the trainer's own loss", "and optimizer"),
    "log": (260, 410, "metrics.RunLog", "metrics, episodes"),
}
"""Step of a training step -> place, name, and what it is or gives."""
ARROWS = (
    ("recipe", "translate"), ("recipe", "tasks"), ("tasks", "factory"), ("translate", "trainer"),
    ("trainer", "factory"), ("factory", "play"), ("play", "policy"), ("play", "episode"),
    ("episode", "native"), ("episode", "batch"), ("native", "batch"), ("batch", "estimate"),
    ("estimate", "loss"), ("loss", "log"),
)  # fmt: skip


def flow() -> str:
    """The way of a batch from the recipe to the log, for docs/contracts.md."""
    parts = [arrow(*(FLOW[name][:2] for name in pair)) for pair in ARROWS]
    for x, y, name, what in FLOW.values():
        parts.append(box(x, y, 200, 50, GREY))
        parts += [write(x + 100, y + 21, name, INK, "middle")]
        parts += [write(x + 100, y + 39, what, INK, "middle")]
    return svg(720, 470, parts)


def arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return a line between two boxes of `FLOW`, with a point where it ends."""
    (x1, y1), (x2, y2) = start, end
    if x1 == x2:
        ends = (x1 + 100, y1 + 50, x2 + 100, y2)
    else:
        right = x2 > x1
        ends = (x1 + 200 * right, y1 + 25, x2 + 200 * (not right), y2 + 25)
    return line(*ends, BLUE) + f'<circle cx="{ends[2]}" cy="{ends[3]}" r="4" fill="{BLUE}"/>'


if __name__ == "__main__":
    sys.exit(main())
