"""What Prometheus reads: names, labels and values, in the formats that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_open_metrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_text

from gem_server.metrics import ServerMetrics

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


def values(families: Iterable[Metric]) -> dict[tuple[str, str], float]:
    """Return each value by its name and that of its label."""
    samples = [sample for family in families for sample in family.samples]
    return {(one.name, "".join(one.labels.values())): one.value for one in samples}


def test_names_labels_and_values() -> None:
    metrics = ServerMetrics()
    metrics.count("sessions_opened_total")
    metrics.count("requests_total", "step")
    metrics.count("requests_total", "step")
    content, content_type = metrics.encode(sessions=3, hung_calls=1)
    assert content_type.startswith("text/plain; version=0.0.4")
    assert b'gem_core_requests_total{kind="step"} 2.0\n' in content
    read = values(read_text(content.decode()))
    assert read["gem_core_sessions", ""] == 3
    assert read["gem_core_hung_calls", ""] == 1
    assert read["gem_core_sessions_opened_total", ""] == 1


def test_buckets_add_up() -> None:
    metrics = ServerMetrics()
    for seconds in (0.001, 0.005, 0.5, 100.0):
        metrics.observe_call(seconds)
    read = values(read_text(metrics.encode()[0].decode()))
    buckets = {label: n for (name, label), n in read.items() if name.endswith("_bucket")}
    assert buckets == {"0.001": 1, "0.01": 2, "0.1": 2, "1.0": 3, "10.0": 3, "+Inf": 4}
    assert read["gem_core_call_seconds_count", ""] == 4
    assert read["gem_core_call_seconds_sum", ""] == 100.506


def test_two_servers_of_a_process_count_apart() -> None:
    first, second = ServerMetrics(), ServerMetrics()
    first.count("sessions_opened_total")
    read = values(read_text(second.encode()[0].decode()))
    assert read["gem_core_sessions_opened_total", ""] == 0


def test_a_server_answers_in_the_format_that_is_asked_for(start: Callable[..., Any]) -> None:
    server = start()
    server.http("/sessions", b'{"environment": "game:GuessTheNumber-v0-easy"}', "POST")
    status, text = server.http("/metrics", Accept=OPEN_METRICS)
    assert status == 200
    assert text.endswith("# EOF\n")
    assert values(read_open_metrics(text))["gem_core_sessions", ""] == 1
