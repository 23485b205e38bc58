"""Give a trained model the configuration and tokenizer files of the model that it was trained from.

Training changes only the weights. But each trainer saves files in the format of its version of
transformers: version 4.5x either cannot load what 5.x writes (the tokenizer's class), or silently
misreads it (it ignores ``rope_parameters`` and uses the default ``rope_theta``). With the files of
the original model, a model can be passed from any trainer to any other.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from gem_core.errors import RunError
from gem_core.runs.generation_config import GENERATION

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
"""The files that a tokenizer may have."""
ORIGIN = "origin.json"
"""The file of a model's folder that says what the model was made from."""
SHAPE = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
"""Keys of the configuration that must match the weights."""


def copy_source_files(origin: str, revision: str | None, model: Path) -> None:
    """Replace the configuration and the tokenizer in ``model`` by those of ``origin``.

    The precision that ``model`` declares for its weights stays. `GENERATION`, which each
    trainer writes anew, and `ORIGIN` are those of ``origin``, too.

    Args:
        origin: the model that training started from: a directory, or a Hugging Face id whose files
            are in the local cache.
        revision: revision of a Hugging Face id.
        model: directory of the trained model.

    Raises:
        RunError: the trained model has another shape.
    """
    source = _folder(origin, revision)
    config = _config(source)
    trained = _config(model)
    changed = [key for key in SHAPE if config.get(key) != trained.get(key)]
    if changed:
        values = ", ".join(f"{k}: {config.get(k)} -> {trained.get(k)}" for k in changed)
        raise RunError(f"The model in {model} has another shape than {origin} ({values}).")
    dtype = trained.get("dtype") or trained.get("torch_dtype")  # the newer and the older name
    if dtype:
        config = {**config, "dtype": dtype, "torch_dtype": dtype}
    (model / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    for name in (*TOKENIZER, GENERATION, ORIGIN):
        (model / name).unlink(missing_ok=True)
        if (source / name).exists():
            shutil.copyfile(source / name, model / name)


def origin_of(source: str) -> dict[str, Any] | None:
    """Return what a model's folder says that it is made from; ``None`` if it says nothing.

    Raises:
        RunError: the file is damaged.
    """
    file = Path(source, ORIGIN)
    if not file.is_file():
        return None
    try:
        origin = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        origin = None
    if not isinstance(origin, dict):
        raise RunError(f"{file} is not a JSON object: restore it, or delete it.")
    return origin


def _folder(origin: str, revision: str | None) -> Path:
    if Path(origin).is_dir():
        return Path(origin)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(origin, revision=revision, local_files_only=True))


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config
