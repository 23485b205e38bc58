"""`Limits`: what may end an episode besides its task."""

from __future__ import annotations

import sys
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from gem_core.errors import KindError

AtLeastOne: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=sys.float_info.max)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on one episode. None of them is part of the task."""

    max_tokens_per_turn: AtLeastOne = 4096
    """Tokens that the policy may sample in one turn."""
    max_turns: AtLeastOne | None = None
    """Turns of an episode; ``None`` = the environment alone decides."""
    max_context_tokens: AtLeastOne | None = None
    """Tokens of the prompt and the completion of any turn: the model's context."""
    max_episode_tokens: AtLeastOne | None = None
    """Tokens after the first prompt, actions and observations, in the whole episode."""
    turn_deadline_s: _Seconds | None = None
    """Wall seconds of one call of the environment; ``None`` = 60, and no limit for environments of
    gem_core that cannot block."""
    episode_deadline_s: _Seconds | None = None
    """Wall seconds of a whole episode, generation included; ``None`` = no limit."""
    cut_action: Literal["invalid", "pass"] = "invalid"
    """What the environment gets for an action that was cut off at the token cap: an empty action
    (``invalid``) or the text (``pass``)."""
    train_on_failed: bool = False
    """Train on failed episodes (environment error, deadline, abort) up to the failure."""

    def __post_init__(self) -> None:
        """Check the values. Raises KindError: one is of another kind, or out of its range."""
        require_kinds(self)


def require_kinds(settings: msgspec.Struct) -> None:
    """Check the values of settings that were made here: msgspec checks only what it decodes.

    Raises:
        KindError: one is of another kind, or out of its range.
    """
    for name, kind in _kinds(type(settings)):
        try:
            msgspec.convert(getattr(settings, name), kind)
        except msgspec.ValidationError as error:
            raise KindError(f"{type(settings).__name__}({name}=): {error}.") from None


@cache
def _kinds(table: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.type) for field in msgspec.structs.fields(table))
