"""``webshop:*``: find, configure and buy the product that a customer describes.

A compact shop modelled on WebShop (Yao et al. 2022): a search page, result lists, product pages. It
uses a product file, so that the real catalogue can replace the built-in one. Search is BM25.
"""

from __future__ import annotations

import html
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gem_core.envs._data_source import Source, is_file, load
from gem_core.envs.games.game import Game
from gem_core.envs.parts import HELD_OUT, Items, check_part, division
from gem_core.errors import DataError, MissingDependencyError, unknown
from gem_core.tools.search.bm25 import load_bm25s

try:
    bm25s = load_bm25s()
except ImportError as _error:
    raise MissingDependencyError(
        "webshop:* environments need bm25s: pip install 'gem-core[webshop]'."
    ) from _error

if TYPE_CHECKING:
    from random import Random
    from typing import Any

    from gem_core.env.interface import ResetResult, StepResult

RENDERINGS = ("text", "text_rich", "html")
SPLITS = ("train", "test")
_PER_PAGE = 10
_TEST_SHARE = 4  # every fourth product is a goal in the test split
_ACTION = re.compile(r"(search|click)\s*\[(.*)\]", re.DOTALL | re.IGNORECASE)
_NAVIGATION = ("Next", "Previous", "Buy now", "Back to results", "Back to search")
_WORD = re.compile(r"[a-z0-9]+")
_SHOWN = 60


class Product(NamedTuple):
    """A product; ``options`` maps the name of an option to its values."""

    id: str
    name: str
    category: str
    price: float
    attributes: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    description: str


class Catalogue:
    """The products of a file and their search index, shared by all environments that use it."""

    def __init__(self, rows: list[dict[str, Any]]):
        self.products = [_product(row, number) for number, row in enumerate(rows, start=1)]
        self.index: dict[str, int] = {}
        for i, product in enumerate(self.products):
            first = self.index.setdefault(product.id.lower(), i)
            if first != i:
                raise DataError(
                    f"Products {first + 1} and {i + 1} have the same id, {product.id!r:.60}; an "
                    "id is what a customer clicks on, so each product needs its own."
                )
        texts = [
            words(f"{p.name} {p.category} {' '.join(p.attributes)} {p.description}")
            for p in self.products
        ]
        self._engine = bm25s.BM25()
        self._engine.index(texts, show_progress=False)
        self._vocabulary = {word for text in texts for word in text}

    def search(self, query: str, most: int = 50) -> list[int]:
        """Return the numbers of the best products; those of equal score are in the file's order."""
        known = [word for word in words(query[:500]) if word in self._vocabulary]
        if not known:
            return []
        scores = self._engine.get_scores(known).tolist()
        ranked = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
        return [i for i in ranked[:most] if scores[i] > 0]


def words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return _WORD.findall(text.lower())


def _product(row: dict[str, Any], number: int) -> Product:
    try:
        # A table with one column per option has nulls for products without the option.
        options = {_line(k).lower(): _lines(v) for k, v in (row.get("options") or {}).items() if v}
        product = Product(
            _line(row["id"]),
            _line(row["name"]),
            _line(row["category"]),
            float(row["price"]),
            _lines(row["attributes"] or ()),
            options,
            _line(row.get("description") or ""),
        )
        if not 0 <= product.price < math.inf:
            raise ValueError(f"the price is {product.price}")
        reserved = {label.lower() for label in _NAVIGATION}
        for label in (product.id, *(v for vs in options.values() for v in vs)):
            if label.lower() in reserved or not label:
                raise ValueError(f"{label!r} is the label of a button")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"Product {number}: a product needs id, name, category, price (a number), attributes "
            f"(a list) and options (name -> list of values): {error!r:.200}."
        ) from error
    return product


def _line(value: Any) -> str:
    """Return a text on one line, as an agent types it."""
    return " ".join(str(value).split())


def _lines(values: Any) -> tuple[str, ...]:
    if isinstance(values, str):
        raise TypeError(f"{values!r:.60} is not a list")
    return tuple({_line(v).lower(): _line(v) for v in values}.values())


class WebShop(Game):
    """Buy the product that fits a request.

    ``search[words]`` searches; ``click[label]`` selects what the page shows: a product's id, an
    option's value, or a button. Buying ends the episode. The reward is that of WebShop (section 3.2
    of the paper), with the category instead of its text match of the type: the share of the
    requested attributes, options and price limit that are met, times 1 for the right category and
    0.1 for another one. ``info["success"]`` means a score of 1; ``info["score"]`` is the score.

    Args:
        dataset: product file (``.jsonl``, ``.parquet``) or Hugging Face id; ``"sample"`` is the
            built-in catalogue. Columns: ``id``, ``name``, ``category``, ``price``,
            ``attributes``, ``options`` (name -> values), ``description``.
        split: ``"train"`` or ``"test"``; no product is a goal in both.
        part: divides the goals of the split once more, see `gem_core.envs.dataset.DatasetEnv`; no
            name of a product is in both parts.
        held_out: share of the names in the part ``"eval"``.
        rendering: ``"text"``, ``"text_rich"`` (buttons are marked) or ``"html"``.
        max_turns: the turn budget.
        error_tolerance: number of malformed or impossible actions that ends the episode.
        format_error_ends: whether the first malformed action ends the episode.
        **options: see `gem_core.envs.games.game.Game`.
    """

    _state_fields = (
        *Game._state_fields,
        "_goal",
        "_wanted",
        "_picks",
        "_limit",
        "_page",
        "_found",
        "_first",
        "_item",
        "_chosen",
        "_errors",
    )
    _goal: int  # number of the product that the request describes
    _wanted: list[str]
    _picks: dict[str, str]
    _limit: int
    _page: str  # "search", "results" or "product"
    _found: list[int]
    _first: int
    _item: int
    _chosen: dict[str, str]
    _errors: int

    def __init__(
        self,
        *,
        dataset: str = "sample",
        split: str = "train",
        rendering: str = "text",
        max_turns: int = 15,
        error_tolerance: int = 15,
        format_error_ends: bool = False,
        part: str | None = None,
        held_out: float = HELD_OUT,
        **options: Any,
    ):
        super().__init__(max_turns=max_turns, format_error_ends=format_error_ends, **options)
        if rendering not in RENDERINGS:
            raise unknown("rendering", rendering, RENDERINGS, f"{', '.join(RENDERINGS)}.")
        if split not in SPLITS:
            raise unknown("split", split, SPLITS, "There are 'train' and 'test'.")
        if error_tolerance < 1:
            raise ValueError(f"error_tolerance must be at least 1, not {error_tolerance}.")
        part = check_part(part, held_out)
        self.rendering = rendering
        self.split = split
        self.error_tolerance = error_tolerance
        self._varies = True
        self._source = Source(dataset, "shop")
        self._open()
        count = len(self._shop.products)
        in_test = [i % _TEST_SHARE == _TEST_SHARE - 1 for i in range(count)]
        self._goals = [i for i in range(count) if in_test[i] == (split == "test")]
        if not self._goals:
            raise DataError(f"{dataset!r} has too few products for the split {split!r}.")
        if part is not None:
            self._goals = self._goals_of(part, held_out)

    @classmethod
    def items_played(
        cls,
        *,
        dataset: str = "sample",
        split: str = "train",
        held_out: float | None = HELD_OUT,
        **_: Any,
    ) -> Items:
        """Return which goals an environment with these parameters has; nothing is loaded."""
        path = str(Path(dataset).expanduser().resolve()) if is_file(dataset) else dataset
        return Items(f"shop {path}", None, split, (held_out,))

    def _goals_of(self, part: str, held_out: float) -> list[int]:
        goals = self._goals
        products = self._shop.products
        revision = (self.data_revision, self.split)
        parts = division(revision, held_out, len(goals), lambda i: products[goals[i]].name)
        return [goals[i] for i in parts.indices(part)]

    def _open(self) -> None:
        table = load(self._source, strict=True)
        self.data_revision = table.revision
        self.is_sample = table.sample
        shop = _catalogues.get(table.revision)
        if shop is None:
            shop = Catalogue([table.row(i) for i in range(table.size)])
            _catalogues[table.revision] = shop
        self._shop = shop

    def _start(self) -> None:
        goal = self._goals[int(self.rng.random() * len(self._goals))]
        product = self._shop.products[goal]
        self._goal = goal
        self._wanted = self.rng.sample(product.attributes, min(2, len(product.attributes)))
        self._picks = {n: self.rng.choice(v) for n, v in product.options.items() if v}
        self._limit = 5 * (int(product.price) // 5 + 1 + self.rng.randint(0, 2))
        self._page = "search"
        self._found = []
        self._first = 0
        self._item = -1
        self._chosen = {}
        self._errors = 0

    def _reset(self, options: dict[str, Any] | None) -> ResetResult:
        obs, info = super()._reset(options)
        return obs, {**info, "sample": True} if self.is_sample else info

    def _consistent(self) -> bool:
        count = len(self._shop.products)
        return (
            super()._consistent()
            and self._goal in self._goals
            and self._page in ("search", "results", "product")
            and len(self._found) <= count
            and all(0 <= item < count for item in self._found)
            and self._first >= 0
            and -(self._page != "product") <= self._item < count
        )

    def _rules(self) -> str:
        request = self._shop.products[self._goal].category
        if self._wanted:
            request += f"; attributes: {', '.join(self._wanted)}"
        if self._picks:
            picks = [f"{name} {value}" for name, value in self._picks.items()]
            request += f"; options: {', '.join(picks)}"
        return (
            "You are shopping in a web shop. Find a product that fits the request, choose its "
            "options and buy it. Prices are in dollars.\n"
            f"Request: {request}; price: lower than {self._limit} dollars.\n"
            f"You have {self._budget} turns. Actions: {self._answer('search[words]')} on the "
            f"search page, and {self._answer('click[label]')} for a product id, the value of an "
            "option or a button that the page shows.\n"
            f"Write your action like this: {self._answer(self._example())}"
        )

    def _move(self, answer: str) -> StepResult:
        action = _ACTION.fullmatch(answer.strip())
        if action is None:
            return self._malformed("it is neither search[...] nor click[...]")
        argument = " ".join(action[2].split())
        if action[1].lower() == "search":
            return self._search(argument)
        return self._click(argument.lower())

    def _search(self, query: str) -> StepResult:
        if self._page != "search":
            return self._invalid("There is no search field here; use click[back to search] first.")
        self._found = self._shop.search(query)
        self._first = 0
        self._page = "results"
        return self._continue(
            f"Turn {self._turn}: {len(self._found)} products found.", self._reward["step"]
        )

    def _click(self, label: str) -> StepResult:
        if label not in (button.lower() for button in self._buttons()):
            return self._invalid(f"There is nothing called {label[:_SHOWN]!r} to click on.")
        if label == "buy now":
            return self._buy()
        if label == "back to search":
            self._page = "search"
        elif label in ("next", "previous"):
            self._first += _PER_PAGE if label == "next" else -_PER_PAGE
        elif label == "back to results":
            self._page = "results"
        elif self._page == "results":
            self._page = "product"
            self._item = self._shop.index[label]
            self._chosen = {}
        else:
            self._choose(label)
        return self._continue(f"Turn {self._turn}: clicked {label}.", self._reward["step"])

    def _choose(self, label: str) -> None:
        # A value may belong to several options; it is chosen for the first one without a choice.
        options = self._shop.products[self._item].options
        fits = [(n, v) for n, values in options.items() for v in values if v.lower() == label]
        unchosen = [(n, v) for n, v in fits if n not in self._chosen]
        name, value = unchosen[0] if unchosen else fits[0]
        self._chosen = {**self._chosen, name: value}

    def _buy(self) -> StepResult:
        score = self._score()
        obs = f"Turn {self._turn}: you bought {self._shop.products[self._item].name}."
        reward = score * self._reward["success"] or self._reward["fail"]
        info = {"suffix": "", "success": score == 1, "score": score, "end": "bought"}
        return obs, reward, True, False, info

    def _score(self) -> float:
        bought = self._shop.products[self._item]
        goal = self._shop.products[self._goal]
        met = sum(a in bought.attributes for a in self._wanted)
        met += sum(self._chosen.get(name) == value for name, value in self._picks.items())
        met += bought.price < self._limit
        share = met / (len(self._wanted) + len(self._picks) + 1)
        return share if bought.category == goal.category else 0.1 * share

    def _invalid(self, why: str) -> StepResult:
        return self._count_error(super()._invalid(why))

    def _malformed(self, why: str) -> StepResult:
        return self._count_error(super()._malformed(why))

    def _count_error(self, result: StepResult) -> StepResult:
        self._errors += 1
        if self._errors < self.error_tolerance or result[2]:
            return result
        obs, reward, _, _, info = result
        return obs, reward, True, False, {**info, "success": False, "end": "too_many_errors"}

    def _buttons(self) -> list[str]:
        """Return the labels that can be clicked on the page."""
        if self._page == "search":
            return []
        if self._page == "results":
            shown = self._found[self._first : self._first + _PER_PAGE]
            labels = [self._shop.products[i].id for i in shown]
            more = ["Next"] if self._first + _PER_PAGE < len(self._found) else []
            return [*labels, *more, *(["Previous"] if self._first else []), "Back to search"]
        values = [v for vs in self._shop.products[self._item].options.values() for v in vs]
        return [*values, "Buy now", "Back to results", "Back to search"]

    def _board(self) -> str:
        lines = self._lines()
        if self.rendering != "html":
            return "\n".join(text for text, _ in lines)
        tags = {"title": "h1", "button": "button", "text": "p"}
        return "\n".join(f"<{tags[k]}>{html.escape(t)}</{tags[k]}>" for t, k in lines)

    def _lines(self) -> list[tuple[str, str]]:
        """Return the page as (text, kind) with kind title, text or button."""
        if self._page == "search":
            return [("Search page: type search[words].", "title")]
        if self._page == "results":
            lines = [(f"Results from {self._first + 1} of {len(self._found)}", "title")]
            for i in self._found[self._first : self._first + _PER_PAGE]:
                product = self._shop.products[i]
                text = f"{product.name}, ${product.price:.2f}"
                lines.append((f"{self._mark(product.id)} {text}", "button"))
        else:
            product = self._shop.products[self._item]
            lines = [
                (f"{product.name} ({product.id})", "title"),
                (f"Category: {product.category}. Price: ${product.price:.2f}", "text"),
                (f"Attributes: {', '.join(product.attributes)}", "text"),
                (product.description[:500], "text"),
            ]
            for name, values in product.options.items():
                chosen = self._chosen.get(name, "none")
                listed = ", ".join(map(self._mark, values))
                lines.append((f"Option {name}: {listed} (chosen: {chosen})", "button"))
        lines += [(self._mark(b), "button") for b in self._buttons() if b in _NAVIGATION]
        return lines

    def _mark(self, label: str) -> str:
        return f"[button] {label} [button_]" if self.rendering == "text_rich" else f"[{label}]"

    def _example(self) -> str:
        return "search[red kettle]"

    def random_action(self, rng: Random) -> str:
        """Return a search for a random word, or a click on anything on the page."""
        buttons = self._buttons()
        if not buttons:
            return self._answer(f"search[{rng.choice(sorted(self._shop._vocabulary))}]")
        return self._answer(f"click[{rng.choice(buttons)}]")

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_shop"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()
        if self.data_revision != state["data_revision"]:
            raise DataError(
                f"This environment uses {state['data_revision']!r}, but on this machine the file "
                f"is {self.data_revision!r}: install the same file."
            )


_catalogues: dict[str, Catalogue] = {}
