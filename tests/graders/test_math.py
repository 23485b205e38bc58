"""The math grader: math-verify's verdicts, in any thread, in bounded time."""

from __future__ import annotations

import json
import logging
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from math_verify import parse, verify

import gem_core
from gem_core.envs.graders import grade_math, math
from gem_core.errors import MissingDependencyError

PAIRS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "benchmarks/throughput/math_pairs.jsonl")
    .read_text()
    .splitlines()
]


def reference(answer: str, gold: str) -> bool:
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    # Its own timeouts are by the clock, so they are long: a busy machine changes no verdict.
    golds, answers = (parse(f"\\boxed{{{t}}}", parsing_timeout=60) for t in (gold, answer))
    return bool(verify(golds, answers, timeout_seconds=60))


def test_the_fixed_set_is_large_and_mixed() -> None:
    right = sum(pair["right"] for pair in PAIRS)
    assert len(PAIRS) >= 500 and 0.3 < right / len(PAIRS) < 0.7
    assert len({(pair["answer"], pair["gold"]) for pair in PAIRS}) == len(PAIRS)


def test_verdicts_equal_math_verifys_on_the_fixed_set() -> None:
    for pair in PAIRS:
        answer = pair["answer"]
        gold = pair["gold"]
        verdict = grade_math(answer, gold, deadline_s=60)
        assert (verdict.correct, verdict.error) == (pair["right"], None), pair
        assert reference(answer, gold) == pair["right"], pair


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        # Equal at some points only, equal where both are defined, equal by a branch.
        ("x^2", "x^4"),
        ("\\sqrt{x^2}", "x"),
        ("|x|", "x"),
        ("\\frac{x^2-1}{x-1}", "x+1"),
        ("\\ln(x^2)", "2\\ln x"),
        ("\\tan x", "\\frac{\\sin x}{\\cos x}"),
        ("n!", "n(n-1)!"),
        ("\\binom{5}{2}", "10"),
        ("\\sqrt{3+2\\sqrt{2}}", "1+\\sqrt{2}"),
        ("e^{i\\pi}", "-1"),
        ("x^3+y^3", "(x+y)(x^2-xy+y^2)"),
        ("x+0.0001", "x"),
        ("x+1", "x"),
        ("2^{x+1}", "2^x"),
        ("\\int_0^1 x dx", "\\frac{1}{3}"),
        ("\\begin{pmatrix}1 & x\\end{pmatrix}", "\\begin{pmatrix}1 & y\\end{pmatrix}"),
        # Text that remains after an answer, or cannot be read.
        ("7\\", "7"),
        ("7 )", "7"),
        ("x^2 ]", "x^2"),
        ("\\frac{x}{", "x"),
    ],
)
def test_verdicts_equal_math_verifys_on_algebra_and_malformed_text(answer: str, gold: str) -> None:
    for pair in ((answer, gold), (gold, answer)):
        verdict = grade_math(*pair, deadline_s=60)
        assert verdict.error is None and verdict.correct == reference(*pair), pair


def test_several_gold_answers() -> None:
    assert grade_math("2", ["1", "2"]).correct
    assert not grade_math("3", ["1", "2"]).correct
    assert not grade_math("3", []).correct


def test_it_works_in_threads() -> None:
    pairs = PAIRS[-60:]
    verdicts: dict[int, bool] = {}

    def work(start: int) -> None:
        for i in range(start, len(pairs), 6):
            verdicts[i] = grade_math(pairs[i]["answer"], pairs[i]["gold"], deadline_s=60).correct

    math._verdict.cache_clear()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [verdicts[i] for i in range(len(pairs))] == [p["right"] for p in pairs]


def test_a_hanging_comparison_costs_only_itself() -> None:
    begun = time.monotonic()
    inner = "(x+y+z+w)^{100}"  # the two are equal, so no value tells them apart
    verdict = grade_math(f"({inner}-1)({inner}+1)", "(x+y+z+w)^{200}-1", deadline_s=1)
    assert not verdict.correct and verdict.method == "none" and "deadline" in str(verdict.error)
    assert time.monotonic() - begun < 60
    # The answers after it are judged as before.
    for answer in ("|x|(|x|+2)", "|x|^2+2|x|", "(2+|x|)|x|"):
        verdict = grade_math(answer, "2|x|+|x|^2", deadline_s=60)
        assert verdict.correct and verdict.method == "math-verify"


@pytest.mark.parametrize(
    "answer",
    [
        "x" * 100_000,
        "{" * 1500,
        "\\frac{" * 300,
        "\x00",
        "\ud800",
        "1" * 1999,
        "((((((((" * 200,
        "\\sqrt{" * 200 + "x" + "}" * 200,
        "\\sin(" * 16 + "x" + ")" * 16,
        "(a+b+c+x+y)^8(a+b+c+x+y)^8",
        "9^9^9^9",
        "__import__('os').system('true')",
        "\\input{/etc/passwd}",
        "",
    ],
)
def test_hostile_answers_are_wrong_and_nothing_else(answer: str) -> None:
    assert not grade_math(answer, "|x|+1", deadline_s=3).correct
    assert grade_math("1+|x|", "|x|+1", deadline_s=60).correct


@pytest.mark.parametrize("missing", ["math_verify", "pebble"])
@pytest.mark.parametrize("env_id", ["math:Remainders", "math:GSM8K", "eval:AIME24"])
def test_without_the_extra_no_environment_is_made(
    env_id: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message comes before the first episode, and before any data are loaded."""
    for module in ("math", "pool"):
        monkeypatch.setattr(
            f"gem_core.envs.graders.{module}.find_spec",
            lambda name: None if name == missing else find_spec(name),
        )
    with pytest.raises(MissingDependencyError, match=r"pip install 'gem-core\[math\]'") as caught:
        gem_core.make(env_id)
    assert "\n" not in str(caught.value)
