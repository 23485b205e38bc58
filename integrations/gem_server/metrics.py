"""Counters of a server, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

BUCKETS_S = (0.001, 0.01, 0.1, 1.0, 10.0)
_COUNTERS = {
    "sessions_opened_total": ("Sessions that were opened.", ()),
    "sessions_closed_total": ("Sessions that were closed, by reason.", ("kind",)),
    "requests_total": ("Messages that were answered, by type.", ("kind",)),
    "errors_total": ("Messages that were answered with an error, by code.", ("kind",)),
    "refused_total": ("Connections that were refused, by reason.", ("kind",)),
}
_GAUGES = {
    "sessions": "Sessions that are open, or are being opened.",
    "hung_calls": "Calls that passed their deadline and still run.",
}


class ServerMetrics:
    """What a server counts."""

    def __init__(self) -> None:
        registry = CollectorRegistry()  # of this server: a process may have several
        self._registry = registry
        self._gauges = {
            name: Gauge(f"gem_core_{name}", text, registry=registry)
            for name, text in _GAUGES.items()
        }
        self._counters = {
            name: Counter(f"gem_core_{name}", text, labels, registry=registry)
            for name, (text, labels) in _COUNTERS.items()
        }
        text = "Wall seconds of a call."
        self._calls = Histogram("gem_core_call_seconds", text, buckets=BUCKETS_S, registry=registry)

    def count(self, name: str, kind: str = "") -> None:
        """Add one to a counter; ``kind`` is the value of its only label, if it has one."""
        counter = self._counters[name]
        (counter.labels(kind) if kind else counter).inc()

    def observe_call(self, seconds: float) -> None:
        """Record how long a call of an environment took."""
        self._calls.observe(seconds)

    def encode(self, accept: str = "", **gauges: float) -> tuple[bytes, str]:
        """Return everything, and the content type.

        Args:
            accept: the formats that the reader takes, as in the header ``Accept``.
            gauges: values of this moment.
        """
        for name, value in gauges.items():
            self._gauges[name].set(value)
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
