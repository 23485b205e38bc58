"""sglang gets a request's seed only where it has a field for it."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from gem_adapters import request_seeds


class Newer:
    def __init__(self, temperature=1.0, sampling_seed=None):
        pass


class Older:
    def __init__(self, temperature=1.0):
        pass


@pytest.fixture
def installed(monkeypatch):
    """``installed(parameters)``: an sglang whose ``SamplingParams`` is this class."""

    def install(parameters):
        name = "sglang"
        for part in ("", ".srt", ".sampling", ".sampling_params"):
            name += part
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        sys.modules[name].SamplingParams = parameters
        request_seeds._has_field.cache_clear()

    yield install
    request_seeds._has_field.cache_clear()


def test_a_version_with_the_field(installed):
    installed(Newer)
    assert request_seeds.sglang_seed(7) == {"sampling_seed": 7}


def test_a_version_without_it_refuses_unknown_fields(installed):
    installed(Older)
    assert request_seeds.sglang_seed(7) == {}
