#!/usr/bin/env python3
# ruff: noqa: D102, D103, E501
"""Write the built-in samples of the data-set environments: ``python tools/make_samples.py``.

Every item is made here, by hand or by rule; none comes from a data set. The files are committed,
and their hashes are the data revisions of the samples, so a change here is a change of the tasks.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from typing import Any

OUT = Path(__file__).resolve().parent.parent / "gem_core" / "envs" / "samples"
Row = dict[str, Any]

# -- mathematics ---------------------------------------------------------------------------------


def frac(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def apples(r: Random) -> tuple[str, str]:
    boxes, each, sold = r.randint(3, 9), r.randint(6, 15), r.randint(5, 17)
    return (
        f"A market stall has {boxes} crates with {each} apples in each. It sells {sold} apples. "
        "How many apples are left?",
        str(boxes * each - sold),
    )


def train(r: Random) -> tuple[str, str]:
    speed, minutes = r.choice((40, 60, 80, 90, 120)), r.choice((15, 30, 45, 20))
    return (
        f"A train runs at a constant {speed} kilometres per hour. How many kilometres does it "
        f"cover in {minutes} minutes?",
        frac(Fraction(speed * minutes, 60)),
    )


def change(r: Random) -> tuple[str, str]:
    price, count = r.randint(110, 390), r.randint(2, 5)
    paid = (price * count // 500 + 1) * 500
    return (
        f"One notebook costs ${price / 100:.2f}. Mira buys {count} of them and pays with "
        f"${paid // 100}. How many dollars of change does she get?",
        f"{(paid - price * count) / 100:.2f}",
    )


def linear(r: Random) -> tuple[str, str]:
    a, x, b = (
        r.randint(2, 12),
        Fraction(r.randint(-20, 20), r.choice((1, 1, 2, 3))),
        r.randint(1, 30),
    )
    c = a * x + b
    return f"Solve for $x$: ${a}x + {b} = {frac(c)}$.", frac(x)


def remainder(r: Random) -> tuple[str, str]:
    base, power, modulus = r.randint(2, 9), r.randint(10, 40), r.choice((7, 11, 13, 17))
    return (
        f"What is the remainder when ${base}^{{{power}}}$ is divided by ${modulus}$?",
        str(pow(base, power, modulus)),
    )


def vieta(r: Random) -> tuple[str, str]:
    p, q = r.randint(-9, 9), r.randint(1, 9)
    return (
        f"The roots of $x^2 - ({p + q})x + ({p * q}) = 0$ are $r$ and $s$. Find $r^2 + s^2$.",
        str(p * p + q * q),
    )


def dice(r: Random) -> tuple[str, str]:
    total = r.randint(3, 11)
    ways = sum(a + b == total for a in range(1, 7) for b in range(1, 7))
    return (
        f"Two fair six-sided dice are rolled. What is the probability that their sum is {total}? "
        "Write it as a common fraction.",
        frac(Fraction(ways, 36)),
    )


def derivative(r: Random) -> tuple[str, str]:
    a, b, n = r.randint(2, 7), r.randint(2, 9), r.randint(2, 5)
    inner = f"{a * n}x^{{{n - 1}}}" if n > 2 else f"{a * n}x"
    return f"Differentiate ${a}x^{n} + {b}x$ with respect to $x$.", f"{inner} + {b}"


def surd(r: Random) -> tuple[str, str]:
    outside, inside = r.randint(2, 7), r.choice((2, 3, 5, 6, 7))
    return (
        f"Simplify $\\sqrt{{{outside * outside * inside}}}$.",
        f"{outside}\\sqrt{{{inside}}}",
    )


def interval(r: Random) -> tuple[str, str]:
    low, width = r.randint(-6, 4), r.randint(2, 9)
    middle, half = Fraction(2 * low + width, 2), Fraction(width, 2)
    return (
        f"Solve $\\left|x - ({frac(middle)})\\right| < {frac(half)}$. Give the interval.",
        f"({low},{low + width})",
    )


EASY: tuple[Callable[[Random], tuple[str, str]], ...] = (apples, train, change, linear)
HARD = (remainder, vieta, dice, derivative, surd, interval)


def math(seed: int) -> Iterator[Row]:
    r, seen = Random(seed), set()
    while True:
        question, answer = r.choice(EASY + HARD)(r)
        if question not in seen:
            seen.add(question)
            yield {"question": question, "answer": answer}


# -- geometry with drawings ----------------------------------------------------------------------

SIZE = 120
#: 3x5 pixels per character.
GLYPHS = {
    "0": ("111", "101", "101", "101", "111"), "1": ("010", "110", "010", "010", "111"),
    "2": ("111", "001", "111", "100", "111"), "3": ("111", "001", "111", "001", "111"),
    "4": ("101", "101", "111", "001", "001"), "5": ("111", "100", "111", "001", "111"),
    "6": ("111", "100", "111", "101", "111"), "7": ("111", "001", "010", "010", "010"),
    "8": ("111", "101", "111", "101", "111"), "9": ("111", "101", "111", "001", "111"),
    "?": ("111", "001", "011", "000", "010"),
}  # fmt: skip


class Drawing:
    """A black-and-white picture."""

    def __init__(self) -> None:
        self.pixels = [[1] * SIZE for _ in range(SIZE)]

    def dot(self, x: int, y: int) -> None:
        if 0 <= x < SIZE and 0 <= y < SIZE:
            self.pixels[y][x] = 0

    def line(self, x0: int, y0: int, x1: int, y1: int) -> None:
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(steps + 1):
            self.dot(x0 + round((x1 - x0) * i / steps), y0 + round((y1 - y0) * i / steps))

    def text(self, x: int, y: int, text: str) -> None:
        for character in text:
            for row, bits in enumerate(GLYPHS[character]):
                for column, bit in enumerate(bits):
                    if bit == "1":
                        for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
                            self.dot(x + 2 * column + dx, y + 2 * row + dy)
            x += 8

    def png(self) -> str:
        """Return the picture as base64 of a one-bit PNG."""
        rows = b""
        for row in self.pixels:
            bits = "".join(map(str, row)).ljust(-(-SIZE // 8) * 8, "1")
            rows += b"\0" + int(bits, 2).to_bytes(len(bits) // 8, "big")
        header = struct.pack(">IIBBBBB", SIZE, SIZE, 1, 0, 0, 0, 0)
        body = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
        body += chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
        return base64.b64encode(body).decode()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def right_triangle(r: Random) -> tuple[str, str, Drawing]:
    a, b, c = r.choice(((3, 4, 5), (6, 8, 10), (5, 12, 13), (8, 15, 17), (9, 12, 15), (7, 24, 25)))
    d = Drawing()
    d.line(20, 100, 100, 100), d.line(20, 100, 20, 30), d.line(20, 30, 100, 100)
    d.line(20, 92, 28, 92), d.line(28, 92, 28, 100)
    d.text(2, 60, str(a)), d.text(52, 106, str(b)), d.text(66, 50, "?")
    return "Find the length marked with a question mark in the right triangle.", str(c), d


def rectangle(r: Random) -> tuple[str, str, Drawing]:
    a, b = r.randint(3, 19), r.randint(3, 19)
    d = Drawing()
    for x0, y0, x1, y1 in (
        (20, 30, 100, 30),
        (100, 30, 100, 95),
        (100, 95, 20, 95),
        (20, 95, 20, 30),
    ):
        d.line(x0, y0, x1, y1)
    d.text(52, 101, str(a)), d.text(103, 58, str(b))
    return "What is the area of the rectangle?", str(a * b), d


def angles(r: Random) -> tuple[str, str, Drawing]:
    a, b = r.randint(30, 80), r.randint(30, 80)
    d = Drawing()
    d.line(10, 100, 110, 100), d.line(10, 100, 50, 20), d.line(50, 20, 110, 100)
    d.text(24, 86, str(a)), d.text(78, 86, str(b)), d.text(46, 36, "?")
    return (
        "The angles of the triangle are in degrees. Find the one marked with a question mark.",
        str(180 - a - b),
        d,
    )


def geometry(seed: int, count: int) -> Iterator[Row]:
    r = Random(seed)
    for i in range(count):
        question, answer, drawing = (right_triangle, rectangle, angles)[i % 3](r)
        image = {"type": "image/png", "data": drawing.png()}
        yield {"question": f"<image>{question}", "answer": answer, "images": [image]}


# -- programs ------------------------------------------------------------------------------------

STDIN = (
    (
        "Read two integers a and b from one line. Print their sum.",
        "a, b = map(int, input().split())\nprint(a + b)\n",
        ("1 2\n", "-5 5\n", "1000000000 1000000000\n"),
    ),
    (
        "The first line has n, the second line n integers. Print the largest of them.",
        "input()\nprint(max(map(int, input().split())))\n",
        ("3\n1 9 4\n", "1\n-7\n", "5\n-3 -1 -2 -9 -4\n"),
    ),
    (
        "Read a line of text. Print 'yes' if it reads the same backwards, ignoring case and "
        "spaces, else 'no'.",
        "s = input().replace(' ', '').lower()\nprint('yes' if s == s[::-1] else 'no')\n",
        ("Never odd or even\n", "gem\n", "a\n"),
    ),
    (
        "Read an integer n (1 <= n <= 100000). Print how many primes are at most n.",
        "n = int(input())\ns = [True] * (n + 1)\ncount = 0\nfor i in range(2, n + 1):\n"
        "    if s[i]:\n        count += 1\n        for j in range(i * i, n + 1, i):\n"
        "            s[j] = False\nprint(count)\n",
        ("1\n", "10\n", "100000\n"),
    ),
    (
        "The first line has n and k. The second line has n integers. Print the largest sum of k "
        "neighbouring ones.",
        "n, k = map(int, input().split())\na = list(map(int, input().split()))\n"
        "print(max(sum(a[i:i + k]) for i in range(n - k + 1)))\n",
        ("5 2\n1 2 3 4 5\n", "4 4\n-1 -2 -3 -4\n", "6 3\n9 -9 9 9 -9 9\n"),
    ),
    (
        "Read a line with the brackets ()[]{}. Print 'balanced' or 'broken'.",
        "pairs = {')': '(', ']': '[', '}': '{'}\nstack = []\nok = True\nfor c in input():\n"
        "    if c in '([{':\n        stack.append(c)\n"
        "    elif not stack or stack.pop() != pairs[c]:\n        ok = False\n        break\n"
        "print('balanced' if ok and not stack else 'broken')\n",
        ("([]{})\n", "([)]\n", "(((\n"),
    ),
    (
        "Read the numbers of rows r and columns c, then a grid of '.' and '#'. Print how many "
        "regions of '#' there are; cells that share a side are of one region.",
        "r, c = map(int, input().split())\ng = [list(input()) for _ in range(r)]\ncount = 0\n"
        "for i in range(r):\n    for j in range(c):\n        if g[i][j] == '#':\n"
        "            count += 1\n            todo = [(i, j)]\n            while todo:\n"
        "                x, y = todo.pop()\n"
        "                if 0 <= x < r and 0 <= y < c and g[x][y] == '#':\n"
        "                    g[x][y] = '.'\n"
        "                    todo += [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]\n"
        "print(count)\n",
        ("2 3\n#.#\n#..\n", "1 1\n.\n", "3 3\n#.#\n.#.\n#.#\n"),
    ),
    (
        "Read an amount in cents and, on the next line, the values of coins. Print the fewest "
        "coins that make the amount, or -1.",
        "n = int(input())\ncoins = list(map(int, input().split()))\nbig = 10 ** 9\n"
        "best = [0] + [big] * n\nfor i in range(1, n + 1):\n    for c in coins:\n"
        "        if c <= i:\n            best[i] = min(best[i], best[i - c] + 1)\n"
        "print(best[n] if best[n] < big else -1)\n",
        ("11\n1 2 5\n", "3\n2\n", "100\n1 5 10 25 50\n"),
    ),
)
FUNCTIONS = (
    (
        "Write a function `add_all(numbers)` that returns the sum of a list of integers.",
        "add_all",
        "def add_all(numbers):\n    return sum(numbers)\n",
        ([[1, 2, 3]], [[]], [[-5, 5, 7]]),
    ),
    (
        "Write a function `run_lengths(text)` that returns a list of [character, count] for the "
        "runs of equal characters.",
        "run_lengths",
        "def run_lengths(text):\n    out = []\n    for c in text:\n"
        "        if out and out[-1][0] == c:\n            out[-1][1] += 1\n        else:\n"
        "            out.append([c, 1])\n    return out\n",
        (["aab"], [""], ["xyzzz"]),
    ),
    (
        "Write a function `gcd_of(a, b)` that returns the greatest common divisor.",
        "gcd_of",
        "def gcd_of(a, b):\n    while b:\n        a, b = b, a % b\n    return a\n",
        ([12, 18], [7, 13], [100, 10]),
    ),
    (
        "Write a function `merge(a, b)` that merges two sorted lists into one sorted list.",
        "merge",
        "def merge(a, b):\n    return sorted(a + b)\n",
        ([[1, 3], [2, 4]], [[], [1]], [[5], [5]]),
    ),
)


def run_program(program: str, text: str) -> str:
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", program], input=text, capture_output=True, text=True, check=True
    )
    return done.stdout


def code(first: int, step: int) -> Iterator[Row]:
    for question, program, inputs in STDIN[first::step]:
        tests = [{"input": i, "output": run_program(program, i)} for i in inputs]
        yield {"question": question, "tests": tests, "solution": program}
    for question, name, program, calls in FUNCTIONS[first::step]:
        names: dict[str, Any] = {}
        exec(program, names)
        tests = [{"input": list(c), "output": names[name](*c), "fn_name": name} for c in calls]
        yield {"question": question, "tests": tests, "solution": program}


# -- questions with short answers ----------------------------------------------------------------

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
#: (town, river, founder, year, dish) of an invented country.
TOWNS = (
    ("Veldrin", "Osk", "Mara Tolen", 1204, "barley soup"),
    ("Harrowmere", "Lint", "Iven Sarr", 1317, "smoked trout"),
    ("Quillport", "Osk", "Dela Worne", 1488, "salt bread"),
    ("Tarn Abbey", "Mirrel", "Mara Tolen", 1219, "honey cake"),
    ("Ostermoor", "Lint", "Bram Ashgrove", 1602, "leek pie"),
    ("Kessel Ford", "Mirrel", "Iven Sarr", 1322, "apple dumplings"),
)


def hops() -> Iterator[Row]:
    for town, river, founder, year, dish in TOWNS:
        story = " ".join(
            f"{t} was founded by {f} in {y}. It lies on the river {r}. Its dish is {d}."
            for t, r, f, y, d in TOWNS
        )
        yield {
            "question": f"{story}\n\nWho founded the town whose dish is {dish}?",
            "answer": [founder],
        }
        yield {
            "question": f"{story}\n\nOn which river lies the town that was founded in {year}?",
            "answer": [river, f"the {river}", f"river {river}"],
        }
        yield {"question": f"{story}\n\nWhat is the dish of {town}?", "answer": [dish]}


def qa() -> Iterator[Row]:
    for question, answers in FACTS[:20]:
        yield {"question": question, "answer": answers}
    yield from list(hops())[:12]


def qa_eval() -> Iterator[Row]:
    for question, answers in FACTS[20:]:
        yield {"question": question, "answer": answers}
    yield from list(hops())[12:]


# -- a shop --------------------------------------------------------------------------------------

KINDS = (
    ("desk lamp", 18, ("dimmable", "foldable", "usb powered", "wooden"), {"color": ("black", "white", "green")}),
    ("backpack", 35, ("waterproof", "lightweight", "padded", "recycled"), {"color": ("navy", "grey", "red"), "size": ("small", "large")}),
    ("water bottle", 12, ("insulated", "leakproof", "dishwasher safe", "recycled"), {"color": ("blue", "pink", "steel"), "size": ("500 ml", "750 ml")}),
    ("running shoes", 60, ("lightweight", "waterproof", "vegan", "cushioned"), {"color": ("white", "black"), "size": ("38", "41", "44")}),
    ("coffee grinder", 40, ("quiet", "manual", "dishwasher safe", "adjustable"), {"color": ("black", "steel")}),
    ("yoga mat", 25, ("non-slip", "recycled", "foldable", "extra thick"), {"color": ("purple", "green", "grey")}),
    ("headphones", 70, ("wireless", "noise cancelling", "foldable", "lightweight"), {"color": ("black", "white")}),
    ("rain jacket", 55, ("waterproof", "breathable", "recycled", "hooded"), {"color": ("yellow", "navy"), "size": ("s", "m", "l")}),
    ("notebook", 8, ("dotted", "hardcover", "recycled", "waterproof"), {"size": ("a5", "a4")}),
)  # fmt: skip
BRANDS = ("Aldermoor", "Brightwell", "Corvane", "Dunlin", "Eskby", "Fennick", "Grovely", "Hestia")


def shop() -> Iterator[Row]:
    """Yield products that differ in attributes and price within a kind."""
    r = Random(21)
    for kind, price, attributes, options in KINDS:
        pairs = [(a, b) for i, a in enumerate(attributes) for b in attributes[i + 1 :]]
        for number, brand in enumerate(BRANDS):
            has = list(pairs[number % len(pairs)])
            yield {
                "id": f"P{KINDS.index((kind, price, attributes, options)) * 10 + number:03d}",
                "name": f"{brand} {' '.join(has)} {kind}",
                "category": kind,
                "price": round(price * r.uniform(0.7, 1.6), 2),
                "attributes": has,
                "options": {name: list(values) for name, values in options.items()},
                "description": f"A {kind} by {brand}: {has[0]} and {has[1]}.",
            }


# -- rules ---------------------------------------------------------------------------------------

NAMES = ("Anne", "Bob", "Carla", "Dave", "Erin", "Finn")
TRAITS = ("kind", "quiet", "tall", "brave", "young", "smart", "calm", "happy", "strong", "gentle")


def rules(depth: int, seed: int, count: int) -> Iterator[Row]:
    """Yield theories in which the statement takes ``depth`` rules to decide, half of them true."""
    r = Random(seed * 100 + depth)
    for i in range(count):
        name, other = r.sample(NAMES, 2)
        chain = r.sample(TRAITS, depth + 1)
        spare = [t for t in TRAITS if t not in chain]
        facts = [f"{name} is {chain[0]}.", f"{other} is {r.choice(spare)}."]
        lines = [f"If someone is {a} then they are {b}." for a, b in pairwise(chain)]
        lines += [f"If someone is {spare[0]} then they are {spare[1]}."]
        r.shuffle(lines)
        true = i % 2 == 0
        # Nobody else can be derived to have the traits of the chain (closed world).
        who = name if true else other
        yield {
            "question": f"{' '.join(facts + lines)}\n\nWhat cannot be derived is false. Is this "
            f"statement True or False? {who} is {chain[-1]}.",
            "answer": str(true),
        }


def write(name: str, rows: Iterator[Row]) -> None:
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    (OUT / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{name}: {len(lines)} items")


def main() -> None:
    """Write all samples."""
    OUT.mkdir(exist_ok=True)
    # One stream without repetition, so the two share nothing.
    problems = list(islice(math(1), 100))
    write("math", iter(problems[:60]))
    write("math-eval", iter(problems[60:]))
    write("geometry", geometry(3, 12))
    write("code", code(0, 2))
    write("code-eval", code(1, 2))
    write("qa", qa())
    write("qa-eval", qa_eval())
    write("shop", shop())
    for depth in (0, 1, 2, 3, 5):
        write(f"logic-d{depth}", rules(depth, 4, 16))


if __name__ == "__main__":
    main()
