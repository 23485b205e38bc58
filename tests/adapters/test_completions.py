"""What an engine returned becomes a completion, with a log-probability of every token."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gem_core.episodes.data import FinishReason
from gem_core.errors import GemError
from gem_core.policies.completions import to_completion, vllm_completion


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


def vllm_output(reason):
    """Three tokens, of which the last one's log-probability is missing where vLLM gave up."""
    tables = [{token: SimpleNamespace(logprob=-0.5)} for token in (5, 6, 7)]
    if reason in ("abort", "error"):
        tables = tables[:-1]
    return SimpleNamespace(token_ids=[5, 6, 7], logprobs=tables, finish_reason=reason)


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_of_a_request_that_failed_in_the_engine_nothing_is_used(reason):
    completion = vllm_completion(vllm_output(reason), {6}, 8)
    assert (completion.token_ids, completion.finish_reason) == ([], FinishReason.ABORT)


def test_an_action_that_vllm_stops_for_repeating_itself_was_cut_off():
    completion = vllm_completion(vllm_output("repetition"), {6}, 8)  # neither stopped nor capped
    assert (completion.token_ids, completion.finish_reason) == ([5, 6, 7], FinishReason.LENGTH)
