"""The model that OpenRLHF loads: which version of it, and whether its files have all weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from gem_core.errors import GemError

AUTO_CLASSES = ("AutoModelForCausalLM", "AutoModelForImageTextToText")
"""The names under which OpenRLHF's policy finds the class of its model."""


class _Complete:
    """One of transformers' automatic classes; weights that are missing in the files are an error.

    Args:
        auto_class: the class itself.
    """

    def __init__(self, auto_class: Any) -> None:
        self.auto_class = auto_class

    def from_pretrained(self, source: str, **options: Any) -> Any:
        """Load a model, as in transformers, which would give missing weights random values.

        Raises:
            GemError: weights are missing.
        """
        model, report = self.auto_class.from_pretrained(source, output_loading_info=True, **options)
        missing = sorted(report["missing_keys"])
        if missing:
            raise GemError(
                f"{len(missing)} weights of the model are not in the files of {source}, "
                f"{', '.join(missing[:3])} first: they would be random. Export the whole model "
                "with the names of its class, or set model.path to one that is complete."
            )
        return model


@contextmanager
def complete_weights() -> Iterator[None]:
    """Have OpenRLHF's policy refuse a model whose files lack weights."""
    from openrlhf.models import actor

    with ExitStack() as stack:
        for name in AUTO_CLASSES:
            checked = _Complete(getattr(actor, name))
            stack.enter_context(patch.object(actor, name, checked))
        yield
