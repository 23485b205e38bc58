"""Many compositions of one configuration, as hydra makes them, in the time of one."""

from __future__ import annotations

import pickle
from functools import cache

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf


@cache
def _defaults(compose_native):
    """Pickled, because a copy of the nodes themselves takes several times as long."""
    return pickle.dumps(compose_native([]))


@cache
def _parsed(override):
    """Most recipes have most overrides in common, and hydra's parser is slow."""
    (parsed,) = OverridesParser.create().parse_overrides(overrides=[override])
    return parsed


def compose(compose_native, overrides):
    """The configuration with ``overrides``, by hydra's own parser and update.

    Reading the files takes hydra a second. `test_native_fuzz.py` holds some results against those
    of ``compose_native`` itself.
    """
    config = pickle.loads(_defaults(compose_native))
    ConfigLoaderImpl._apply_overrides_to_config([_parsed(text) for text in overrides], config)
    return config


def value(config, path):
    """The value at ``path``, references resolved; it must be there."""
    found = OmegaConf.select(config, path, throw_on_resolution_failure=True, throw_on_missing=True)
    if found is None:
        table, _, name = path.rpartition(".")
        assert name in OmegaConf.select(config, table), path
    return OmegaConf.to_container(found) if OmegaConf.is_config(found) else found
