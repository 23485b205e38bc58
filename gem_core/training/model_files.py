"""Configuration and tokenizer of a trained model: those of the model that it was made from.

Training changes weights, nothing else. But each trainer saves in the dialect of its version of
transformers: what 5.x writes, 4.5x either cannot load (the tokenizer's class) or reads wrongly
without a word (``rope_parameters``, in whose place it takes the default ``rope_theta``). With the
files of the origin a model goes from any trainer to any other.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from gem_core.errors import RunError

TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
)
"""Files that a tokenizer may consist of."""
SHAPE = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
"""Keys of the configuration that the weights must agree with."""


def copy_source_files(origin: str, revision: str | None, model: Path) -> None:
    """Put the configuration and the tokenizer of ``origin`` in the place of those in ``model``.

    The precision that ``model`` declares for its weights stays.

    Args:
        origin: directory, or Hugging Face id of what is in the local cache, that training began at.
        revision: of a Hugging Face id.
        model: directory of the trained model.

    Raises:
        RunError: the trained model has another shape.
    """
    source = _folder(origin, revision)
    config, trained = _config(source), _config(model)
    changed = [key for key in SHAPE if config.get(key) != trained.get(key)]
    if changed:
        values = ", ".join(f"{k}: {config.get(k)} -> {trained.get(k)}" for k in changed)
        raise RunError(f"The model in {model} is not shaped like {origin} ({values}).")
    dtype = trained.get("dtype") or trained.get("torch_dtype")  # the newer and the older name
    names = {name: dtype for name in ("dtype", "torch_dtype") if dtype}
    (model / "config.json").write_text(json.dumps({**config, **names}, indent=2) + "\n", "utf-8")
    for name in TOKENIZER:
        (model / name).unlink(missing_ok=True)
        if (source / name).exists():
            shutil.copyfile(source / name, model / name)


def _folder(origin: str, revision: str | None) -> Path:
    if Path(origin).is_dir():
        return Path(origin)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(origin, revision=revision, local_files_only=True))


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config
