"""The two scores of ``rg:*`` against reasoning-gym itself, over all generators.

    .venvs/core/bin/python benchmarks/rg_scores/run.py

Answers of many kinds (right, in other notations, with text around it, that of another item,
arithmetic, lists, integration constants, nonsense) are scored by reasoning-gym's own scorer, called
directly, and by the environment with ``score="reasoning_gym"``: the two must be the same float. The
score ``"strict"`` must be 1 for the generator's own solution, and is listed where it differs from
the full score. Writes ``result.json`` and ``README.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gem_core.runs import provenance

HERE = Path(__file__).resolve().parent
RESULT = HERE / "result.json"
PAGE = HERE / "README.md"
HASH_SEED = "0"
"""The hash seed of the worker processes, on which some items depend."""
SPECIAL = (
    "binary_matrix",
    "countdown",
    "game_of_life_halting",
    "intermediate_integration",
    "n_queens",
    "polynomial_multiplication",
    "puzzle24",
    "simple_integration",
    "spiral_matrix",
    "string_insertion",
)
"""Generators whose scorers evaluate the answer, or accept any; they get more answers."""
ODD = (
    "0",
    "1",
    "81",
    "-3.5",
    "1/3",
    "True",
    "none",
    "x",
    "?",
    ")",
    "[]",
    "[1, 2, 3]",
    "[[1, 2], [3, 4]]",
    "['a', 'b']",
    "{1: 2}",
    "(1, 2)",
    "I do not know.",
    "The answer is 42.",
    "a b c",
    "A,B,C",
    "é√🙂",
    "9 * 9 * 9 * 9",
    "2**3 + C",
    "x**2 + C1",
    "sin(x) + exp(x)",
    "a" * 300,
)
EXPRESSIONS = (
    "1 +",
    "1 + 2 = 3",
    "1 + 2 == 3",
    "4!",
    "10 % 3",
    "24",
    "24.9",
    "49/2",
    "3 8 1 1",
    "8 / (3 - 8/3)",
    "5 * (5 - 1/5)",
    "sqrt(16) * 6 * 1",
    "abs(-24)",
    "factorial(4)",
    "max(3, 24)",
    "C1",
    "x + C1 + C2",
    "const",
    "pi",
    "oo",
    "zoo",
    "integrate(x, x)",
    "diff(x**2, x)",
    "expand((x + 1)**2)",
    "2x",
    "x y",
    "[0, 1] + [2]",
    "[0] * 4",
    "'a' + 'b'",
    "1 if 1 else 2",
    "[1, 2, 3][::-1]",
    "not 1",
    "1 < 2",
    "f(x)",
    "hello",
    "print",
    "open",
    "_",
    "__name__",
    "...",
    "None",
    "{}",
    "1e5",
    "0x18",
    "1,2",
)


def main(arguments: Sequence[str] | None = None) -> int:
    from gem_core.envs._rg_tables import NAMES

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--items", type=int, default=4, help="of each generator (%(default)s)")
    parser.add_argument("--generators", nargs="+", default=NAMES, metavar="NAME")
    parser.add_argument("--result", type=Path, default=RESULT, help="(%(default)s)")
    parser.add_argument("--page", type=Path, default=PAGE, help="(%(default)s)")
    provenance.add_option(parser)
    options = parser.parse_args(arguments)
    provenance.check_option(parser, options)
    commit = provenance.commit()  # of the code that runs, not of a later one
    generators = {}
    for name in options.generators:
        if name != "composite":
            generators[name] = compare(name, options.items)
            print(name, json.dumps(generators[name])[:200], flush=True)
    result = {"commit": commit, "versions": versions(), "generators": generators}
    options.result.write_text(json.dumps(result, indent=1, ensure_ascii=True) + "\n")
    options.page.write_text(page(result))
    return int(any(g["different"] or g["solutions_refused"] for g in generators.values()))


def compare(name: str, items: int) -> dict[str, Any]:
    """Score answers to some items of one generator in all ways."""
    import gem_core
    from gem_core.envs import _rg_items

    envs = {
        score: gem_core.make(f"rg:{name}", score=score, answer_format="plain", pick="seed")
        for score in ("reasoning_gym", "strict")
    }
    counts: Counter[str] = Counter()
    different: list[Any] = []
    wrong_in_full: list[str] = []
    refused = 0
    entries = [_rg_items.item(name, {}, draw) for draw in range(items)]
    solutions = [solution(envs["strict"], draw) for draw in range(items)]
    for draw, entry in enumerate(entries):
        for answer in answers(name, draw, solutions):
            direct = direct_score(name, entry, answer)
            own, strict = (score(env, draw, answer) for env in envs.values())
            counts["answers"] += 1
            counts["partial"] += 0 < own < 1
            counts["raises"] += direct is None
            if own != (direct or 0.0):
                different.append([draw, answer[:100], own, direct])
            if own >= 1 and strict < 1:
                counts["full_pay_refused"] += 1
                wrong_in_full.append(answer[:60])
            refused += answer == solutions[draw] and strict < 1
    return {
        **{key: counts[key] for key in ("answers", "partial", "full_pay_refused", "raises")},
        "different": different,
        "solutions_refused": refused,
        "examples": wrong_in_full[:3],
    }


def answers(name: str, draw: int, solutions: list[str]) -> Iterator[str]:
    """Yield the answers to one item, without outer white space."""
    right = solutions[draw]
    other = solutions[draw - 1]
    forms = [
        right,
        right.upper(),
        right.lower(),
        right.title(),
        f"The answer is {right}.",
        f"{right}.",
        f"({right})",
        f"[{right}]",
        f"'{right}'",
        f"{right} + C1",
        f"{right} + 0",
        f"-{right}",
        f"0{right}",
        f"{right}0",
        f"{right} {other}",
        f"{other} {right}",
        f"{right}\n{other}",
        f"{right}, {other}",
        right[:-1],
        right[1:],
        right[::-1],
        right * 2,
        right.replace(" ", ""),
        right.replace("\n", " "),
        right.replace(" ", ", "),
        str(right.split()),
        str(list(right)),
        str([line.split() for line in right.splitlines()]),
        right.replace("C", "C1"),
        other,
    ]
    extra = EXPRESSIONS if name in SPECIAL else ()
    yield from {text.strip(): None for text in (*forms, *ODD, *extra) if text.strip()}


def solution(env: Any, draw: int) -> str:
    """Return the solution that the environment knows."""
    env.reset(options={"index": draw})
    text: str = env.peek()
    return text.strip()


def score(env: Any, draw: int, answer: str) -> float:
    """Return the environment's reward of an answer."""
    env.reset(options={"index": draw})
    reward: float = env.step(answer)[1]
    return reward


def direct_score(name: str, entry: dict[str, Any], answer: str) -> float | None:
    """Return what reasoning-gym's scorer returns in this process; ``None`` if it raises."""
    from gem_core.envs import _rg_items

    signal.signal(signal.SIGALRM, _too_slow)
    signal.alarm(60)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return float(_rg_items.generator(name, {}).score_answer(answer, entry))
    except TimeoutError:
        raise
    except Exception:
        return None
    finally:
        signal.alarm(0)


def _too_slow(*_: Any) -> None:
    raise TimeoutError("reasoning-gym's scorer took more than a minute")


def versions() -> dict[str, str]:
    """Return the versions that the figures belong to."""
    import gem_core
    from gem_core.envs import _rg_items

    return {
        "gem_core": gem_core.__version__,
        "reasoning_gym": _rg_items.find_version(),
        "python": platform.python_version(),
    }


def page(result: dict[str, Any]) -> str:
    """Return the page of a result."""
    generators = result["generators"]
    total = {
        key: sum(g[key] for g in generators.values())
        for key in ("answers", "partial", "full_pay_refused", "raises", "solutions_refused")
    }
    different = sum(len(g["different"]) for g in generators.values())
    special = sum(generators[name]["answers"] for name in SPECIAL if name in generators)
    refusing = {name: g for name, g in generators.items() if g["full_pay_refused"]}
    rows = [
        f"| {name} | {g['answers']} | {g['full_pay_refused']} | {_code(g['examples'][0])} |"
        for name, g in refusing.items()
    ]
    return "\n".join(
        [
            "# Scores of rg:*: reasoning-gym's own and the strict one",
            "",
            "Generated by `python benchmarks/rg_scores/run.py`; do not edit. gem-core "
            f"{result['versions']['gem_core']}, reasoning-gym "
            f"{result['versions']['reasoning_gym']}, commit "
            f"`{provenance.short(result.get('commit'))}`.",
            "",
            f"- {total['answers']:,} answers to items of {len(generators)} generators, {special:,} "
            f"of them to the {len(SPECIAL)} whose scorers evaluate the answer or accept any.",
            f'- `score="reasoning_gym"`: {different} differ from a direct call of the scorer. The '
            f"{total['raises']:,} answers on which the scorer raises an error get 0.",
            f"- The scorer gives {total['partial']:,} of the answers a partial score; "
            '`score="strict"` gives them 0.',
            f"- {total['solutions_refused']} of the generators' own solutions and "
            f"{total['full_pay_refused']:,} of the other answers with the full score get 0 with "
            '`score="strict"`:',
            "",
            "| generator | answers | full score, refused | for example |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|").replace("\n", " ") + "`"


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, *sys.argv])
    raise SystemExit(main())
