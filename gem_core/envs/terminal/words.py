"""Words from which the tasks make their files."""

from __future__ import annotations

from random import Random

NOUNS = (
    "apple",
    "anchor",
    "basket",
    "bridge",
    "candle",
    "carpet",
    "castle",
    "copper",
    "desert",
    "engine",
    "feather",
    "fiddle",
    "forest",
    "garden",
    "hammer",
    "harbor",
    "island",
    "jacket",
    "kettle",
    "ladder",
    "lantern",
    "market",
    "meadow",
    "mirror",
    "needle",
    "oyster",
    "paddle",
    "parrot",
    "pepper",
    "pocket",
    "puzzle",
    "ribbon",
    "rocket",
    "saddle",
    "silver",
    "statue",
    "teapot",
    "thread",
    "timber",
    "tunnel",
    "turtle",
    "valley",
    "violin",
    "walnut",
    "window",
    "winter",
)
NAMES = (
    "alice",
    "bruno",
    "carla",
    "david",
    "elena",
    "frank",
    "greta",
    "hugo",
    "irene",
    "jonas",
    "karin",
    "louis",
)
CITIES = ("oslo", "lima", "cairo", "delhi", "tokyo", "quito", "dakar", "sofia", "perth", "miami")


def some(rng: Random, count: int) -> list[str]:
    """Return different words."""
    return rng.sample(NOUNS, count)


def text(rng: Random, lines: int, words: int = 5) -> list[str]:
    """Return lines of words."""
    return [" ".join(rng.choice(NOUNS) for _ in range(words)) for _ in range(lines)]


def join_lines(lines: list[str]) -> str:
    """Return the content of a file with these lines."""
    return "".join(f"{line}\n" for line in lines)
