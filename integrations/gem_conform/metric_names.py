"""Names of the metrics in ``metrics.jsonl``: each has one meaning, the same in every trainer.

``docs/metrics.md`` is generated from `METRICS`. A trainer that cannot give a figure as it is
defined here leaves the name out; a figure of its own has another name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Metric(NamedTuple):
    """What a name means.

    Attributes:
        meaning: one sentence or two.
        unit: of the number; "" for a pure number.
        when: when the name is there; "always" = in each line of every trainer.
    """

    meaning: str
    unit: str = ""
    when: str = "always"


_CRITIC = "with a critic"
_ROWS = "Oat; TRL and OpenRLHF where an episode may have several rows"
_SUMMARIES = 'in a batch with summaries, of ``context.history = "compact"``'
_REPORTED = "where the trainer reports it"
_VERSIONED = "in the five trainers of gem-core"
_UPDATE = "Mean over the step's optimizer steps of "
METRICS: dict[str, Metric] = {
    "step": Metric("Number of the training step, from 1."),
    "time": Metric("When the line was written, as Unix time.", "s"),
    "episodes": Metric("Episodes of the batch, over all ranks.", "episodes"),
    "episodes/untrained": Metric("Episodes without a trained token.", "episodes"),
    "reward/mean": Metric("Mean over the episodes of the undiscounted sum of their rewards."),
    "reward/std": Metric("Standard deviation of those sums over the episodes (divisor n)."),
    "reward/turn_mean": Metric("Mean reward of all turns of the batch."),
    "success/mean": Metric("Share of the episodes whose environment reported success.", "share"),
    "turns/mean": Metric("Turns per episode, without summaries.", "turns"),
    "turns/total": Metric("Turns of the batch, without summaries.", "turns"),
    "turns/invalid": Metric("Share of the turns whose action the environment refused.", "share"),
    "turns/cut": Metric("Share of the turns whose action was cut at its token cap.", "share"),
    "turns/masked": Metric(
        "Turns that are not trained on and in no statistic, because their episode failed.", "turns"
    ),
    "tokens/action": Metric("Sampled tokens per episode.", "tokens"),
    "tokens/all": Metric("Tokens of all sequences per episode.", "tokens"),
    "stop/terminated": Metric(
        "Share of the episodes that ended so; there is one name for each stop reason.", "share"
    ),
    "advantage/mean": Metric("Mean advantage of the trained turns, before any loss."),
    "advantage/std": Metric("Standard deviation of those advantages (divisor n)."),
    "advantage/cubed": Metric(
        "Mean of their cubes, which ReBN does not fix as it fixes mean and spread."
    ),
    "advantage/constant": Metric(
        "1 where all advantages are 0, so that nothing can be learned from the batch.", "0 or 1"
    ),
    "groups/singleton": Metric("Groups of one trained episode.", "groups"),
    "loss/policy": Metric(
        _UPDATE + "the clipped surrogate loss, aggregated by ``algorithm.loss_aggregation``; "
        "without the KL term and the entropy bonus, with the weights of "
        "``algorithm.rollout_correction``."
    ),
    "loss/value": Metric(
        _UPDATE + "the critic's loss as it is differentiated: half the squared error.",
        "",
        _CRITIC,
    ),
    "grad_norm": Metric(
        _UPDATE + "the L2 norm of the policy's gradient, over all weights, before clipping."
    ),
    "grad_norm/critic": Metric(_UPDATE + "the same of the critic.", "", _CRITIC),
    "clip_ratio": Metric(
        _UPDATE + "the share of action tokens on which the clip takes the gradient away: ratio "
        "above 1 + ``clip_high`` and advantage positive, or below 1 - ``clip_low`` and negative.",
        "share",
    ),
    "entropy": Metric(
        _UPDATE + "the mean entropy of the policy's distribution over the action tokens.", "nats"
    ),
    "kl": Metric(
        _UPDATE + "the mean over the action tokens of exp(d) - 1 - d with d = log-probability by "
        "the initial model less that by the policy (the estimator k3).",
        "nats",
        "with ``algorithm.kl_coef``",
    ),
    "lr": Metric("Learning rate of the step's last optimizer step."),
    "rollout/logprob_difference": Metric(
        "Mean over the action tokens of the absolute difference between the log-probability that "
        "the engine reported and the one that the trainer computes before the step's first update; "
        "about 1e-6 on a CPU. It grows when the engine has old weights, and is large where the "
        "engine cuts tokens off (``sampling.top_p``, ``top_k``) and ``sampling.support`` is "
        "``all``.",
        "nats",
        "always; not with TRL's own generation by transformers, which reports none",
    ),
    "rollout/staleness": Metric(
        "Mean over the action tokens of how many training steps older the weights that sampled "
        "them are than those that the step begins with.",
        "steps",
        _VERSIONED,
    ),
    "rollout/staleness_max": Metric("The largest of them.", "steps", _VERSIONED),
    "rows/all": Metric("Rows of a step, padding included.", "rows", _ROWS),
    "rows/masked": Metric("Rows of them that are not trained on.", "rows", _ROWS),
    "rollout/filtered": Metric(
        "Share of the action tokens whose weight was cut at its cap.",
        "share",
        "OpenRLHF, with ``algorithm.rollout_correction``",
    ),
    "summary/mean": Metric("Summaries per episode.", "summaries", _SUMMARIES),
    "summary/tokens": Metric("Sampled tokens per summary.", "tokens", _SUMMARIES),
    "summary/cut": Metric("Share of the summaries cut at their token cap.", "share", _SUMMARIES),
    "tool/calls": Metric("Calls of tools per episode.", "calls", "with tools"),
    "tool/used": Metric("Share of the episodes with a call.", "share", "with tools"),
    "tool/failed": Metric("Share of the calls that failed.", "share", "with tools"),
    "time/env": Metric("Time in environments, summed over the episodes.", "s"),
    "time/tool": Metric("Time in tools, summed over the calls.", "s", "with tools"),
    "time/step": Metric("Wall time of the training step.", "s"),
    "time/rollout": Metric("Wall time of playing its episodes.", "s"),
    "time/update": Metric("Wall time of its optimizer steps.", "s"),
    "time/sync": Metric("Wall time of sending weights to the engine.", "s", _REPORTED),
    "time/experience": Metric("Wall time of the forward passes before it.", "s", _REPORTED),
    "time/logprobs": Metric("Wall time of the forward pass before it.", "s", _REPORTED),
    "time/checkpoint": Metric("Wall time of saving.", "s", _REPORTED),
}
"""Name -> its meaning."""

COMMON = frozenset(
    name
    for name, metric in METRICS.items()
    if metric.when.startswith("always") and name not in ("step", "time")
)
"""The metrics in each line of ``metrics.jsonl``, under the same names in every trainer."""
PREFIXES = ("stop/", "env/")
"""What the names of families begin with: one per stop reason; all of one environment's metrics."""


def undefined(names: Iterable[str]) -> list[str]:
    """Return those of ``names`` that are not in `METRICS`, nor of a family of it, in order."""
    return sorted(name for name in names if name not in METRICS and not name.startswith(PREFIXES))
