"""Every id on an installation without extras: it works, or it names the one extra it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest

import gem_core

ROOT = Path(gem_core.__file__).resolve().parent.parent
REQUIRED = ("msgspec", "numpy")
"""What `pip install gem-core` brings."""
EXTRA_OF = {"rg": "rg", "webshop": "webshop", "mcp": "mcp", "math": "math"}
MATHEMATICS = {f"eval:{name}" for name in ("MATH500", "AMC", "OlympiadBench", "Minerva", "AIME24")}

PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1]) + [p for p in sys.path if "site-packages" not in p]
import random, warnings, gem_core.errors
warnings.simplefilter("ignore")
import gem_core
results = {}
for name in gem_core.list_envs():
    try:
        env = gem_core.make(name)
        env.reset(seed=0)
        env.step(env.random_action(random.Random(0)))
        results[name] = "works"
    except gem_core.errors.MissingDependencyError as error:
        results[name] = str(error)
    except Exception as error:
        results[name] = f"BROKEN {type(error).__name__}: {error}"
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The result of every id in an interpreter that sees the required packages only."""
    folder = tmp_path_factory.mktemp("site")
    for name in REQUIRED:
        spec = find_spec(name)
        assert spec is not None and spec.origin is not None
        package = Path(spec.origin).parent
        (folder / name).symlink_to(package)
        libraries = package.parent / f"{name}.libs"
        if libraries.is_dir():
            (folder / libraries.name).symlink_to(libraries)
    # The entry points of gem-core are part of its installation.
    (metadata,) = (file for file in distribution("gem-core").files or () if file.name == "METADATA")
    described = Path(str(metadata.locate())).parent
    (folder / described.name).symlink_to(described)
    paths = json.dumps([str(ROOT), str(ROOT / "integrations"), str(folder)])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, paths],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, str] = json.loads(done.stdout)
    return results


def test_every_id_works_or_names_its_one_extra(outcome: dict[str, str]) -> None:
    assert set(outcome) >= set(gem_core.list_envs("rg:*")) | set(gem_core.list_envs("game:*"))
    for env_id, result in outcome.items():
        extra = "math" if env_id in MATHEMATICS else EXTRA_OF.get(env_id.partition(":")[0])
        if extra is None:
            assert result == "works", (env_id, result)
        else:
            assert f"pip install 'gem-core[{extra}]'" in result, (env_id, result)
            assert result.count("gem-core[") == 1


def test_the_extras_exist() -> None:
    if sys.version_info < (3, 11):
        import tomli as tomllib
    else:
        import tomllib
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"rg", "math", "data", "webshop", "endpoint"} <= set(project["optional-dependencies"])


def test_listing_imports_no_extra() -> None:
    program = (
        "import sys, gem_core; gem_core.list_envs(); gem_core.spec('rg:chain_sum')\n"
        "heavy = {'reasoning_gym', 'datasets', 'pyarrow', 'math_verify', 'sympy', 'bm25s'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
