"""Programming tasks with tests and a solution."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

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


def tasks(first: int, step: int) -> Iterator[dict[str, Any]]:
    """Yield every ``step``-th task of each kind, from task ``first`` on."""
    for question, program, inputs in STDIN[first::step]:
        tests = [{"input": text, "output": output_of(program, text)} for text in inputs]
        yield {"question": question, "tests": tests, "solution": program}
    for question, name, program, calls in FUNCTIONS[first::step]:
        names: dict[str, Any] = {}
        exec(program, names)
        tests = [
            {"input": list(arguments), "output": names[name](*arguments), "fn_name": name}
            for arguments in calls
        ]
        yield {"question": question, "tests": tests, "solution": program}


def output_of(program: str, text: str) -> str:
    """Return what a program prints for an input."""
    done = subprocess.run(
        [sys.executable, "-c", program], input=text, capture_output=True, text=True, check=True
    )
    return done.stdout
