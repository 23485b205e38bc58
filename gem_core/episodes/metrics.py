"""The metrics that are computed from episodes alone; ``docs/metrics.md`` has all."""

from __future__ import annotations

from collections.abc import Sequence

from gem_core.episodes.data import Episode, StopReason


def episode_metrics(episodes: Sequence[Episode], prefix: str = "") -> dict[str, float]:
    """Compute the metrics of a batch of episodes.

    Rewards are undiscounted sums per episode. ``tokens/*`` are means per episode;
    ``tokens/action`` counts sampled tokens only. ``turns/*`` and ``reward/turn_mean`` count no
    summaries, whose own metrics are ``summary/*``, where there are some. ``stop/*`` are the shares
    of the stop reasons in the batch. With several environments, each metric is repeated as
    ``env/<id>/<metric>``. Episodes with tools add ``tool/calls`` (mean per episode), ``tool/used``
    (share of episodes with a call), ``tool/failed`` (share of calls that failed) and ``time/tool``
    (sum).

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
    turns = [turn for episode in episodes for turn in episode.acts]
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
        "turns/masked": float(sum(turn.aborted for turn in turns)),
        "episodes/untrained": float(sum(not _is_trained(episode) for episode in episodes)),
        "tokens/action": sum(e.action_tokens for e in episodes) / count,
        "tokens/all": sum(len(s.token_ids) for e in episodes for s in e.segments) / count,
        "time/env": sum(e.seconds.get("env", 0.0) for e in episodes),
    }
    metrics |= _tool_metrics(episodes) | _summary_metrics(episodes)
    for reason in StopReason:
        share = sum(episode.stop_reason is reason for episode in episodes) / count
        metrics[f"stop/{reason.value}"] = share
    return metrics


def _is_trained(episode: Episode) -> bool:
    return any(any(segment.loss_mask) for segment in episode.segments)


def _summary_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the metrics of the turns in which a policy summed up, where there are some."""
    tokens = [
        end - start
        for episode in episodes
        for _, turn, start, end in episode.spans()
        if episode.turns[turn].kind == "summary"
    ]
    turns = [turn for episode in episodes for turn in episode.turns if turn.kind == "summary"]
    if not turns:
        return {}
    return {
        "summary/mean": len(turns) / len(episodes),
        "summary/tokens": sum(tokens) / len(turns),
        "summary/cut": sum(turn.finish_reason.value == "length" for turn in turns) / len(turns),
    }


def _tool_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the counters of tools, where an environment has some (`gem_core.tools.ToolEnv`)."""
    counted = [
        [turn.info for turn in episode.turns if "tool_calls" in turn.info] for episode in episodes
    ]
    last = [infos[-1] for infos in counted if infos]
    if not last:
        return {}
    calls = sum(info["tool_calls"] for info in last)
    return {
        "tool/calls": calls / len(last),
        "tool/used": sum(info["tool_calls"] > 0 for info in last) / len(last),
        "tool/failed": sum(info["tool_failures"] for info in last) / max(1, calls),
        "time/tool": sum(info["tool_seconds"] for info in last),
    }
