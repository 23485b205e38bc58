"""The common metric names, and the metrics that are computed from episodes alone."""

from __future__ import annotations

from collections.abc import Sequence

from gem_core.episodes.data import Episode, StopReason

COMMON = frozenset({
    "episodes", "reward/mean", "reward/std", "reward/turn_mean", "success/mean",
    "turns/mean", "turns/total", "turns/invalid", "turns/cut", "turns/masked",
    "tokens/action", "tokens/all", "time/env", "stop/terminated",
    "advantage/mean", "advantage/std", "loss/policy", "grad_norm",
    "entropy", "clip_ratio", "lr",
    "time/step", "time/rollout", "time/update",
})  # fmt: skip
"""The metrics in each line of ``metrics.jsonl``, under the same names in every trainer.

``clip_ratio`` is the share of action tokens whose ratio the PPO clip changed, ``lr`` the learning
rate after the step (in TRL that of its last optimizer step). Times are in seconds.
"""


def episode_metrics(episodes: Sequence[Episode], prefix: str = "") -> dict[str, float]:
    """Compute the metrics of a batch of episodes.

    Rewards are undiscounted sums per episode. ``tokens/*`` are means per episode;
    ``tokens/action`` counts sampled tokens only. ``stop/*`` are the shares of the stop reasons in
    the batch. With several environments, each metric is repeated as ``env/<id>/<metric>``.

    Args:
        episodes: at least one episode.
        prefix: prepended to every name, e.g. ``"eval/"``.
    """
    metrics = _of(episodes)
    ids = sorted({episode.env_id for episode in episodes})
    if len(ids) > 1:
        for env_id in ids:
            of_env = _of([e for e in episodes if e.env_id == env_id])
            metrics |= {f"env/{env_id}/{key}": value for key, value in of_env.items()}
    return {prefix + key: value for key, value in metrics.items()}


def _of(episodes: Sequence[Episode]) -> dict[str, float]:
    count = len(episodes)
    turns = [turn for episode in episodes for turn in episode.turns]
    rewards = [episode.total_reward for episode in episodes]
    mean = sum(rewards) / count
    metrics = {
        "episodes": float(count),
        "reward/mean": mean,
        "reward/std": (sum((r - mean) ** 2 for r in rewards) / count) ** 0.5,
        "reward/turn_mean": sum(t.reward for t in turns) / max(1, len(turns)),
        "success/mean": sum(episode.success for episode in episodes) / count,
        "turns/mean": len(turns) / count,
        "turns/total": float(len(turns)),
        "turns/invalid": sum("error" in t.info for t in turns) / max(1, len(turns)),
        "turns/cut": sum(t.finish_reason.value == "length" for t in turns) / max(1, len(turns)),
        "tokens/action": sum(e.action_tokens for e in episodes) / count,
        "tokens/all": sum(len(s.token_ids) for e in episodes for s in e.segments) / count,
        "time/env": sum(e.seconds.get("env", 0.0) for e in episodes),
    }
    for reason in StopReason:
        share = sum(episode.stop_reason is reason for episode in episodes) / count
        metrics[f"stop/{reason.value}"] = share
    return metrics
