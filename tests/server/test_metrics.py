"""The text for Prometheus, as its format defines it."""

from __future__ import annotations

import re

from gem_core.execution.server.metrics import ServerMetrics

LINE = re.compile(r'[a-z_]+(\{[a-z]+="[^"\n]*"\})? -?[0-9.e+-]+')


def test_every_line_is_a_comment_or_a_value() -> None:
    metrics = ServerMetrics()
    metrics.count("requests_total", "step")
    metrics.count("requests_total", "step")
    metrics.observe_call(0.005)
    metrics.observe_call(100.0)
    text = metrics.text(sessions=3)
    assert text.endswith("\n")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in lines), lines
    assert 'gem_core_requests_total{kind="step"} 2' in lines
    assert "gem_core_sessions 3" in lines


def test_buckets_add_up() -> None:
    metrics = ServerMetrics()
    for seconds in (0.001, 0.005, 0.5, 100.0):
        metrics.observe_call(seconds)
    text = metrics.text()
    buckets = re.findall(r'_bucket\{le="([^"]+)"\} (\d+)', text)
    assert buckets == [
        ("0.001", "1"),
        ("0.01", "2"),
        ("0.1", "2"),
        ("1.0", "3"),
        ("10.0", "3"),
        ("+Inf", "4"),
    ]
    assert "gem_core_call_seconds_count 4" in text
    assert "gem_core_call_seconds_sum 100.506000" in text
