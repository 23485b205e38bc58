"""WikiGame: go from one article to another by links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.env.files import file_revision
from gem_core.envs.games.game import Game
from gem_core.envs.games.wiki_pages import MediaWiki, Page, file_wiki

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random
    from typing import Any

    from gem_core.env.interface import StepResult
    from gem_core.envs.games.wiki_pages import Wiki

_REWARDS = {"step": -0.05, "invalid_action": -0.2, "format_error": -0.2}
"""Every step has a cost, and so has an action that is not a link."""
_SHOWN = 40


class WikiGame(Game):
    """Reach a target article by following links.

    The reward is 1 for the target, -0.05 for a step to another article, and -0.2 for an action that
    is not a link of the article or has the wrong format. Start and target are drawn so that the
    target is not linked from the start.

    The articles are a small sample written for this package (about a hundred, on general
    knowledge), those of a file, or those of a MediaWiki server.

    Args:
        max_turns: number of links to follow.
        path: a file of articles, see `gem_core.envs.games.wiki_pages.FileWiki`; ``None`` is the
            sample.
        url: address of a MediaWiki server's ``api.php``; then steps wait for the network
            (``slow``), and the seed determines an episode only as long as the wiki does not change.
        **options: see `gem_core.envs.games.game.Game`; rewards and ``format_error_ends``
            have other defaults here.
    """

    _state_fields = (*Game._state_fields, "_title", "_target")
    _title: str
    _target: str

    def __init__(
        self,
        *,
        max_turns: int | None = 30,
        path: str | None = None,
        url: str | None = None,
        rewards: Mapping[str, float] | None = None,
        format_error_ends: bool = False,
        **options: Any,
    ):
        rewards = {**_REWARDS, **(rewards or {})}
        super().__init__(
            max_turns=max_turns, rewards=rewards, format_error_ends=format_error_ends, **options
        )
        if max_turns is None:
            raise ValueError("max_turns must be a number in this game.")
        if path is not None and url is not None:
            raise ValueError("Give path or url, not both.")
        self.path = path
        self.slow = url is not None
        self._wiki: Wiki = file_wiki(path) if url is None else MediaWiki(url)
        self.is_sample = path is None and url is None
        if path is not None:
            self.data_revision = file_revision(path)
        self._varies = True

    def _start(self) -> None:
        while True:
            start = self._wiki.page(self._wiki.draw(self.rng))
            target = self._wiki.page(self._wiki.draw(self.rng))
            if start is None or target is None or not start.links:
                continue
            if target.title != start.title and target.title not in start.links:
                break
        self._page = start
        self._title = start.title
        self._target = target.title
        self._about = target.text

    def _restored(self) -> None:
        self._page = self._load(self._title)
        self._about = self._load(self._target).text

    def _load(self, title: str) -> Page:
        page = self._wiki.page(title)
        return Page(title, "", ()) if page is None else page

    def _rules(self) -> str:
        return (
            "You are playing the Wiki Game.\n"
            f"You are on the article {self._title!r} of an encyclopedia. Reach the article "
            f"{self._target!r} within {self._budget} turns by following links from article to "
            "article. Naming anything other than a link of the current article uses up a turn.\n"
            f"About the target: {self._about:.300}\n"
            f"Write the title of the link to follow like this: {self._answer(self._example())}"
        )

    def _move(self, answer: str) -> StepResult:
        links = self._page.links
        if answer not in links:
            title = answer[:300].casefold().replace("_", " ")
            same = [link for link in links if link.casefold() == title]
            if not same:
                return self._invalid(f"{self._title!r} has no link to {answer[:60]!r}.")
            answer = same[0]
        page = self._wiki.page(answer)
        if page is None:
            return self._invalid(f"There is no article called {answer[:60]!r}.")
        self._page = page
        self._title = page.title
        obs = f"Turn {self._turn}: you went to {page.title!r}."
        if page.title == self._target:
            return self._win(f"{obs} You have won.", self._reward["success"])
        return self._continue(obs, self._reward["step"])

    def _board(self) -> str:
        page = self._page
        links = "; ".join(page.links[:_SHOWN])
        if len(page.links) > _SHOWN:
            links += f"; and {len(page.links) - _SHOWN} more"
        return (
            f"You are on {page.title!r}: {page.text:.500}\nLinks: {links}\n"
            f"Your target is {self._target!r}. Enter the title of the link to follow."
        )

    def _example(self) -> str:
        return "Physics"

    def random_action(self, rng: Random) -> str:
        """Return a link of the article, drawn from ``rng``."""
        links = self._page.links or (self._target,)
        return self._answer(links[int(rng.random() * len(links))])
