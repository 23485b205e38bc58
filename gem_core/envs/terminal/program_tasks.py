"""Tasks whose result is a small program, which is tried on inputs that the agent has not seen."""

from __future__ import annotations

from random import Random

from gem_core.envs.terminal.problem import TerminalProblem
from gem_core.envs.terminal.words import join_lines, some, text


def add_arguments(rng: Random) -> TerminalProblem:
    """Write a program that adds its arguments."""
    name = rng.choice(["add", "total", "sum"])
    cases = [[rng.randint(-50, 99) for _ in range(count)] for count in (2, 5, 1)]
    return TerminalProblem(
        f"Write a shell script {name}.sh that prints the sum of its arguments, which are whole "
        f"numbers. It is called like this: sh {name}.sh 3 4 (which prints 7).",
        {},
        [_script(f"{name}.sh", 's=0; for n in "$@"; do s=$((s + n)); done; echo $s')],
        probes=[(f"sh {name}.sh {' '.join(map(str, case))}", str(sum(case))) for case in cases],
    )


def reverse_words(rng: Random) -> TerminalProblem:
    """Write a program that reverses the words of each line."""
    inputs = [text(rng, 3, 4), text(rng, 1, 2)]
    expected = ["\n".join(" ".join(reversed(x.split())) for x in lines) for lines in inputs]
    program = "awk '{for (i = NF; i; i--) printf \"%s \", $i; print \"\"}' | sed 's/ $//'"
    return TerminalProblem(
        "Write a shell script reverse.sh that reads lines from its standard input and prints each "
        "with its words in reverse order, separated by single spaces. It is called like this: "
        "sh reverse.sh < file",
        {},
        [_script("reverse.sh", program)],
        probes=[
            (f"{_print(lines)} | sh reverse.sh", output)
            for lines, output in zip(inputs, expected, strict=True)
        ],
    )


def replace_multiples(rng: Random) -> TerminalProblem:
    """Write a program that replaces multiples of a number by a word."""
    word = rng.choice(some(rng, 4))
    step = rng.randint(3, 6)
    program = f"for i in $(seq $1); do [ $((i % {step})) = 0 ] && echo {word} || echo $i; done"
    probes = []
    for last in (step * 2 + 1, step - 1, 20):
        lines = [str(i) if i % step else word for i in range(1, last + 1)]
        probes.append((f"sh count.sh {last}", "\n".join(lines)))
    return TerminalProblem(
        f"Write a shell script count.sh that prints the numbers from 1 to its first argument, one "
        f"on each line, but the word {word} in place of every multiple of {step}. It is called "
        "like this: sh count.sh 10",
        {},
        [_script("count.sh", program)],
        probes=probes,
    )


def longest_line(rng: Random) -> TerminalProblem:
    """Write a program that finds the longest line."""
    inputs = [[word * rng.randint(1, 3) for word in some(rng, 5)] for _ in range(2)]
    inputs[1].append("one two " * 6)
    program = "awk '{ if (length($0) > m) m = length($0) } END { print m }' \"$1\""
    return TerminalProblem(
        "Write a shell script longest.sh that prints the number of characters of the longest line "
        "of the file that is its argument. It is called like this: sh longest.sh file",
        {},
        [_script("longest.sh", program)],
        probes=[
            (f"{_print(lines)} > probe; sh longest.sh probe", str(max(map(len, lines))))
            for lines in inputs
        ],
    )


def repair_script(rng: Random) -> TerminalProblem:
    """Repair a program with several faults."""
    name = rng.choice(some(rng, 3))
    broken = join_lines(
        [
            f"# Prints how many lines of its files have the word {name}.",
            "count=0",
            'for file in "$1"; do',
            f'  n=$(grep -c {name[:-1]} "$file")',
            "  count=$n",
            "done",
            "echo $count",
        ]
    )
    lines = [*(f"{name} {word}" for word in some(rng, 3)), f"{name[:-1]} again"]
    make = f"{_print(lines)} > one; cp one two"
    return TerminalProblem(
        f"The script count.sh shall print how many lines of all its files together have the word "
        f"{name}. It has several faults: repair it. It is called like this: sh count.sh one two",
        {"count.sh": broken},
        [_script("count.sh", f'cat "$@" | grep -cw {name}')],
        probes=[(f"{make}; sh count.sh one two", "6"), (f"{make}; sh count.sh two", "3")],
    )


def _script(name: str, line: str) -> str:
    """Return a command that writes a script of one line."""
    return f"cat > {name} <<'END'\n{line}\nEND"


def _print(lines: list[str]) -> str:
    """Return a command that prints lines, which have no quotation marks."""
    quoted = " ".join(f"'{line}'" for line in lines)
    return f"printf '%s\\n' {quoted}"


TASKS = (
    add_arguments,
    reverse_words,
    replace_multiples,
    longest_line,
    repair_script,
)
