"""The choice of the trainer under test, and fixtures of all tests.

An environment holds at most one trainer, so a run names it: ``--trainer trl`` (or the variable
``GEM_TRAINER``). Only that trainer's folder and the contract suite are then collected in addition
to the core tests, and test files import their trainer at the top of the file. A trainer that is
named but not installed is a usage error, never a skip: a run cannot pass by testing nothing.
"""

from __future__ import annotations

import atexit
import base64
import gc
import gzip
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Before any test imports torch, transformers or ray. A value that the caller set is kept.
for _key, _value in {
    "HF_HUB_OFFLINE": "1",  # tests download nothing
    "CUDA_VISIBLE_DEVICES": "",  # the suite is a CPU suite, also on a GPU machine
    "OMP_NUM_THREADS": "1",  # tiny matrices, and the same sums on every machine
    "TOKENIZERS_PARALLELISM": "false",
}.items():
    os.environ.setdefault(_key, _value)
if "RAY_TMPDIR" not in os.environ:
    # Ray joins the cluster that a file in this directory names: without one of their own, the tests
    # of one trainer would join the cluster of another's, of another version. Sockets are in it,
    # whose paths must be short.
    os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="gem-ray-", dir="/tmp")
    atexit.register(shutil.rmtree, os.environ["RAY_TMPDIR"], ignore_errors=True)

# An example that takes long says something about the machine, not about the code.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")

DISTRIBUTIONS = {
    "trl": "trl",
    "verl": "verl",
    "openrlhf": "openrlhf",
    "oat": "oat-llm",
    "rl2": "rl-square",
}
HERE = Path(__file__).resolve().parent
TORCH = (
    HERE / "adapters" / "models",
    HERE / "engines",
    HERE / "episodes" / "hf",
    HERE / "evaluation",
    HERE / "examples",
    HERE / "packaged_models",
    HERE / "tiny",
)
WITH_A_TRAINER = (HERE / "contract", *TORCH)
INTEGRATIONS = HERE / "integrations"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--trainer`` and ``--slow``."""
    group = parser.getgroup("gem-core")
    group.addoption(
        "--trainer",
        metavar="NAME",
        default=os.environ.get("GEM_TRAINER") or "none",
        help=f"trainer under test: none, {', '.join(DISTRIBUTIONS)} (default: $GEM_TRAINER, none)",
    )
    group.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; refuse a trainer that is unknown or missing, and hidden paths."""
    config.addinivalue_line(
        "markers", "slow(*trainers): takes minutes, with these trainers or all; needs --slow"
    )
    trainer = config.getoption("--trainer")
    if trainer != "none":
        _installed_version(trainer)
    for argument in config.args:
        path = (config.invocation_params.dir / str(argument).split("::")[0]).resolve()
        if _hidden(path, trainer):
            needed = next((name for name in DISTRIBUTIONS if name in path.parts), "NAME")
            raise pytest.UsageError(f"{argument} is hidden without: --trainer {needed}")


def _installed_version(trainer: str) -> str:
    if trainer not in DISTRIBUTIONS:
        raise pytest.UsageError(
            f"--trainer {trainer}: unknown; choose none, {', '.join(DISTRIBUTIONS)}"
        )
    try:
        return version(DISTRIBUTIONS[trainer])
    except PackageNotFoundError:
        raise pytest.UsageError(
            f"--trainer {trainer}: the distribution {DISTRIBUTIONS[trainer]!r} is not installed "
            f"in this environment; run: make test-{trainer}"
        ) from None


def _hidden(path: Path, trainer: str) -> bool:
    """Whether ``path`` needs a trainer that is not under test."""
    folders = [INTEGRATIONS / name for name in DISTRIBUTIONS if name != trainer]
    if trainer == "none":
        folders += WITH_A_TRAINER
    return any(folder == path or folder in path.parents for folder in folders)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Hide the other trainers' folders; leave every other decision to pytest."""
    return True if _hidden(collection_path, config.getoption("--trainer")) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the slow tests without ``--slow``; pytest reports their number."""
    if config.getoption("--slow"):
        return
    trainer = config.getoption("--trainer")
    slow = [item for item in items if _is_slow(item, trainer)]
    if slow:
        items[:] = [item for item in items if not _is_slow(item, trainer)]
        config.hook.pytest_deselected(items=slow)


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what the imports left: it is needed until the end.

    DeepSpeed and Oat ask for a collection several times in each update, which otherwise looks at
    every object of torch and the trainer.
    """
    gc.collect()
    gc.freeze()


def _is_slow(item: pytest.Item, trainer: str) -> bool:
    """Whether the item is marked slow: with every trainer, or with this one."""
    return any(not mark.args or trainer in mark.args for mark in item.iter_markers("slow"))


def pytest_report_header(config: pytest.Config) -> str:
    """Return the line that names the trainer under test and its version."""
    trainer = config.getoption("--trainer")
    installed = "" if trainer == "none" else f" {_installed_version(trainer)}"
    return f"trainer: {trainer}{installed}"


@pytest.fixture(scope="session")
def trainer_name(pytestconfig: pytest.Config) -> str:
    """The trainer under test, or "none"."""
    return str(pytestconfig.getoption("--trainer"))


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """``make_model(tied=True)``: directory of a random two-layer model over bytes."""

    def make(tied: bool = True) -> str:
        from gem_parity.small_model import write_model

        return write_model(tmp_path_factory.mktemp("model"), tied=tied)

    return make


@pytest.fixture(scope="session")
def model_dir(make_model: Callable[..., str]) -> str:
    """The model over the frozen batch's vocabulary, in Hugging Face's format."""
    return make_model()


@pytest.fixture
def unpacked() -> Callable[[str], dict[str, Any]]:
    """What an exported page of gem-core view has packed into it."""

    def unpack(html: str) -> dict[str, Any]:
        (block,) = re.findall(r'id="gem-data">([^<]*)</script>', html)
        data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(block)))
        return data

    return unpack


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """``serve()``: an `EnvServer` that ends with the test."""
    from .env_server import TOKEN, EnvServer

    monkeypatch.setenv(TOKEN, "of-the-test")
    servers: list[EnvServer] = []

    def start() -> EnvServer:
        servers.append(EnvServer())
        return servers[-1]

    yield start
    for server in servers:
        server.end()


@pytest.fixture
def peak():
    """``peak(function)``: call it; the most bytes of tensors that lived at one time meanwhile."""
    from .live_tensors import peak

    return peak


@pytest.fixture
def run_update():
    """``run_update(trainer, tokens)``: a small model's update on tensors without data."""
    from .update_without_data import run_update

    return run_update


@pytest.fixture
def plain(tmp_path: Path) -> Callable[..., Any]:
    """``plain(*arguments, faults=(), replay=True)``: the example trainer under `gem-core conform`.

    A fault is a file of its package, a text in it, and what stands in its place.
    """
    from .plain_trainer import Fault, conform

    def run(*arguments: str, faults: Any = (), replay: bool = True) -> Any:
        made = tuple(Fault(*fault) for fault in faults)
        return conform(tmp_path, *arguments, faults=made, replay=replay)

    return run


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The wheel in an environment away from the checkout, where lines of the pages are run."""
    from .away import install_away

    return install_away(tmp_path_factory.mktemp("away"))
