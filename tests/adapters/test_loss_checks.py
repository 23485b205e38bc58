"""What stops a run: losses and norms of gradients that are not finite."""

from __future__ import annotations

import math

import pytest

from gem_adapters.loss_checks import CHECKED, require_finite
from gem_core.errors import GemError


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stops_the_run(name, value):
    with pytest.raises(GemError, match=f"{name} is {value} in step 7"):
        require_finite(7, {name: value})


def test_a_negative_norm_is_deepspeeds_mark_of_one_that_is_not_finite():
    with pytest.raises(GemError, match=r"grad_norm is -1\.0 in step 7"):
        require_finite(7, {"grad_norm": -1.0})
    require_finite(7, {"loss/policy": -1.0, "grad_norm": 0.0, "grad_norm/critic": 2.0})
