"""Counters of a server in the text format that Prometheus reads."""

from __future__ import annotations

from collections import Counter

BUCKETS_S = (0.001, 0.01, 0.1, 1.0, 10.0)
_HELP = {
    "sessions_opened_total": "Sessions that were opened.",
    "sessions_closed_total": "Sessions that were closed, by reason.",
    "requests_total": "Messages that were answered, by type.",
    "errors_total": "Messages that were answered with an error, by code.",
    "refused_total": "Connections that were refused, by reason.",
}


class ServerMetrics:
    """What a server counts. Used from the server's event loop only."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in _HELP}
        self._calls = [0] * (len(BUCKETS_S) + 1)
        self._call_seconds = 0.0

    def count(self, name: str, label: str = "") -> None:
        """Add one to a counter; ``label`` is the value of its only label, if it has one."""
        self._counts[name][label] += 1

    def observe_call(self, seconds: float) -> None:
        """Record how long a call of an environment took."""
        bucket = sum(seconds > bound for bound in BUCKETS_S)
        self._calls[bucket] += 1
        self._call_seconds += seconds

    def text(self, **gauges: float) -> str:
        """Return everything as text; ``gauges`` are values of this moment."""
        lines = []
        for name, value in gauges.items():
            lines += [f"# TYPE gem_core_{name} gauge", f"gem_core_{name} {value:g}"]
        for name, counts in self._counts.items():
            lines += [f"# HELP gem_core_{name} {_HELP[name]}", f"# TYPE gem_core_{name} counter"]
            for label, number in sorted((counts or {"": 0}).items()):
                shown = f'{{kind="{label}"}}' if label else ""
                lines.append(f"gem_core_{name}{shown} {number}")
        return "\n".join([*lines, *self._histogram()]) + "\n"

    def _histogram(self) -> list[str]:
        name = "gem_core_call_seconds"
        lines = [f"# HELP {name} Wall seconds of a call.", f"# TYPE {name} histogram"]
        total = 0
        for bound, number in zip((*BUCKETS_S, "+Inf"), self._calls, strict=True):
            total += number
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [*lines, f"{name}_sum {self._call_seconds:.6f}", f"{name}_count {total}"]
