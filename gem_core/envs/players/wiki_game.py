"""An expert for WikiGame that knows the file of articles."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from gem_core.envs.games.wiki_pages import file_wiki
from gem_core.envs.players.player import Player

_PLACE = re.compile(r"You are on (['\"])(.+?)\1: ")
_TARGET = re.compile(r"Your target is (['\"])(.+?)\1\. Enter")


class ShortestLinks(Player):
    """Follows a shortest chain of links through the articles of a file.

    Args:
        rng: the player's own generator.
        path: the file of the environment; ``None`` is the sample.
        answer_format: the format of actions.
    """

    env_options = ("answer_format", "path")

    def __init__(self, rng: Random, path: str | None = None, answer_format: str = "boxed"):
        super().__init__(rng, answer_format)
        self.wiki = file_wiki(path)

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Search forwards from the current article."""
        place = _PLACE.search(info["suffix"])
        target = _TARGET.search(info["suffix"])
        if place is None or target is None or place[2] not in self.wiki.pages:
            raise self.unreadable(info["suffix"])
        first = {link: link for link in self.wiki.pages[place[2]].links}
        queue = list(first)
        for title in queue:
            if title == target[2]:
                return self.answer(first[title])
            for link in self.wiki.pages[title].links:
                if link not in first:
                    first[link] = first[title]
                    queue.append(link)
        raise self.unreadable(info["suffix"])  # no path: the articles may be of another file
