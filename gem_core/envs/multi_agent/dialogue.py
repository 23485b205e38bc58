"""A simulated user: the interface, a scripted one, and a small task with it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from gem_core.env.registration.references import resolve_class
from gem_core.envs.games.game import Game
from gem_core.errors import StateError, unknown

if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from gem_core.env.interface import StepResult


class UserReply(NamedTuple):
    """A message of the user, and whether the user leaves."""

    text: str
    leaves: bool = False


class UserSimulator(ABC):
    """A simulated user. The one here is scripted; a subclass may use a language model.

    Its replies must depend only on its arguments and its state, or episodes are not reproducible.
    """

    @abstractmethod
    def start(self, facts: dict[str, str], rng: Random) -> str:
        """Begin a conversation in which the user knows ``facts``; return the first message."""

    @abstractmethod
    def reply(self, message: str, rng: Random) -> UserReply:
        """Answer the agent."""

    @abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Return the state as JSON data."""

    @abstractmethod
    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state that `get_state` returned."""


_TOPICS = {
    "order": ("order", "number"),
    "item": ("item", "product", "article", "which", "what"),
    "wish": ("refund", "exchange", "prefer", "want", "wish", "like"),
}
"""Fact -> words in a question that ask for it."""
_ANSWERS = {
    "order": ("It is order {}.", "The number is {}."),
    "item": ("The {}.", "It is about the {}."),
    "wish": ("I would like a {}.", "A {}, please."),
}


class ScriptedUser(UserSimulator):
    """Answers one question per message, and leaves after too many messages without a question.

    Args:
        patience: number of messages without an understood question after which the user leaves.
    """

    def __init__(self, patience: int = 3):
        if patience < 1:
            raise ValueError(f"patience must be at least 1, not {patience}.")
        self.patience = patience
        self._facts: dict[str, str] = {}
        self._idle = 0

    def start(self, facts: dict[str, str], rng: Random) -> str:
        """Say that something has to be returned, without any fact."""
        self._facts = dict(facts)
        self._idle = 0
        return rng.choice(("Hello, I want to return something.", "Hi! One thing has to go back."))

    def reply(self, message: str, rng: Random) -> UserReply:
        """Answer the first topic of the message."""
        words = set(re.findall(r"[a-z]+", message[:2000].lower()))
        for topic, keys in _TOPICS.items():
            if words.intersection(keys):
                return UserReply(rng.choice(_ANSWERS[topic]).format(self._facts[topic]))
        self._idle += 1
        if self._idle >= self.patience:
            return UserReply("I have no time for this. Goodbye.", leaves=True)
        return UserReply("Sorry, what do you want to know?")

    def get_state(self) -> dict[str, Any]:
        """Return the facts and the count of messages without a question."""
        return {"facts": dict(self._facts), "idle": self._idle}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the facts and the count of messages without a question.

        Raises:
            StateError: they are something else.
        """
        facts = state.get("facts") if isinstance(state, dict) else None
        if not isinstance(facts, dict) or not set(facts) <= set(_TOPICS):
            raise StateError(f"The facts that a user knows are {', '.join(_TOPICS)}.")
        if not all(isinstance(fact, str) for fact in facts.values()):
            raise StateError("The facts that a user knows are texts.")
        if type(state.get("idle")) is not int:
            raise StateError("A user counts the messages that were not understood.")
        self._facts = dict(facts)
        self._idle = state["idle"]


ITEMS = ("desk lamp", "kettle", "rain jacket", "keyboard", "yoga mat", "tea pot")
WISHES = ("refund", "exchange")
_ACTION = re.compile(r"(say|file)\s*\[(.*)\]", re.DOTALL | re.IGNORECASE)


class ReturnsDesk(Game):
    """Find out which item a customer wants to return, and why, then file the return.

    ``say[text]`` sends a message to the customer; ``file[order; item; wish]`` ends the episode. The
    reward is the share of the three fields that are right.

    Args:
        user: ``"scripted"``, or ``"module:Class"`` of a `UserSimulator`.
        max_turns: the turn budget.
        **options: see `gem_core.envs.games.game.Game`.
    """

    _state_fields = (*Game._state_fields, "_facts", "_user_state")
    _facts: dict[str, str]

    def __init__(self, *, user: str = "scripted", max_turns: int = 10, **options: Any):
        super().__init__(max_turns=max_turns, **options)
        self.user: UserSimulator = _user(user)
        self._opening = ""
        self._varies = True

    @property
    def _user_state(self) -> dict[str, Any]:
        return self.user.get_state()

    @_user_state.setter
    def _user_state(self, state: dict[str, Any]) -> None:
        self.user.set_state(state)

    def _start(self) -> None:
        self._facts = {
            "order": f"R{self.rng.randint(1000, 9999)}",
            "item": self.rng.choice(ITEMS),
            "wish": self.rng.choice(WISHES),
        }
        self._opening = self.user.start(self._facts, self.rng)

    def _consistent(self) -> bool:
        return super()._consistent() and set(self._facts) == set(_TOPICS)

    def _rules(self) -> str:
        return (
            "You work at the returns desk of a shop. Find out the order number, the item, and "
            "whether the customer wants a refund or an exchange, then file the return.\n"
            f"Talk with {self._answer('say[text]')}; file with "
            f"{self._answer('file[order; item; refund]')}, which ends the conversation. "
            f"You have {self._budget} turns.\n"
            f"Write your action like this: {self._answer(self._example())}\n"
            f"Customer: {self._opening}"
        )

    def _move(self, answer: str) -> StepResult:
        action = _ACTION.fullmatch(answer.strip())
        if action is None:
            return self._malformed("it is neither say[...] nor file[...]")
        if action[1].lower() == "file":
            return self._file(action[2])
        reply = self.user.reply(action[2], self.rng)
        if reply.leaves:
            return self._lose(f"Customer: {reply.text}", self._reward["fail"], "user_left")
        return self._continue(f"Customer: {reply.text}", self._reward["step"])

    def _file(self, content: str) -> StepResult:
        fields = [" ".join(part.lower().split()) for part in content.split(";")]
        if len(fields) != len(self._facts):
            return self._invalid("A return has three fields, separated by semicolons.")
        facts = self._facts.values()
        right = [field == fact.lower() for field, fact in zip(fields, facts, strict=True)]
        if all(right):
            return self._win("The return is filed.", self._reward["success"])
        reward = self._reward["success"] * sum(right) / len(right) or self._reward["fail"]
        return self._lose("The return is filed, but not as the customer wants it.", reward, "wrong")

    def _example(self) -> str:
        return "say[How can I help you?]"

    def random_action(self, rng: Random) -> str:
        """Ask something, or file a guess."""
        if rng.random() < 0.7:
            asked = rng.choice(("What is the order number?", "Which item is it?", "Good day."))
            return self._answer(f"say[{asked}]")
        guess = f"R{rng.randint(1000, 9999)}; {rng.choice(ITEMS)}; {rng.choice(WISHES)}"
        return self._answer(f"file[{guess}]")

    def peek(self) -> str:
        """Return the right return form, for tests; the expert asks the customer."""
        return self._answer(f"file[{'; '.join(self._facts.values())}]")


def _user(name: str) -> UserSimulator:
    if name == "scripted":
        return ScriptedUser()
    if ":" not in name:
        raise unknown("user", name, ("scripted",), "Or give 'module:Class'.")
    return resolve_class(name, UserSimulator, "user")()
