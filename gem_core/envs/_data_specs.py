"""The table of the environments that are not games. It imports none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core.env.spec import EnvSpec
from gem_core.envs._rg_tables import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_HERE = "gem_core.envs"
_MATH = f"{_HERE}.math:MathEnv"
_CODE = f"{_HERE}.code:CodeEnv"
_QA = f"{_HERE}.qa:QaEnv"
_PROBLEM = {"question": "problem", "answer": "answer"}

_TRAIN: tuple[tuple[str, str, str, str | None, str, dict[str, str] | None], ...] = (
    ("math:ASDiv2K", _MATH, "axon-rl/ASDIV-2k", None, "math", _PROBLEM),
    ("math:GSM8K", _MATH, "axon-rl/GSM-8k", None, "math", _PROBLEM),
    ("math:Math12K", _MATH, "axon-rl/MATH-12k", None, "math", _PROBLEM),
    ("math:Math8K-3to5", _MATH, "axon-rl/MATH-lvl3to5-8k", None, "math", _PROBLEM),
    ("math:Orz57K", _MATH, "axon-rl/ORZ-57k", None, "math", _PROBLEM),
    ("math:DeepScaleR40K", _MATH, "axon-rl/DeepScaleR-40K", None, "math", _PROBLEM),
    (
        "math:Geometry3K",
        f"{_HERE}.math:GeometryEnv",
        "axon-rl/geometry3k",
        "train",
        "geometry",
        {**_PROBLEM, "images": "images"},
    ),
    ("code:CodeContest", _CODE, "axon-rl/CodeContest", "train", "code", None),
    ("code:Taco8k", _CODE, "axon-rl/TACO-8k", "train", "code", None),
    ("code:PrimeIntellect15k", _CODE, "axon-rl/PrimeIntellect-15k", "train", "code", None),
    ("qa:NaturalQuestions", _QA, "axon-rl/NaturalQuestions", "train", "qa", _PROBLEM),
    ("qa:HotpotQA", _QA, "axon-rl/HotpotQA", "train", "qa", _PROBLEM),
    *(
        (
            f"logic:RuleTaker-d{depth}",
            f"{_HERE}.qa:RuleTaker",
            f"axon-rl/RuleTaker-d{depth}-70k",
            "train",
            f"logic-d{depth}",
            None,
        )
        for depth in (0, 1, 2, 3, 5)
    ),
)
"""(id, entry point, Hugging Face id, split, sample, columns), with the data sets of GEM."""
_EVAL: tuple[tuple[str, str, str, str | None, str, dict[str, str] | None], ...] = (
    *(
        (f"eval:{name}", _MATH, "axon-rl/math-eval", split, "math-eval", _PROBLEM)
        for name, split in (
            ("MATH500", "math"),
            ("AMC", "amc"),
            ("OlympiadBench", "olympiad_bench"),
            ("Minerva", "minerva"),
            ("AIME24", "aime24"),
        )
    ),
    ("eval:CodeContest", _CODE, "axon-rl/CodeContest", "test", "code-eval", None),
    ("eval:QaOpen", _QA, "google-research-datasets/nq_open", "validation", "qa-eval", None),
    *(
        (f"eval:{name}", _QA, "axon-rl/search-eval", split, "qa-eval", None)
        for name, split in (
            ("2Wiki", "2wiki"),
            ("PopQA", "popqa"),
            ("TriviaQA", "tq"),
            ("HotpotQA", "hotpotqa"),
            ("Bamboogle", "bamboogle"),
            ("NaturalQuestions", "nq"),
            ("Musique", "musique"),
        )
    ),
)
"""The same for evaluation, where the seed selects the item."""
_MADE = (
    ("math:Remainders", _MATH, "remainders"),
    ("math:DigitSums", _MATH, "digit_sums"),
    ("code:Formulas", _CODE, "formulas"),
    ("code:Lists", _CODE, "lists"),
    ("qa:Almanac", _QA, "almanac"),
    ("qa:Auction", _QA, "auction"),
    ("qa:Ledger", _QA, "ledger"),
)
"""(id, entry point, sample): questions made for this package: a small model needs a tool, or
a program."""
HUB_IDS = frozenset(row[2] for row in (*_TRAIN, *_EVAL))
"""The data sets that a sample may replace; see `gem_core.envs.dataset.DatasetEnv`."""


def data_specs() -> Iterator[EnvSpec]:
    """Yield the spec of every environment outside ``game:``."""
    for name in NAMES:
        yield EnvSpec(f"rg:{name}", f"{_HERE}.reasoning_gym:ReasoningGym", {"name": name})
    for row in _TRAIN:
        yield _dataset_spec(row)
    for row in _EVAL:
        yield _dataset_spec(row, pick="seed")
    for id, entry_point, sample in _MADE:
        yield EnvSpec(id, entry_point, {"dataset": "sample", "sample": sample})
    yield from _multi_agent()
    for group in ("files", "text", "git", "programs"):
        yield EnvSpec(f"terminal:{group}-v0", f"{_HERE}.terminal.env:TerminalEnv", {"group": group})
    for group in ("insert", "update", "delete", "report"):
        yield EnvSpec(f"mcp:{group}-v0", f"{_HERE}.database.env:DatabaseEnv", {"group": group})
    for split in ("train", "test"):
        for rendering in ("html", "text", "text_rich"):
            kwargs = {"split": split, "rendering": rendering}
            yield EnvSpec(f"webshop:{split}-{rendering}", f"{_HERE}.webshop:WebShop", kwargs)


def _multi_agent() -> Iterator[EnvSpec]:
    games = f"{_HERE}.multi_agent.games"
    against = f"{_HERE}.multi_agent.base:AgainstOpponent"
    # Success is the best result that can be forced: a draw in Tic-tac-toe, a win in Nim.
    for game, seat, success in (("TicTacToe", "random", 0.5), ("Nim", "first", 1.0)):
        for variant, opponent in (("easy", "random"), ("hard", "perfect")):
            kwargs = {
                "game": f"{games}:{game}",
                "opponent": opponent,
                "seat": seat,
                "success_at": success,
            }
            yield EnvSpec(f"multi:{game}-v0-{variant}", against, kwargs)
    yield EnvSpec("multi:ReturnsDesk-v0", f"{_HERE}.multi_agent.dialogue:ReturnsDesk", {})


def _dataset_spec(
    row: tuple[str, str, str, str | None, str, dict[str, str] | None], **more: Any
) -> EnvSpec:
    id, entry_point, dataset, split, sample, columns = row
    kwargs: dict[str, Any] = {"dataset": dataset, "sample": sample, **more}
    if split is not None:
        kwargs["split"] = split
    if columns is not None:
        kwargs["columns"] = columns
    return EnvSpec(id, entry_point, kwargs)
