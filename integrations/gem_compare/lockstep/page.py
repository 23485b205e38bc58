"""The page of lockstep runs, written from their JSON files alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gem_compare.lockstep.differences import GROWTH, ROUNDING
from gem_compare.lockstep.summary import (
    MISMATCH,
    Summary,
    cause,
    common_steps,
    describe,
    divergences,
    drift_before,
    faults,
)
from gem_core.results import markdown_table
from gem_core.runs.provenance import origins


def lockstep_page(summaries: Sequence[Summary], pictures: Sequence[str] = ()) -> str:
    """Return the page in Markdown.

    Args:
        summaries: one for each experiment.
        pictures: paths of the pictures, as the page links them.
    """
    parts = [f"![{path}]({path})\n" for path in pictures]
    for summary in summaries:
        parts.append(f"## {title(summary)}\n")
        parts += sections(summary)
    return "\n".join(parts)


def title(summary: Summary) -> str:
    """Return what was run, in a few words."""
    return f"{summary['baseline']}, {summary['algorithm']}, seed {summary['seed']}"


def headline(summary: Summary) -> str:
    """Return the result in one sentence."""
    common = common_steps(summary)
    sampled = sum(summary["sampled"][:common])
    names = ", ".join(summary["runs"])
    return (
        f"{len(summary['runs'])} trainers ({names}) drew identical tokens in {common} of "
        f"{summary['steps']} training steps ({common * summary['updates_per_step']} optimizer "
        f"steps, {sampled} sampled tokens each), {summary['episodes']} episodes a step."
    )


def sections(summary: Summary) -> list[str]:
    """Return the text and tables of one experiment."""
    wrong = faults(summary)
    verdict = _BAD if wrong else _GOOD
    commits = origins(run["commit"] for run in summary["runs"].values())
    return [
        f"**{headline(summary)}**\n",
        "\n".join([verdict, *(f"- {line}" for line in wrong)]) + "\n",
        "Pairs of trainers: for how many steps the tokens are identical, and the largest "
        "differences in those steps.\n",
        markdown_table(_PAIR_HEAD, [_pair_row(pair, summary) for pair in summary["pairs"]]),
        *_mismatch(summary),
        *_divergences(summary),
        "Steps: a figure is the range over the trainers, if it is not the same.\n",
        markdown_table(_STEP_HEAD, [_step_row(summary, k) for k in range(summary["steps"])]),
        markdown_table(("trainer", "versions", "hardware", "train s"), _runs(summary)),
        f"Commits: {commits}. Rounding explains a difference of log-probabilities up to "
        f"{ROUNDING:g}, and up to {GROWTH:g} times the largest of the steps before.\n",
    ]


_GOOD = "Nothing differs by more than rounding."
_BAD = "More than rounding, or a difference that came early:"
_PAIR_HEAD = (
    "trainers",
    "identical steps",
    "evaluations",
    "log-probabilities",
    "loss",
    "gradient norm",
    "clipped share",
    "rate",
    "weights at the end",
    "weights, relative L2",
)
_STEP_HEAD = (
    "step",
    "tokens",
    "sampled",
    "success",
    "loss/policy",
    "grad_norm",
    "clip_ratio",
    "advantage/cubed",
    "lr",
)


def _pair_row(pair: dict[str, Any], summary: Summary) -> tuple[str, ...]:
    rows = {row["quantity"]: row["largest"] for row in pair["differences"]}
    names = ("log-probabilities", "loss/policy", "grad_norm", "clip_ratio", "lr")
    weights = pair["weights"]
    apart = pair["evaluation_parting"]
    evaluations = f"{pair['evaluations']} equal" if apart is None else f"part: {describe(apart)}"
    return (
        " - ".join(pair["trainers"]),
        f"{pair['identical']} of {summary['steps']}",
        evaluations,
        *(_number(rows[name]) for name in names),
        f"{_number(weights['largest'])} (`{weights['parameter']}`)",
        _number(weights["relative"]),
    )


def _mismatch(summary: Summary) -> list[str]:
    """Return how far engines and trainers were apart; nothing for a file without that."""
    rows = summary["metrics"].get(MISMATCH, {}).values()
    values = [value for row in rows for value in row if value is not None]
    return [f"`{MISMATCH}` is {max(values):.1e} at most.\n"] if values else []


def _divergences(summary: Summary) -> list[str]:
    """Return both sides of each first token at which two trainers differ."""
    blocks = []
    for pair in summary["pairs"]:
        for divergence in divergences(pair):
            lines = [f"**{' and '.join(pair['trainers'])}**: {describe(divergence)}.", ""]
            lines.append(f"Cause: {cause(divergence, drift_before(pair, divergence))}.")
            lines += ["", "```text", _last_line(divergence["observation"])]
            for side, name in enumerate(pair["trainers"]):
                lines.append(f"{name:>10}: {_side(divergence, side)}")
            blocks.append("\n".join([*lines, "```", ""]))
    return blocks


def _side(divergence: dict[str, Any], side: int) -> str:
    logprob = divergence["logprobs"][side]
    shown = "no log-probability" if logprob is None else f"log-probability {logprob:.6f}"
    return f"{divergence['texts'][side]!r}, token {divergence['tokens'][side]}, {shown}"


def _last_line(observation: str) -> str:
    lines = [line for line in observation.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _step_row(summary: Summary, place: int) -> tuple[str, ...]:
    digests = {values[place] for values in summary["tokens"].values()}
    tokens = "identical" if len(digests) == 1 else f"{len(digests)} versions"
    metrics = ("success/mean", "loss/policy", "grad_norm", "clip_ratio", "advantage/cubed", "lr")
    shown = [_range([v[place] for v in summary["metrics"][name].values()]) for name in metrics]
    return (str(place + 1), tokens, str(summary["sampled"][place]), *shown)


def _range(values: Sequence[float | None]) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return "-"
    low = f"{known[0]:.5g}"
    high = f"{known[-1]:.5g}"
    return low if low == high else f"{low} to {high}"


def _runs(summary: Summary) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, run in summary["runs"].items():
        hardware = run["hardware"]
        gpus = ", ".join(hardware["gpus"]) or "no GPU"
        versions = " ".join(f"{key} {value}" for key, value in run["versions"].items())
        where = f"{hardware['processor']}, {hardware['cores']} cores, {gpus}"
        rows.append((name, f"Python {run['python']} {versions}", where, f"{run['train_s']:.0f}"))
    return rows


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}" if value else "0"
