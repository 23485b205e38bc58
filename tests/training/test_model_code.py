"""A model that brings code is refused; OpenRLHF, Oat and RL2 would run it unasked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gem_core.env.registration.references import TRUST_VARIABLE, TrustError, trust
from gem_core.errors import GemError
from gem_core.policies.models.weights import require_complete, require_no_code
from gem_core.runs.recipe.load import load_recipe

MARK = "from pathlib import Path\nPath(__file__).with_name('marker').touch()\n"


@pytest.fixture(autouse=True)
def untrusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRUST_VARIABLE, raising=False)


def model(folder: Path, file: str = "config.json", **settings: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(json.dumps(settings))
    (folder / "configuration_evil.py").write_text(MARK)
    return folder


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("config.json", {"auto_map": {"AutoConfig": "configuration_evil.Evil"}}),
        ("config.json", {"auto_map": {"AutoConfig": "somebody/else--configuration_evil.Evil"}}),
        ("config.json", {"text_config": {"auto_map": {"AutoModel": "x.Y"}}}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["x.Y", None]}}),
        ("processor_config.json", {"auto_map": {"AutoProcessor": "x.Y"}}),
        ("adapter_config.json", {"base_model_name_or_path": "somebody/else"}),
        ("custom_generate/generate.py", {}),
    ],
)
def test_it_is_refused_before_anything_of_it_is_loaded(
    file: str, settings: dict[str, object], tmp_path: Path
) -> None:
    folder = model(tmp_path / "model", file, **settings)
    with pytest.raises(TrustError, match=rf"model.path: .* brings code \({file}\).*--trust"):
        require_no_code(folder)
    recipe = load_recipe("guess-the-number-easy", "tiny", [f"model.path={folder}"])
    with pytest.raises(TrustError, match="brings code"):
        require_complete(recipe)
    assert not (folder / "marker").exists()
    with trust(True):
        require_no_code(folder)


def test_code_that_is_named_in_escapes_is_found(tmp_path: Path) -> None:
    folder = model(tmp_path / "model")
    (folder / "config.json").write_text(r'{"auto_\u006dap": {"AutoConfig": "x.Y"}}')
    with pytest.raises(TrustError, match="brings code"):
        require_no_code(folder)


def test_a_model_without_code_passes(tmp_path: Path) -> None:
    require_no_code(model(tmp_path / "model", "tokenizer_config.json", eos_token="x"))
    require_no_code("somebody/not-in-the-cache")  # what loads it says that there is none
    assert issubclass(TrustError, GemError)
