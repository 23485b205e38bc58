"""What the engine of each trainer samples with: the model without dropout, every stop token."""

from __future__ import annotations

import pytest

from gem_conform.candidate import Candidate
from gem_conform.sampled import check_sampling


@pytest.mark.slow("oat", "openrlhf", "rl2", "verl")
def test_evaluations_have_no_dropout_and_actions_end_at_every_stop_token(trainer_name, tmp_path):
    assert "end at either stop token" in check_sampling(Candidate(trainer_name, tmp_path))
