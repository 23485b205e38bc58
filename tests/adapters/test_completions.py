"""What an engine returned becomes a completion, with a log-probability of every token."""

from __future__ import annotations

import pytest

from gem_core.adapters.completions import to_completion
from gem_core.errors import GemError


def test_each_token_has_its_log_probability():
    completion = to_completion([5, 6], [-0.5, -1.5], "stop", {6}, 8)
    assert (completion.token_ids, completion.logprobs) == ([5, 6], [-0.5, -1.5])


@pytest.mark.parametrize("logprobs", [None, [], [-0.5]])
def test_missing_log_probabilities_are_an_error_that_names_the_cure(logprobs):
    with pytest.raises(GemError, match=r"log-probabilities of 2 sampled tokens.*native keys"):
        to_completion([5, 6], logprobs, "stop", {6}, 8)


def test_an_engine_that_cannot_report_them_says_so():
    completion = to_completion([5, 6], None, "stop", {6}, 8, reports_logprobs=False)
    assert completion.logprobs is None
    assert to_completion([], None, "abort", {6}, 8).token_ids == []
