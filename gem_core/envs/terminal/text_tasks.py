"""Tasks with the content of text files."""

from __future__ import annotations

from collections import Counter
from random import Random

from gem_core.envs.terminal.problem import TerminalProblem
from gem_core.envs.terminal.words import CITIES, NAMES, join_lines, some, text


def count_lines(rng: Random) -> TerminalProblem:
    """Count the lines with a word."""
    lines = text(rng, 40)
    word = rng.choice(lines[3].split())
    count = sum(word in line.split() for line in lines)
    return TerminalProblem(
        f"In how many lines of text.txt does the word {word} occur? Write the number to "
        "answer.txt.",
        {"text.txt": join_lines(lines)},
        [f"grep -cw {word} text.txt > answer.txt"],
        wanted={"answer.txt": str(count)},
    )


def replace_value(rng: Random) -> TerminalProblem:
    """Change one setting of a configuration file."""
    keys = some(rng, 6)
    values = {key: rng.randint(1, 999) for key in keys}
    key = rng.choice(keys)
    new = values[key] + rng.randint(1, 50)
    before = join_lines([f"{name} = {value}" for name, value in values.items()])
    after = join_lines([f"{name} = {v}" for name, v in {**values, key: new}.items()])
    return TerminalProblem(
        f"Set {key} to {new} in settings.ini, and change nothing else.",
        {"settings.ini": before},
        [f"sed -i 's/^{key} = .*/{key} = {new}/' settings.ini"],
        wanted={"settings.ini": after},
    )


def sum_column(rng: Random) -> TerminalProblem:
    """Add up a column of a table."""
    rows = [(rng.choice(NAMES), rng.choice(CITIES), rng.randint(1, 200)) for _ in range(25)]
    lines = ["name,city,amount", *(f"{n},{c},{a}" for n, c, a in rows)]
    return TerminalProblem(
        "Add up the column amount of sales.csv and write the sum to answer.txt.",
        {"sales.csv": join_lines(lines)},
        ["tail -n +2 sales.csv | awk -F, '{s += $3} END {print s}' > answer.txt"],
        wanted={"answer.txt": str(sum(amount for _, _, amount in rows))},
    )


def sum_where(rng: Random) -> TerminalProblem:
    """Add up a column of some rows."""
    rows = [(rng.choice(NAMES), rng.choice(CITIES[:4]), rng.randint(1, 200)) for _ in range(30)]
    city = rows[0][1]
    lines = ["name,city,amount", *(f"{n},{c},{a}" for n, c, a in rows)]
    return TerminalProblem(
        f"Add up the column amount of those rows of sales.csv whose city is {city}. Write the sum "
        "to answer.txt.",
        {"sales.csv": join_lines(lines)},
        [f"awk -F, '$2 == \"{city}\" {{s += $3}} END {{print s}}' sales.csv > answer.txt"],
        wanted={"answer.txt": str(sum(a for _, c, a in rows if c == city))},
    )


def sort_unique(rng: Random) -> TerminalProblem:
    """Sort lines and drop repetitions."""
    words = some(rng, 12)
    lines = [rng.choice(words) for _ in range(30)]
    return TerminalProblem(
        "Write the different lines of words.txt to sorted.txt, each once, in alphabetical order.",
        {"words.txt": join_lines(lines)},
        ["sort -u words.txt > sorted.txt"],
        wanted={"sorted.txt": join_lines(sorted(set(lines)))},
    )


def top_word(rng: Random) -> TerminalProblem:
    """Find the most frequent word."""
    words = some(rng, 10)
    top = words[0]
    pool = [word for word in words[1:] for _ in range(rng.randint(2, 5))] + [top] * 8
    rng.shuffle(pool)
    lines = [" ".join(pool[i : i + 6]) for i in range(0, len(pool), 6)]
    return TerminalProblem(
        "Which word occurs most often in text.txt? Write it to answer.txt.",
        {"text.txt": join_lines(lines)},
        [
            "tr ' ' '\\n' < text.txt | sort | uniq -c | sort -rn | head -n 1 | awk '{print $2}' "
            "> answer.txt"
        ],
        wanted={"answer.txt": Counter(pool).most_common(1)[0][0]},
    )


def join_tables(rng: Random) -> TerminalProblem:
    """Join two tables by their key."""
    names = rng.sample(NAMES, 8)
    numbers = rng.sample(range(10, 99), 8)
    cities = {number: rng.choice(CITIES) for number in numbers}
    people = dict(zip(numbers, names, strict=True))
    order = rng.sample(numbers, 8)
    lines = [f"{number} {people[number]} {cities[number]}" for number in sorted(numbers)]
    return TerminalProblem(
        "people.txt has a number and a name on each line, cities.txt a number and a city. Write "
        "a line with number, name and city for each number to joined.txt, separated by single "
        "spaces, in the order of the numbers.",
        {
            "people.txt": join_lines([f"{n} {people[n]}" for n in numbers]),
            "cities.txt": join_lines([f"{n} {cities[n]}" for n in order]),
        },
        ["sort people.txt > p; sort cities.txt > c; join p c > joined.txt; rm p c"],
        wanted={"joined.txt": join_lines(lines)},
    )


def busiest_hour(rng: Random) -> TerminalProblem:
    """Find the hour of a log with most errors."""
    hours = rng.sample(range(24), 6)
    counts = dict(zip(hours, [9, 6, 5, 4, 3, 2], strict=True))
    lines = []
    for hour, count in counts.items():
        for level in ["ERROR"] * count + ["INFO"] * (12 - count):
            minute = f"{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"
            lines.append(f"2024-03-01 {hour:02}:{minute} {level} {rng.choice(NAMES)}")
    lines.sort()
    return TerminalProblem(
        "Each line of server.log has a date, a time, a level and a name. In which hour are there "
        "most lines with the level ERROR? Write its two digits to answer.txt.",
        {"server.log": join_lines(lines)},
        [
            "grep ERROR server.log | cut -c12-13 | sort | uniq -c | sort -rn | head -n 1 "
            "| awk '{print $2}' > answer.txt"
        ],
        wanted={"answer.txt": f"{hours[0]:02}"},
    )


TASKS = (
    count_lines,
    replace_value,
    sum_column,
    sum_where,
    sort_unique,
    top_word,
    join_tables,
    busiest_hour,
)
