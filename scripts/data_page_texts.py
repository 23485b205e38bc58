"""Texts about the environments outside ``game:``, which ``make_env_pages.py`` reads.

The licences are those that the origins state, not legal advice. The data sets themselves are not
part of this package.
"""

from __future__ import annotations

from typing import NamedTuple


class Facts(NamedTuple):
    """The texts about a namespace.

    Attributes:
        title: heading of the page.
        examples: ids of which an episode is shown.
        origin: rows (environments, origin of their data, licence that the origin states).
        sample: description of the built-in sample.
        real: how to use other data, in Markdown.
        names: first cells of the rows of ``differences.md`` that belong to the page, besides
            ``all`` of that table's second part.
    """

    title: str
    examples: tuple[str, ...]
    origin: tuple[tuple[str, str, str], ...]
    sample: str
    real: str
    names: tuple[str, ...]


_OFFLINE = """\
The id alone loads the data set from the Hugging Face Hub (`pip install 'gem-core[data]'`) or from
its cache; `HF_HOME`, `HF_HUB_OFFLINE` and similar variables are honoured, and a Hub that cannot be
reached costs a process five seconds at most. If neither is available, `gem_core.make` uses the
sample, with a warning, `info["sample"] = True` and its own data revision; `strict=True` makes this
an error. In a run it always is one: training and evaluation play the sample only if the recipe asks
for it (`--set env.0.kwargs.dataset=sample`). `revision=` pins a commit, and is never replaced by
what the cache happens to have; without it a run resolves the newest commit once, and all of its
processes load that one, also when it is resumed. `env.spec.data_revision` names the data that were
loaded, a stored spec refuses other data, and `run.json`, `result.json` and `gem-core report` name
the data of a run. A local file needs neither the Hub nor the extra (Parquet needs the extra):
"""


def _file(env_id: str, row: str, columns: str = "") -> str:
    return (
        f"{_OFFLINE}\n```python\n# rows.jsonl, one object per line: {row}\n"
        f'env = gem_core.make("{env_id}", dataset="rows.jsonl"{columns})\n```'
    )


_OWN = "written for this project by `scripts/make_samples.py`; Apache-2.0"
_READ = "not checked: read its card"

FACTS: dict[str, Facts] = {
    "math": Facts(
        "mathematical questions",
        ("math:GSM8K", "math:Geometry3K"),
        (
            ("`math:ASDiv2K`", "ASDiv (Miao et al. 2020)", "CC BY-NC 4.0"),
            ("`math:GSM8K`", "GSM8K (Cobbe et al. 2021)", "MIT"),
            ("`math:Math12K`, `math:Math8K-3to5`", "MATH (Hendrycks et al. 2021)", "MIT"),
            ("`math:Orz57K`", "Open-Reasoner-Zero (Hu et al. 2025), from many sources", _READ),
            ("`math:DeepScaleR40K`", "DeepScaleR (2025), from many sources", _READ),
            ("`math:Geometry3K`", "Geometry3K (Lu et al. 2021)", _READ),
            ("`math:Remainders`", "remainders of products, made for gem-core", "Apache-2.0"),
            ("`math:DigitSums`", "sums of the digits of powers, made for gem-core", "Apache-2.0"),
        ),
        f"`math.jsonl`, 60 word problems and exercises, and `geometry.jsonl`, 12 drawings: {_OWN}. "
        "`remainders.jsonl` and `digit_sums.jsonl`, the 1,500 questions each of `math:Remainders` "
        "and `math:DigitSums`, for which a small model needs the tool `python`, are by the same "
        "hand.",
        _file("math:GSM8K", '{"problem": "What is 3 + 4?", "answer": "7"}'),
        ("math",),
    ),
    "code": Facts(
        "programs that must pass tests",
        ("code:CodeContest",),
        (
            ("`code:CodeContest`", "CodeContests (Li et al. 2022)", "CC BY 4.0"),
            ("`code:Taco8k`", "TACO (Li et al. 2023)", "Apache-2.0"),
            ("`code:PrimeIntellect15k`", "PrimeIntellect's verifiable problems (2025)", _READ),
            ("`code:Formulas`", "programs of one formula, made for gem-core", "Apache-2.0"),
            ("`code:Lists`", "programs about a part of a list, made for gem-core", "Apache-2.0"),
        ),
        f"`code.jsonl`, 6 small tasks with tests and a solution: {_OWN}. `formulas.jsonl`, the 400 "
        "tasks of `code:Formulas`, and `lists.jsonl`, the 300 of `code:Lists`, for small models, "
        "are by the same hand.",
        _file(
            "code:CodeContest",
            '{"problem": "...", "tests": {"inputs": ["1 2\\n"], "outputs": ["3\\n"]}}',
        )
        + '\n\n`tests` may also be a list of `{"input": ..., "output": ..., "fn_name": ...}`, or '
        "the JSON text of either. The programs run in the strongest sandbox that the machine "
        "offers: see `SECURITY.md` for what each level promises. They can import Python's "
        "standard library and nothing else. A program that is tested by calling a function "
        "(`fn_name`) need not import the names that coding sites provide (`List`, `deque`, "
        "`heappush`, `gcd`, ...; the list is `PROVIDED` in "
        "`gem_core/envs/graders/_code_runner.py`).",
        ("code",),
    ),
    "qa": Facts(
        "questions with short answers",
        ("qa:NaturalQuestions",),
        (
            (
                "`qa:NaturalQuestions`",
                "Natural Questions (Kwiatkowski et al. 2019)",
                "CC BY-SA 3.0",
            ),
            ("`qa:HotpotQA`", "HotpotQA (Yang et al. 2018)", "CC BY-SA 4.0"),
            ("`qa:Almanac`, `qa:Auction`", "invented islands, made for gem-core", "Apache-2.0"),
            ("`qa:Ledger`", "an invented harbour, made for gem-core", "Apache-2.0"),
        ),
        f"`qa.jsonl`, 32 questions of general knowledge, some in two hops: {_OWN}. "
        "`almanac.jsonl` (360 questions, some in two hops) and `auction.jsonl` (400), by the same "
        "hand, are the questions of `qa:Almanac` and `qa:Auction`: their answers are only in the "
        "shipped corpus `almanac` of the tool `search`. `ledger.jsonl` (400 questions, each in two "
        "hops) belongs to the shipped corpus `ledger`: an entry names an account, whose paragraph "
        "has the answer. No two questions share a paragraph.",
        _file("qa:HotpotQA", '{"problem": "Who ...?", "answer": ["one", "or another"]}'),
        ("qa",),
    ),
    "logic": Facts(
        "conclusions from rules",
        ("logic:RuleTaker-d2",),
        (("all; `d` is the depth of the proof", "RuleTaker (Clark et al. 2020)", _READ),),
        f"`logic-d0.jsonl` ... `logic-d5.jsonl`, 16 statements each, half of them true: {_OWN}.",
        _file("logic:RuleTaker-d2", '{"question": "... True or False?", "answer": "True"}'),
        ("logic",),
    ),
    "eval": Facts(
        "evaluation sets",
        ("eval:MATH500", "eval:Bamboogle"),
        (
            ("`eval:MATH500`", "MATH (Hendrycks et al. 2021)", "MIT"),
            (
                "`eval:AMC`, `eval:AIME24`",
                "contests of the Mathematical Association of America",
                _READ,
            ),
            ("`eval:OlympiadBench`", "OlympiadBench (He et al. 2024)", _READ),
            ("`eval:Minerva`", "OCWCourses of Minerva (Lewkowycz et al. 2022)", _READ),
            ("`eval:CodeContest`", "CodeContests (Li et al. 2022)", "CC BY 4.0"),
            (
                "`eval:QaOpen`, `eval:NaturalQuestions`",
                "Natural Questions (Kwiatkowski et al. 2019)",
                "CC BY-SA 3.0",
            ),
            ("`eval:HotpotQA`", "HotpotQA (Yang et al. 2018)", "CC BY-SA 4.0"),
            ("`eval:2Wiki`", "2WikiMultihopQA (Ho et al. 2020)", _READ),
            ("`eval:Musique`", "MuSiQue (Trivedi et al. 2022)", "CC BY 4.0"),
            ("`eval:TriviaQA`", "TriviaQA (Joshi et al. 2017)", _READ),
            ("`eval:PopQA`", "PopQA (Mallen et al. 2023)", _READ),
            ("`eval:Bamboogle`", "Bamboogle (Press et al. 2023)", _READ),
        ),
        "`math-eval.jsonl` (40 questions), `qa-eval.jsonl` (16) and `code-eval.jsonl` (6), none of "
        f"them in the samples for training: {_OWN}.",
        _file("eval:MATH500", '{"problem": "What is 3 + 4?", "answer": "7"}')
        + "\n\nA pass visits every item exactly once, also over several environments and "
        "machines:\n\n```python\nfor options in eval_items(env, part=rank, parts=world_size):\n"
        "    obs, info = env.reset(options=options)\n```\n\nWhere only a seed can be passed, seed "
        "`-1 - i` is item `i`.",
        ("eval", "math", "code", "qa"),
    ),
    "rg": Facts(
        "the generators of reasoning-gym",
        ("rg:letter_counting",),
        (("all", "reasoning-gym 0.1.25 (package, extra `rg`)", "Apache-2.0"),),
        "There is none: items are generated.",
        "Options of a generator are parameters of its environment: "
        '`gem_core.make("rg:chain_sum", min_terms=2, max_terms=3)`; an unknown one is refused with '
        "the list of those there are. `pool=100` draws from a fixed set of 100 items.\n\n"
        '`score="strict"`, the default, is 1 for a right answer, else 0. `score="reasoning_gym"` '
        "is exactly the generator's own, to be used for comparisons with published figures; it "
        "rewards some wrong answers too ([figures](../../benchmarks/rg_scores/README.md)), which "
        "a policy learns to exploit.",
        ("rg",),
    ),
    "webshop": Facts(
        "a web shop",
        ("webshop:train-text",),
        (
            (
                "a catalogue of your own",
                "WebShop's (Yao et al. 2022) is scraped from a real shop and not shipped here",
                _READ,
            ),
        ),
        f"`shop.jsonl`, 72 products of invented brands: {_OWN}.",
        "Install the extra `webshop` (bm25s) and give a product file; a price is a number, "
        "`attributes` a list, every id occurs once:\n\n"
        "```python\n# products.jsonl, one object per line:\n"
        '# {"id": "K1", "name": "blue kettle", "category": "kettle", "price": 9.5,\n'
        '#  "attributes": ["blue"], "options": {"size": ["1 l", "2 l"]}, "description": "..."}\n'
        'env = gem_core.make("webshop:train-text", dataset="products.jsonl")\n```',
        ("webshop",),
    ),
    "multi": Facts(
        "opponents and users",
        ("multi:TicTacToe-v0-hard", "multi:ReturnsDesk-v0"),
        (("all", "games and dialogue of this package", "Apache-2.0"),),
        "There is none: episodes are drawn from the seed.",
        'Your own opponent is a function `(game, rng) -> move`: `opponent="my_module:function"`. '
        'Your own user is a `UserSimulator`: `user="my_module:Class"`. For self-play, step the '
        'game itself, `gem_core.envs.multi_agent.TicTacToe()`: `info["agent"]` is the agent that '
        'acts next, and `info["rewards"]` has the rewards of both.',
        ("multi",),
    ),
    "terminal": Facts(
        "tasks in a shell",
        ("terminal:text-v0", "terminal:git-v0"),
        (("all", "tasks of this package, drawn from the seed", "Apache-2.0"),),
        "There is none: tasks are drawn from the seed. `tasks=[...]` plays only the named ones; "
        "`gem_core.envs.terminal.TASKS` lists them.",
        "There is none: folders of tasks of Terminal-Bench and Harbor are not read. They build "
        "images and test with programs from the internet, and the sandbox has no network.",
        ("terminal",),
    ),
    "mcp": Facts(
        "tasks with a database behind an MCP server",
        ("mcp:update-v0", "mcp:report-v0"),
        (("all", "tasks of this package, drawn from the seed", "Apache-2.0"),),
        "There is none: databases and tasks are drawn from the seed. `tasks=[...]` plays only the "
        "named ones, and `gem_core.envs.database.TASKS` lists them.",
        "The server is `python -m gem_core.tools.mcp.database_server FILE`; "
        "`pip install 'gem-core[mcp]'` brings the protocol. Tools of any other MCP server join any "
        "environment: `ToolEnv(env, mcp_tools(command=[...]))`, from `gem_core.tools.mcp`.",
        ("mcp",),
    ),
}
