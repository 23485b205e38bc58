"""An expert for the web shop."""

from __future__ import annotations

import html
import re
from typing import Any

from gem_core.envs.players.player import Player

_TAG = re.compile(r"</?(?:h1|p|button)>")
_BUTTON = re.compile(r"\[button\] (.+?) \[button_\]")
_REQUEST = re.compile(
    r"Request: (.+?); attributes: (.+?)(?:; options: (.+?))?; price: lower than (\d+) dollars"
)
_PRODUCT = re.compile(r"Category: (.+)\. Price: \$([\d.]+)\nAttributes: (.*)")
_TITLE = re.compile(r"^.* \((\w+)\)$", re.MULTILINE)
_OPTION = re.compile(r"^Option (.+?): .* \(chosen: (.*)\)$", re.MULTILINE)
_RESULT = re.compile(r"^\[(\w+)\] (.+), \$([\d.]+)$", re.MULTILINE)


def as_text(page: str) -> str:
    """Return a page of any rendering as it is in the ``text`` rendering.

    >>> as_text("<h1>Tea &amp; co</h1>"), as_text("[button] Next [button_]")
    ('Tea & co', '[Next]')
    """
    if page.startswith("<"):
        page = html.unescape(_TAG.sub("", page))
    return _BUTTON.sub(r"[\1]", page)


class CarefulCustomer(Player):
    """Searches for the words of the request and buys the first product that fits it.

    It can read every rendering.
    """

    version = 1  # 1: reads what was played, instead of its own actions

    def reset(self, obs: str, info: dict[str, Any]) -> None:
        """Read the request."""
        request = self.find(_REQUEST, obs)
        self.category = request[1]
        self.attributes = request[2].split(", ")
        self.picks = request[3].split(", ") if request[3] else []
        self.limit = float(request[4])
        self.unfit: set[str] = set()

    def act(self, obs: str, info: dict[str, Any]) -> str:
        """Take the next step towards the purchase."""
        page = as_text(info["suffix"])
        if page.startswith("Search page"):
            return self.answer(f"search[{self.category} {' '.join(self.attributes)}]")
        product = _PRODUCT.search(page)
        if product is None:
            return self._from_results(page)
        if not self._fits(product):
            self.unfit.update(_TITLE.findall(page)[:1])
            return self.answer("click[back to results]")
        for name, chosen in _OPTION.findall(page):
            for pick in self.picks:
                if pick.startswith(f"{name} ") and pick != f"{name} {chosen}":
                    return self.answer(f"click[{pick.removeprefix(f'{name} ')}]")
        return self.answer("click[buy now]")

    def _from_results(self, page: str) -> str:
        for label, _, price in _RESULT.findall(page):
            if label not in self.unfit and float(price) < self.limit:
                return self.answer(f"click[{label}]")
        return self.answer("click[next]" if "[Next]" in page else "click[back to search]")

    def _fits(self, product: re.Match[str]) -> bool:
        has = product[3].split(", ")
        return (
            product[1] == self.category
            and float(product[2]) < self.limit
            and all(attribute in has for attribute in self.attributes)
        )
