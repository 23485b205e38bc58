"""Make the frozen episodes of the parity suite: ``python benchmarks/parity/make_episodes.py``.

Four games, played by experts and random players through the episode machine with the tiny
tokenizer, including malformed and cut actions, and the scripted batch of ``gem_parity.frozen``
(turn, token and context limits, dense and terminal rewards, an environment that raises). The file
is committed: the suite replays it unchanged, on every machine and in every version.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from transformers import AutoTokenizer

from gem_core.envs.players import Player, get_player
from gem_core.episodes.data import Completion, Episode, FinishReason
from gem_core.episodes.rollout import Request, play_batch
from gem_core.runs.recipe.load import load_recipe
from gem_core.runs.tasks import MachineFactory
from gem_core.training.tiny import model_path
from gem_parity.frozen import frozen_episodes

HERE = Path(__file__).parent
BASELINES = ("guess-the-number-easy", "mastermind-easy", "sudoku-easy", "tower-of-hanoi-easy")
GROUP = 2
PER_BASELINE = 4
# The environments as they are: the tiny profile shrinks these two, and has a tokenizer for each.
_ONE_TOKENIZER = [
    "limits.max_context_tokens=1024",
    "model.tiny.corpus=games",
    "model.tiny.vocab=1024",
    "model.tiny.pieces=digits",
]
WHOLE = {
    "mastermind-easy": ["env.0.kwargs={code_length=2, num_numbers=6, max_turns=10}"],
    "sudoku-easy": ["env.0.kwargs={holes=10, max_turns=15}"],
}
# Only the tokenizer is needed, not the warm start.
OVERRIDES = [f"batch.group_size={GROUP}", "batch.episodes=4", "model.tiny.warm_start_steps=0"]


class Players:
    """A policy with one player per episode, in which some actions are malformed or cut."""

    def __init__(self, factory: MachineFactory, rng: random.Random) -> None:
        self.factory = factory
        self.rng = rng
        self.players: dict[int, Player] = {}

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion]:
        """See ``BatchPolicy``."""
        return [self.one(request) for request in requests]

    def one(self, request: Request) -> Completion:
        """Return the player's action; one in twenty is malformed, one in twenty is cut."""
        assert self.factory.tokenizer is not None
        text = self.act(request)
        text = "I give up." if self.rng.random() < 0.05 else text
        ids = self.factory.tokenizer.encode(text)[: request.max_tokens - 1]
        stop = self.factory.stop_ids[0]
        cut = self.rng.random() < 0.05
        ids = (ids * request.max_tokens)[: request.max_tokens] if cut else [*ids, stop]
        logprobs = [-self.rng.random() for _ in ids]
        return Completion(ids, logprobs, FinishReason.LENGTH if cut else FinishReason.STOP)

    def act(self, request: Request) -> str:
        """Return the text of the player's action; an expert plays every second episode."""
        machine = request.machine
        if machine.turn == 0:
            kind = "expert" if machine.index % 2 else "random"
            self.players[machine.index] = get_player(
                kind, self.factory.recipe.env[0].id, machine.index, env=machine.env
            )
            self.players[machine.index].reset(*machine.shown)
        return self.players[machine.index].act(*machine.shown)


def whole(baseline: str) -> list[str]:
    """Return the keys that undo what the tiny profile shrinks."""
    return [*WHOLE[baseline], *_ONE_TOKENIZER] if baseline in WHOLE else []


def make() -> list[Episode]:
    """Return all frozen episodes, with consecutive group numbers."""
    episodes = frozen_episodes(16, group_size=GROUP)
    rng = random.Random(7)
    for baseline in BASELINES:
        recipe = load_recipe(baseline, "tiny", OVERRIDES + whole(baseline))
        factory = MachineFactory(recipe, AutoTokenizer.from_pretrained(model_path(recipe)))
        first = len(episodes)
        machines = [factory.train(k) for k in range(PER_BASELINE)]
        played = play_batch(machines, Players(factory, rng))
        for number, episode in enumerate(played, first):
            episode.index = number
            episode.group = number // GROUP
        episodes += played
    for episode in episodes:
        episode.seconds = {}
    return episodes


def main() -> None:
    """Write ``episodes.jsonl``."""
    lines = [json.dumps(e.to_dict(), separators=(",", ":")) for e in make()]
    (HERE / "episodes.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} episodes")


if __name__ == "__main__":
    main()
