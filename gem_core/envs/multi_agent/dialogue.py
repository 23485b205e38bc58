"""A simulated user: the interface, a scripted one, and a small task with it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from importlib import import_module
from typing import NamedTuple

from gem_core.envs.games.game import Game
from gem_core.errors import unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from gem_core.core import StepResult


class UserReply(NamedTuple):
    """What a user says, and whether they leave."""

    text: str
    leaves: bool = False


class UserSimulator(ABC):
    """Somebody to talk to: scripted here, a language model if you write one.

    It has to be a function of what it is given and of its state, or episodes are not reproducible.
    """

    @abstractmethod
    def start(self, facts: dict[str, str], rng: Random) -> str:
        """Begin a conversation in which the user knows ``facts``; return the opening words."""

    @abstractmethod
    def reply(self, message: str, rng: Random) -> UserReply:
        """Answer the agent."""

    @abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Return the state as JSON data."""

    @abstractmethod
    def set_state(self, state: dict[str, Any]) -> None:
        """Take over a state."""


#: Words in a question -> the fact that answers it.
_TOPICS = {
    "order": ("order", "number"),
    "item": ("item", "product", "article", "which", "what"),
    "wish": ("refund", "exchange", "prefer", "want", "wish", "like"),
}
_ANSWERS = {
    "order": ("It is order {}.", "The number is {}."),
    "item": ("The {}.", "It is about the {}."),
    "wish": ("I would like a {}.", "A {}, please."),
}


class ScriptedUser(UserSimulator):
    """Tells what is asked for, one fact per message, and leaves when asked nothing too often.

    Args:
        patience: Messages without a question it understands that it bears.
    """

    def __init__(self, patience: int = 3):
        if patience < 1:
            raise ValueError(f"patience must be at least 1, not {patience}.")
        self.patience = patience
        self._facts: dict[str, str] = {}
        self._idle = 0

    def start(self, facts: dict[str, str], rng: Random) -> str:
        """Complain, without a single fact."""
        self._facts, self._idle = dict(facts), 0
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
        """Return facts and patience."""
        return {"facts": dict(self._facts), "idle": self._idle}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take over facts and patience."""
        self._facts, self._idle = dict(state["facts"]), state["idle"]


ITEMS = ("desk lamp", "kettle", "rain jacket", "keyboard", "yoga mat", "tea pot")
WISHES = ("refund", "exchange")
_ACTION = re.compile(r"(say|file)\s*\[(.*)\]", re.DOTALL | re.IGNORECASE)


class ReturnsDesk(Game):
    """Find out from a user what to return, then file it.

    ``say[text]`` talks to the user; ``file[order; item; wish]`` ends the episode. The reward is the
    share of the three fields that are right.

    Args:
        user: ``"scripted"``, or ``"module:Class"`` of a `UserSimulator`.
        max_turns: The turn budget.
        **options: See `gem_core.envs.games.game.Game`.
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
        return self._go_on(f"Customer: {reply.text}", self._reward["step"])

    def _file(self, content: str) -> StepResult:
        given = [" ".join(part.lower().split()) for part in content.split(";")]
        if len(given) != len(self._facts):
            return self._invalid("A return has three fields, separated by semicolons.")
        right = [a == b.lower() for a, b in zip(given, self._facts.values(), strict=True)]
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
        """Return the right filing. For tests only: the expert asks."""
        return self._answer(f"file[{'; '.join(self._facts.values())}]")


def _user(name: str) -> UserSimulator:
    if name == "scripted":
        return ScriptedUser()
    if ":" not in name:
        raise unknown("user", name, ("scripted",), "Or give 'module:Class'.")
    module, _, attribute = name.partition(":")
    user: UserSimulator = getattr(import_module(module), attribute)()
    return user
