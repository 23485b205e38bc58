"""docs/estimators.md and its picture, made of the result files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gem_core.results import markdown_table
from gem_core.results.plots import new_figure, save_figure
from gem_core.runs import provenance

ROOT = Path(__file__).resolve().parents[2]
TEXT = Path(__file__).with_name("page.txt")
"""The words; names in braces are filled in by `page`."""
PAGE = ROOT / "docs" / "estimators.md"
PICTURE = ROOT / "docs" / "pictures" / "estimators.png"
SHOWN = 64
"""The batch size of the tables."""
COLUMNS = 4
STYLES = {
    "`reinforce`": ("#0072b2", "-"),
    "`rebn`": ("#d55e00", "-"),
    "`gae`, V exact": ("#009e73", "-"),
    "`gae`, V zero": ("#009e73", ":"),
    "`rloo`": ("#e69f00", "-"),
    "`grpo`": ("#56b4e9", "-"),
    "`turn_loo`": ("#cc79a7", "-"),
    "`turn_index`": ("#000000", "--"),
}
"""Case -> colour and line; Dr. GRPO's direction is RLOO's."""
Row = dict[str, Any]


def read(folder: Path, name: str) -> dict[str, Any]:
    """Return a result file."""
    content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return content


def page(folder: Path) -> str:
    """Return the page of the result files in a folder."""
    found = read(folder, "estimators")
    trainers = read(folder, "trainers")
    tables = {
        "processes": _processes(found),
        "limits": _limits(found),
        "discount": _discount(found),
        "batch_angle": _sampled(found, "batch_angle", "{:.1f}"),
        "angle": _sampled(found, "angle", "{:.2f}"),
        "noise": _sampled(found, "noise", "{:.3g}"),
        "exact": _exact(found),
        "agreement": _agreement(found),
        "turn_index": _turn_index(found),
        "trainers": _trainers(trainers),
        "repetitions": f"{found['repetitions']:,}",
        "group": str(found["group_size"]),
        "shown": str(SHOWN),
        "count": str(len(found["processes"])),
        "wins": _wins(found),
        "commits": provenance.origins([found["commit"], trainers["commit"]]),
        "python": found["python"],
        "numpy": found["versions"]["numpy"],
        "versions": ", ".join(f"{r['trainer']} {r['version']}" for r in trainers["trainers"]),
    }
    text = TEXT.read_text(encoding="utf-8")
    for name, content in tables.items():
        text = text.replace("{" + name + "}", content)
    return text


def draw(folder: Path, path: Path) -> Path:
    """Draw the angle of one batch over the batch's size, for every process."""
    found = read(folder, "estimators")
    names = [row["process"] for row in found["processes"]]
    rows = -(-(len(names) + 1) // COLUMNS)
    figure, grid = new_figure(rows, COLUMNS)
    panels = [axes for line in grid for axes in line]
    for name, axes in zip(names, panels, strict=False):
        for label, (colour, line) in STYLES.items():
            own = [r for r in found["sampled"] if (r["process"], r["case"]) == (name, label)]
            sizes = [r["episodes"] for r in own]
            middle, low, high = zip(*(r["batch_angle"] for r in own), strict=True)
            axes.plot(sizes, middle, color=colour, ls=line, lw=1.4, label=label.replace("`", ""))
            axes.fill_between(sizes, low, high, color=colour, alpha=0.15, lw=0)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_ylim(0.5, 120)
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("episodes in the batch", fontsize=8)
    panels[0].set_ylabel("degrees from the exact gradient", fontsize=8)
    for axes in panels[len(names) :]:
        axes.axis("off")
    panels[len(names)].legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="center")
    return save_figure(figure, path)


def _processes(found: Row) -> str:
    head = ("process", "what it has", "trajectories", "turns: mean ± std", "return: mean ± std")
    return markdown_table(
        head,
        [
            (
                row["process"],
                row["about"],
                str(row["trajectories"]),
                f"{row['turns']:.2f} ± {row['turns_std']:.2f}",
                f"{row['objective']:.3f} ± {row['return_std']:.3f}",
            )
            for row in found["processes"]
        ],
    )


def _limits(found: Row) -> str:
    labels = list(found["limits"][0]["degrees"])
    return markdown_table(
        ("process", *(label if "mean" in label else f"`{label}`" for label in labels)),
        [
            (row["process"], *(_degrees(row["degrees"][label]) for label in labels))
            for row in found["limits"]
        ],
    )


def _discount(found: Row) -> str:
    return markdown_table(
        ("process", "from the undiscounted gradient", "from the discounted objective's"),
        [
            (row["process"], _degrees(row["discounted"]), _degrees(row["discounted_own"]))
            for row in found["limits"]
        ],
    )


def _sampled(found: Row, figure: str, form: str) -> str:
    """Return a table of one figure at one batch size: a row per case, a column per process."""
    names = [row["process"] for row in found["processes"]]
    at = {(r["case"], r["process"]): r for r in found["sampled"] if r["episodes"] == SHOWN}
    cases = list(dict.fromkeys(r["case"] for r in found["sampled"]))
    return markdown_table(
        ("estimator", *names),
        [(case, *(_interval(at[case, name][figure], form) for name in names)) for case in cases],
    )


def _wins(found: Row) -> str:
    """Return in how many processes the case of a row is nearer than that of a column."""
    at = {
        (r["case"], r["process"]): r["batch_angle"]
        for r in found["sampled"]
        if r["episodes"] == SHOWN
    }
    names = [row["process"] for row in found["processes"]]
    cases = list(dict.fromkeys(r["case"] for r in found["sampled"]))

    def count(row: str, column: str) -> str:
        return str(sum(at[row, name][2] < at[column, name][1] for name in names))

    return markdown_table(
        ("nearer", *cases),
        [(row, *("" if row == other else count(row, other) for other in cases)) for row in cases],
    )


def _exact(found: Row) -> str:
    sizes = sorted({row["episodes"] for row in found["exact"]})
    cases = list(dict.fromkeys(row["case"] for row in found["exact"]))
    at = {(row["case"], row["episodes"]): row for row in found["exact"]}
    rows = [(case, *(_degrees(at[case, size]["angle"]) for size in sizes)) for case in cases]
    off = [_degrees(at["`rebn`", size]["first_order_off"]) for size in sizes]
    rows.append(("`rebn`, from the formula to first order", *off))
    return markdown_table(("estimator", *(f"B = {size}" for size in sizes)), rows)


def _agreement(found: Row) -> str:
    """Say in how many cells the exact angle is in the interval of the sampled one."""
    sampled = {
        (r["case"], r["episodes"]): r["angle"] for r in found["sampled"] if r["process"] == "retry"
    }
    # One group is one batch here; larger sampled batches have several groups.
    size = found["group_size"]
    ungrouped = ("`reinforce`", "`rebn`", "`gae`, V exact", "`gae`, V zero")
    pairs = [
        (row["angle"], sampled[row["case"], row["episodes"]])
        for row in found["exact"]
        if (row["case"], row["episodes"]) in sampled
        and (row["episodes"] == size or row["case"] in ungrouped)
    ]
    inside = sum(low - 1e-6 <= exact <= high + 1e-6 for exact, (_, low, high) in pairs)
    return f"{inside} of {len(pairs)}"


def _turn_index(found: Row) -> str:
    names = ("answer", "answer, per turn taken", "good tool")
    return markdown_table(
        ("parameter", "exact gradient", "taken by the bias", "`turn_index` in the limit"),
        [
            (
                name,
                f"{row['exact']:+.4f}",
                f"{row['taken']:+.4f}",
                f"{row['exact'] - row['taken']:+.4f}",
            )
            for name, row in zip(names, found["turn_index"], strict=True)
        ],
    )


def _trainers(trainers: Row) -> str:
    results = trainers["trainers"]
    cases: Sequence[Row] = results[0]["rows"]
    rows = []
    for number, case in enumerate(cases):
        gamma = "" if case["gamma"] == 1.0 else f", gamma {case['gamma']}"
        label = f"`{case['estimator']}`{gamma} / {case['aggregation']}"
        own = [f"{result['rows'][number]['difference']:.0e}" for result in results]
        rows.append((case["process"], label, *own))
    return markdown_table(("process", "case", *(r["trainer"] for r in results)), rows)


def _degrees(number: float) -> str:
    return "0" if number < 1e-6 else f"{number:.3g}"


def _interval(figures: Sequence[float], form: str) -> str:
    middle, low, high = (form.format(number) for number in figures)
    return f"{middle} [{low}, {high}]"
