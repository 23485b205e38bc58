"""The ids a policy sampled are the ids that are trained on, over ten thousand random turns."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gem_core.episodes.data import Completion, FinishReason
from gem_core.episodes.rollout import play_batch
from gem_core.runs.tasks import MachineFactory

TURNS = 10_000
BASELINES = ("guess-the-number-easy", "mastermind-easy", "sudoku-easy", "tower-of-hanoi-easy")


class RandomTokens:
    """Writes legal actions in random, mostly non-canonical tokens; sometimes noise, or no end.

    Tokenising the decoded text again would give other ids, so a path that does so is detected.
    """

    def __init__(self, tokenizer, seed):
        self.tokenizer = tokenizer
        self.rng = random.Random(seed)
        self.sent: dict[int, list[list[int]]] = {}
        self.kinds: Counter[str] = Counter()

    def complete_batch(self, requests):
        return [self._one(request) for request in requests]

    def _one(self, request):
        made = self._make(request)
        self.sent.setdefault(request.machine.seed, []).append(made.token_ids)
        return made

    def _make(self, request):
        kind = self.rng.choices(["action", "noise", "cut"], [0.9, 0.05, 0.05])[0]
        ids = self._noise() if kind == "noise" else self._spelled(request.machine)
        ids = ids[: request.max_tokens - 1]
        cut = kind == "cut"
        self.kinds[kind] += 1
        canonical = self.tokenizer.encode(self.tokenizer.decode(ids), add_special_tokens=False)
        self.kinds["non-canonical"] += ids != canonical
        logprobs = [-self.rng.random() for _ in ids]
        if cut:
            return Completion(ids, logprobs, FinishReason.LENGTH)
        return Completion([*ids, self.tokenizer.eos_token_id], [*logprobs, -0.25])

    def _noise(self):
        return [self.rng.randrange(3, len(self.tokenizer)) for _ in range(self.rng.randint(1, 6))]

    def _spelled(self, machine):
        """A random action, cut into random pieces that are tokenised one by one."""
        text = machine.env.random_action(self.rng)
        ids = []
        while text:
            size = self.rng.randint(1, len(text))
            ids += self.tokenizer.encode(text[:size], add_special_tokens=False)
            text = text[size:]
        return ids


@pytest.fixture(scope="module")
def played(tokenizer):
    """Episodes of four games with at least ten thousand turns, and what the policy sent."""
    from gem_core.runs.recipe.load import load_recipe

    rounds = []
    count = 0
    while count < TURNS:
        for name in BASELINES:
            recipe = load_recipe(name, "tiny", ["limits.max_tokens_per_turn=24"])
            factory = MachineFactory(recipe, tokenizer)
            policy = RandomTokens(tokenizer, count)
            machines = [factory.train(len(rounds) * 100 + k) for k in range(100)]
            episodes = play_batch(machines, policy)
            count += sum(len(e.turns) for e in episodes)
            rounds.append((policy, episodes))
    return rounds


def test_ids_trained_on_are_the_ids_sampled(played, tokenizer):
    turns = 0
    for policy, episodes in played:
        for episode in episodes:
            (segment,) = episode.segments
            spans = [segment.token_ids[start:end] for _, start, end in segment.spans]
            assert spans == policy.sent[episode.seed]
            trained = [i for i, m in zip(segment.token_ids, segment.loss_mask, strict=True) if m]
            assert trained == [i for ids in spans for i in ids]
            turns += len(spans)
    assert turns >= TURNS


def test_the_policy_really_leaves_the_canonical_tokens(played):
    kinds = sum((policy.kinds for policy, _ in played), Counter())
    assert kinds["non-canonical"] > TURNS / 2
    assert min(kinds["noise"], kinds["cut"]) > TURNS / 100


def test_everything_between_the_actions_is_the_template_tokenised_alone(played, tokenizer):
    """Observations are tokenised once, by themselves, whatever the actions around them were."""
    from gem_core.episodes.context import get_template

    template = get_template("qwen3_game")
    for _, episodes in played:
        for episode in episodes[:25]:
            (segment,) = episode.segments
            ends = [0, *(end for _, _, end in segment.spans)]
            for turn, (number, start, _) in zip(episode.turns, segment.spans, strict=True):
                text = tokenizer.decode(segment.token_ids[ends[number] : start])
                canonical = tokenizer.encode(text, add_special_tokens=False)
                assert segment.token_ids[ends[number] : start] == canonical
                assert turn.observation in text
                head = template.first if number == 0 else template.next
                assert text.endswith(head.rpartition("{observation}")[2])


def test_actions_the_environment_saw_are_the_decoded_ids(played, tokenizer):
    for policy, episodes in played:
        for episode in episodes[:25]:
            for turn, ids in zip(episode.turns, policy.sent[episode.seed], strict=True):
                closed = ids[-1] == tokenizer.eos_token_id
                assert turn.action == tokenizer.decode(ids[:-1] if closed else ids)
