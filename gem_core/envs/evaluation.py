"""An evaluation pass: every item of a data set exactly once, also over several environments.

Items are selected by index, so that any number of environments or machines can share a pass::

    for options in eval_items(env, part=rank, parts=world_size):
        obs, info = env.reset(options=options)

Where only a seed can be passed, the ``eval:*`` environments (``pick="seed"``) use item ``-1 - s``
for seed ``s < 0``: the evaluation episodes of a run, whose seeds are -1, -2, ..., are the items
in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.env.interface import Env
from gem_core.env.registration import make
from gem_core.envs.single_turn import SingleTurn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def eval_items(
    env: str | Env, *, part: int = 0, parts: int = 1, **kwargs: Any
) -> list[dict[str, int]]:
    """Return the options of ``reset`` for every item, or for one share of them.

    Args:
        env: an id or an environment over a data set.
        part: number of the share, from 0 (the environment's own ``part`` is another thing; its
            items are divided here).
        parts: number of shares; each item is in exactly one of them.
        **kwargs: keyword arguments for `gem_core.env.registration.make`, if ``env`` is an id.

    Raises:
        TypeError: the environment has no numbered items.
        ValueError: there is no such share.

    >>> eval_items("eval:AIME24", dataset="sample", part=1, parts=10)[0]
    {'index': 1}
    """
    indices = _indices(make(env, **kwargs) if isinstance(env, str) else env)
    if not 0 <= part < parts:
        raise ValueError(f"part must be from 0 to parts - 1 = {parts - 1}, not {part}.")
    return [{"index": index} for index in indices[part::parts]]


def _indices(env: Env) -> Sequence[int]:
    inner = env.unwrapped
    if not isinstance(inner, SingleTurn):
        raise TypeError(f"{env!r} has no numbered items; evaluate it on a range of seeds.")
    return inner.item_indices()
