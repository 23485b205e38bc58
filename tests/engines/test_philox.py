"""The generator: the authors' known answers, and rows that do not depend on each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gem_core.policies.engine.philox import philox, uniforms, uniforms_on

ONES = 0xFFFFFFFF
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
"""Counter, key and output: ``kat_vectors`` of Random123, philox4x32 with ten rounds."""


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_the_known_answers(counter, key, words):
    counters = np.array(counter, np.uint64).reshape(4, 1, 1)
    found = philox(counters, np.array(key, np.uint64).reshape(2, 1))
    assert tuple(int(word[0, 0]) for word in found) == words


def test_a_row_depends_on_its_seed_and_position_alone():
    seeds = [3, 2**62 + 7, 3, 11]
    positions = [0, 5, 1, 2**20]
    together = uniforms(seeds, positions, 50_000)
    for row, (seed, position) in enumerate(zip(seeds, positions, strict=True)):
        assert np.array_equal(uniforms([seed], [position], 50_000)[0], together[row])
        assert np.array_equal(uniforms([seed], [position], 77)[0], together[row, :77])
    assert len({float(row[0]) for row in together}) == 4


def test_the_tensors_of_a_device_have_the_same_numbers():
    seeds = [1, 2**63 - 1, 2**63 + 5]
    numbers = uniforms_on(torch.device("cpu"), seeds, [0, 1, 2], 1001)
    assert np.array_equal(numbers.numpy(), uniforms(seeds, [0, 1, 2], 1001))


def test_the_numbers_lie_inside_the_unit_interval_and_are_uniform():
    numbers = uniforms(range(100), [0] * 100, 10_000).ravel()
    assert numbers.min() > 0 and numbers.max() < 1
    counts = np.histogram(numbers, bins=1000, range=(0, 1))[0]
    chi_square = ((counts - 1000) ** 2 / 1000).sum()
    assert abs(chi_square - 999) < 5 * np.sqrt(2 * 999)
