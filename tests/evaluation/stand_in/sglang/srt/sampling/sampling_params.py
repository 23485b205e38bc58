"""The sampling parameters of SGLang 0.5.2 that an evaluation may set; there is none for a seed."""

from __future__ import annotations


class SamplingParams:
    """Names and defaults are SGLang's."""

    def __init__(
        self,
        max_new_tokens=128,
        stop_token_ids=None,
        temperature=1.0,
        top_p=1.0,
        top_k=-1,
        ignore_eos=False,
        no_stop_trim=False,
    ):
        self.max_new_tokens = max_new_tokens
        self.stop_token_ids = stop_token_ids
        self.temperature = temperature
        self.top_p = top_p
        self.top_k = top_k
        self.ignore_eos = ignore_eos
        self.no_stop_trim = no_stop_trim
