"""Questions with short answers, of general knowledge and about an invented country."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

FACTS = (
    ("What is the capital of Portugal?", ["Lisbon", "Lisboa"]),
    ("Which planet is closest to the Sun?", ["Mercury"]),
    ("Which chemical element has the symbol Au?", ["gold"]),
    ("In which year did people first walk on the Moon?", ["1969"]),
    ("Who wrote the play Hamlet?", ["William Shakespeare", "Shakespeare"]),
    ("What is the largest ocean on Earth?", ["Pacific Ocean", "the Pacific"]),
    ("Which gas do plants take up for photosynthesis?", ["carbon dioxide", "CO2"]),
    ("How many strings does a violin have?", ["four", "4"]),
    ("Which river flows through Vienna and Budapest?", ["Danube", "the Danube"]),
    ("What is the smallest prime number?", ["2", "two"]),
    ("Which mountain range separates France and Spain?", ["Pyrenees"]),
    ("Who painted the Mona Lisa?", ["Leonardo da Vinci", "Leonardo"]),
    ("What is the currency of Japan?", ["yen", "Japanese yen"]),
    ("Which organ pumps blood through the human body?", ["heart"]),
    ("Which language has the most native speakers in Brazil?", ["Portuguese"]),
    ("How many players of one side are on the field in association football?", ["11", "eleven"]),
    ("Which metal is liquid at room temperature?", ["mercury"]),
    ("On which continent is the Sahara?", ["Africa"]),
    ("What is the freezing point of water in degrees Celsius?", ["0", "zero"]),
    ("Who developed the theory of general relativity?", ["Albert Einstein", "Einstein"]),
    ("What is the longest side of a right triangle called?", ["hypotenuse"]),
    ("Which instrument has 88 keys as a rule?", ["piano"]),
    ("Which country has Canberra as its capital?", ["Australia"]),
    ("What do bees make from nectar?", ["honey"]),
    ("Which vitamin does the skin make in sunlight?", ["vitamin D", "D"]),
    ("How many sides does a hexagon have?", ["six", "6"]),
    ("Which sea lies between Italy and Croatia?", ["Adriatic Sea", "Adriatic"]),
    ("Who composed the opera The Magic Flute?", ["Wolfgang Amadeus Mozart", "Mozart"]),
    ("Which planet has the most visible rings?", ["Saturn"]),
    ("What is the main ingredient of glass?", ["sand", "silica", "silicon dioxide"]),
)
TOWNS = (
    ("Veldrin", "Osk", "Mara Tolen", 1204, "barley soup"),
    ("Harrowmere", "Lint", "Iven Sarr", 1317, "smoked trout"),
    ("Quillport", "Osk", "Dela Worne", 1488, "salt bread"),
    ("Tarn Abbey", "Mirrel", "Mara Tolen", 1219, "honey cake"),
    ("Ostermoor", "Lint", "Bram Ashgrove", 1602, "leek pie"),
    ("Kessel Ford", "Mirrel", "Iven Sarr", 1322, "apple dumplings"),
)
"""(town, river, founder, year, dish) of an invented country."""


def training() -> Iterator[dict[str, Any]]:
    """Yield the questions of the sample for training."""
    for question, answers in FACTS[:20]:
        yield {"question": question, "answer": answers}
    yield from list(about_towns())[:12]


def evaluation() -> Iterator[dict[str, Any]]:
    """Yield the questions of the sample for evaluation."""
    for question, answers in FACTS[20:]:
        yield {"question": question, "answer": answers}
    yield from list(about_towns())[12:]


def about_towns() -> Iterator[dict[str, Any]]:
    """Yield questions about a text, some of which need two of its facts."""
    text = " ".join(
        f"{town} was founded by {founder} in {year}. It lies on the river {river}. "
        f"Its dish is {dish}."
        for town, river, founder, year, dish in TOWNS
    )
    for town, river, founder, year, dish in TOWNS:
        yield {
            "question": f"{text}\n\nWho founded the town whose dish is {dish}?",
            "answer": [founder],
        }
        yield {
            "question": f"{text}\n\nOn which river lies the town that was founded in {year}?",
            "answer": [river, f"the {river}", f"river {river}"],
        }
        yield {"question": f"{text}\n\nWhat is the dish of {town}?", "answer": [dish]}
