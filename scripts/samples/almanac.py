"""The almanac of the Harrow Isles, an invented place: a corpus to search, and questions about it.

No model can know the answers, and the questions do not contain them: they have to be looked up.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

_SEED = 17
_BEGINNINGS = ("Al", "Bre", "Cor", "Dun", "El", "Far", "Gor", "Hes", "Ilm", "Jor", "Kel", "Lor")
_MIDDLES = ("da", "ne", "ri", "sto", "va", "the")
_ENDINGS = ("mere", "wick", "holt", "stead", "by", "ness", "ford", "gate")
_GIVEN = ("Anso", "Betta", "Cael", "Dorit", "Emun", "Fenna", "Garrel", "Hilde", "Isken", "Jutta")
_FAMILY = ("Arrowby", "Brask", "Corvell", "Dane", "Estrom", "Fallow", "Grist", "Harl", "Ingmere")
_TRADES = ("salt", "wool", "glass", "tin", "herring", "honey", "slate", "cider", "rope", "amber")
_COLOURS = ("Grey", "White", "Red", "Black", "Silver", "Green", "Golden", "Blue")
_BIRDS = ("Heron", "Petrel", "Curlew", "Tern", "Osprey", "Plover", "Gannet", "Swift")
_OBJECTS = ("copper lamp", "pine chest", "silver bowl", "sea chart", "brass bell", "glass float")


class Town(NamedTuple):
    """A town of the isles."""

    name: str
    year: int
    founder: str
    trade: str
    steps: int


class Ship(NamedTuple):
    """A ship of the isles."""

    name: str
    year: int
    captain: str
    port: str


class Lot(NamedTuple):
    """A lot of an auction."""

    number: int
    thing: str
    price: int


def towns() -> list[Town]:
    """Return all towns; their names differ."""
    rng = Random(f"towns {_SEED}")
    names = [f"{a}{b}{c}" for a in _BEGINNINGS for b in _MIDDLES for c in _ENDINGS]
    return [
        Town(name, rng.randint(900, 1700), _person(rng), rng.choice(_TRADES), rng.randint(60, 400))
        for name in rng.sample(names, 60)
    ]


def ships() -> list[Ship]:
    """Return all ships; their names differ."""
    rng = Random(f"ships {_SEED}")
    names = [f"{colour} {bird}" for colour in _COLOURS for bird in _BIRDS]
    ports = [town.name for town in towns()]
    return [
        Ship(name, rng.randint(1701, 1899), _person(rng), rng.choice(ports))
        for name in rng.sample(names, 40)
    ]


def lots() -> list[Lot]:
    """Return all lots; their numbers differ."""
    rng = Random(f"lots {_SEED}")
    numbers = sorted(rng.sample(range(1000, 10_000), 400))
    return [Lot(n, rng.choice(_OBJECTS), rng.randint(100, 999)) for n in numbers]


def documents() -> Iterator[dict[str, Any]]:
    """Yield the paragraphs of the corpus: ``title`` and ``text``."""
    for town in towns():
        text = (
            f"{town.name} was founded in {town.year} by {town.founder}. It lives on its "
            f"{town.trade} trade, and {town.steps} steps lead up to its light tower."
        )
        yield {"title": town.name, "text": text}
    for ship in ships():
        text = (
            f"The ship {ship.name} was built in {ship.year}. Her home port is {ship.port}, and her "
            f"first captain was {ship.captain}."
        )
        yield {"title": ship.name, "text": text}
    for lot in lots():
        yield {"title": f"Lot {lot.number}", "text": f"A {lot.thing}, sold for {lot.price} crowns."}


def questions() -> Iterator[dict[str, Any]]:
    """Yield questions about towns and ships, some of which need two paragraphs."""
    founded = {town.name: town for town in towns()}
    for town in towns():
        yield _asked(f"In which year was {town.name} founded?", town.year)
        yield _asked(f"Who founded {town.name}?", town.founder)
        yield _asked(f"How many steps lead up to the light tower of {town.name}?", town.steps)
        yield _asked(f"On which trade does {town.name} live?", town.trade)
    for ship in ships():
        yield _asked(f"What is the home port of the {ship.name}?", ship.port)
        yield _asked(f"Who was the first captain of the {ship.name}?", ship.captain)
        port = founded[ship.port]
        yield _asked(f"Who founded the home port of the {ship.name}?", port.founder)


def auction() -> Iterator[dict[str, Any]]:
    """Yield questions about lots."""
    for lot in lots():
        yield _asked(f"What was lot {lot.number} sold for?", lot.price)


def _person(rng: Random) -> str:
    return f"{rng.choice(_GIVEN)} {rng.choice(_FAMILY)}"


def _asked(question: str, answer: object) -> dict[str, Any]:
    return {"question": question, "answer": [str(answer)]}
