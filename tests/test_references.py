"""What names code and comes as data: recipes, runs and requests, with and without ``--trust``."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import import_graph

import gem_core
from gem_core.cli import main
from gem_core.env.registration import make_from_data, references
from gem_core.env.registration.references import (
    TRUST_VARIABLE,
    CodeReferenceError,
    TrustError,
    from_data,
    resolve_class,
    resolve_function,
    trust,
)
from gem_core.envs.multi_agent.base import MultiAgentEnv
from gem_core.envs.multi_agent.dialogue import UserSimulator
from gem_core.runs.directory.run_dir import RunDir
from gem_core.runs.environments.data import make_for_run
from gem_core.runs.environments.tools import with_tools
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict
from gem_core.runs.recipe.tables import EnvConfig
from gem_core.runs.recipe.trust import names_code

ROOT = Path(__file__).resolve().parents[1]
NIM = "multi:Nim-v0-easy"
OWN_NIM = "gem_core.envs.multi_agent.games:Nim"
STRANGER = """
from pathlib import Path
Path(__file__).with_name("marker").touch()
from os import system
from gem_core.envs.multi_agent.base import MultiAgentEnv
from gem_core.envs.multi_agent.dialogue import ScriptedUser
from gem_core.envs.multi_agent.games import Nim
class Game(Nim):
    pass
class User(ScriptedUser):
    pass
class NoGame:
    pass
def opponent(game, rng):
    return game.legal_moves()[0]
def no_opponent():
    return ""
def estimate(batch, *, gamma, lam, reduce):
    return batch.rewards
"""


@pytest.fixture(autouse=True)
def untrusted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(TRUST_VARIABLE, raising=False)
    references._packages.cache_clear()
    yield
    references._packages.cache_clear()


@pytest.fixture
def stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[..., str]:
    """Return a function that puts a module on the path; its import leaves a mark."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(name: str, *, plugin: bool = False) -> str:
        (tmp_path / f"{name}.py").write_text(STRANGER)
        request.addfinalizer(lambda: sys.modules.pop(name, None))
        if plugin:
            info = tmp_path / f"{name}-1.0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            (info / "entry_points.txt").write_text(f"[gem_core.tools]\nx = {name}:NoGame\n")
        return name

    return put


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


def test_data_name_only_what_a_plugin_defines(stranger: Callable[..., str], marker: Path) -> None:
    module = stranger("a_stranger")
    for kwargs in (
        {"game": f"{module}:Game"},
        {"opponent": f"{module}:opponent"},
        {"game": "subprocess:Popen"},
        {"opponent": "os:system"},
    ):
        with pytest.raises(TrustError, match=r"give --trust to the command") as refused:
            make_from_data(NIM, kwargs)
        assert "\n" not in str(refused.value)
    with pytest.raises(TrustError, match="outside of the installed plugins"):
        make_from_data("multi:ReturnsDesk-v0", {"user": f"{module}:User"})
    assert not marker.exists() and module not in sys.modules


def test_a_plugin_offers_what_it_defines_itself(stranger: Callable[..., str]) -> None:
    module = stranger("a_plugin", plugin=True)
    kwargs = {"game": f"{module}:Game", "opponent": f"{module}:opponent"}
    assert make_from_data(NIM, kwargs).reset(seed=1)[0]
    assert make_from_data("multi:ReturnsDesk-v0", {"user": f"{module}:User"}).reset(seed=1)[0]
    with pytest.raises(TrustError, match="is not defined there, but in"):
        make_from_data(NIM, {"opponent": f"{module}:system"})
    with pytest.raises(TrustError, match="is not defined there, but in 'gem_core"):
        make_from_data(NIM, {"game": f"{module}:Nim"})
    for kwargs, message in (
        ({"game": f"{module}:NoGame"}, "not a class derived from MultiAgentEnv"),
        ({"game": f"{module}:Missing"}, "no attribute 'Missing'"),
        ({"opponent": f"{module}:no_opponent"}, "not a function of 2 arguments"),
        ({"opponent": f"{module}:Game"}, "not a function"),
        ({"opponent": f"{module}:NoGame.x"}, "write 'module:name'"),
    ):
        with pytest.raises(CodeReferenceError, match=message):
            make_from_data(NIM, kwargs)


@pytest.mark.parametrize(
    "place",
    [
        "gem_core.env.registration.references:os",
        "gem_core.execution.workers.process:subprocess",
        "gem_core.execution.workers.process:Popen",
        "gem_core.runs.directory.run_dir:RunDir",
        "gem_sandbox._guarded_runner:main",
        "gem_core.envs.multi_agent.base:MultiAgentEnv",
        "gem_core.envs.multi_agent.games:reduce",
    ],
)
def test_what_gem_core_merely_has_is_not_offered(place: str) -> None:
    with from_data():
        for base in (MultiAgentEnv, UserSimulator):
            with pytest.raises((TrustError, CodeReferenceError)):
                resolve_class(place, base, "game")
        with pytest.raises((TrustError, CodeReferenceError)):
            resolve_function(place, 2, "opponent")


def test_functions_of_gem_core_have_names_of_their_own() -> None:
    for place in ("gem_core.envs.multi_agent.base:random_opponent", "gem_trl.launch:run"):
        with pytest.raises(TrustError, match="names a function of gem-core"):
            make_from_data(NIM, {"opponent": place})
    assert make_from_data(NIM, {"opponent": "perfect"}).reset(seed=1)[0]
    assert make_from_data(NIM, {"game": OWN_NIM}).reset(seed=1)[0]


def test_a_program_chooses_its_own_code(stranger: Callable[..., str]) -> None:
    """`gem_core.make` is called by the user's program; the kind is checked there, too."""
    module = stranger("of_a_script")
    kwargs = {"game": f"{module}:Game", "opponent": f"{module}:opponent"}
    assert gem_core.make(NIM, **kwargs).reset(seed=1)[0]
    with pytest.raises(CodeReferenceError, match="not a class derived from MultiAgentEnv"):
        gem_core.make(NIM, game="subprocess:Popen")


def test_only_the_command_line_trusts(
    stranger: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = stranger("trusted_by_hand")
    config = EnvConfig(id=NIM, kwargs={"game": f"{module}:Game"})
    with trust(False), pytest.raises(TrustError):
        make_for_run(config, "env.0")
    with trust(True):
        assert os.environ[TRUST_VARIABLE] == "1"  # of the processes that are started
        make_for_run(config, "env.0").close()
    assert TRUST_VARIABLE not in os.environ
    for value in ("0", "", "yes"):
        monkeypatch.setenv(TRUST_VARIABLE, value)
        with pytest.raises(TrustError):
            make_for_run(config, "env.0")


def test_a_recipe_weakens_no_sandbox_and_starts_no_program(tmp_path: Path) -> None:
    for level in ("guarded", "container", "limited", "confined"):
        with pytest.raises(TrustError, match=f"level = '{level}'"):
            make_from_data("terminal:files-v0", {"level": level})
        tools = EnvConfig(id="math:Remainders", tools=[{"name": "python", "level": level}])
        with pytest.raises(TrustError, match=f"level = '{level}'"):
            make_for_run(tools, "env.0")
    make_from_data("terminal:files-v0", {"level": "strict"})
    mark = tmp_path / "started"
    for more in ({"command": ["touch", str(mark)]}, {"url": "http://x", "env": {"A": "b"}}):
        table = {"name": "mcp", "tool": "x", **more}
        config = EnvConfig(id="math:Remainders", tools=[table])
        with pytest.raises(TrustError, match="start a program"):
            with_tools(gem_core.make("math:Remainders"), config, "env.0")
    assert not mark.exists()


@pytest.mark.parametrize("id", ["gymnasium:a_module:Env-v0", "verifiers:a_module"])
def test_an_id_of_another_package_names_no_module(id: str) -> None:
    with pytest.raises(TrustError, match="imports the module 'a_module'"):
        make_from_data(id, {})


# --- recipes and runs by the commands ------------------------------------------------------------

TINY = ["--profile", "tiny"]


@pytest.fixture
def foreign(tmp_path: Path, stranger: Callable[..., str]) -> Callable[[str], Path]:
    """Return a function that writes somebody's recipe; ``{module}`` is their module."""
    module = stranger("somebody")

    def write(lines: str) -> Path:
        path = tmp_path / "foreign.toml"
        path.write_text('name = "foreign"\n' + lines.format(module=module))
        return path

    return write


ENV = '[[env]]\nid = "game:GuessTheNumber-v0-easy"\n'
CODE = {
    "estimator": ENV + '[algorithm]\nestimator = "{module}:estimate"\n',
    "of gem-core": ENV + '[algorithm]\nestimator = "gem_core.cli:main"\n',
    "trl": ENV + "[trainer.trl.model_init_kwargs]\ntrust_remote_code = true\n",
    "verl": ENV + '[trainer.verl]\n"custom_reward_function.path" = "evil.py"\n',
    "openrlhf": ENV + '[trainer.openrlhf]\n"reward.remote_url" = "evil.py"\n',
    "grants": ENV
    + '[trainer.verl.ray_kwargs.ray_init.runtime_env.env_vars]\nGEM_CORE_TRUST = "1"\n',
}


COMMANDS = [
    ["show"],
    ["plan", "--trainer", "trl", "--gpus", "1x80"],
    ["train", "--trainer", "trl", "--run", "out"],
    ["doctor", "--trainer", "trl", "--recipe"],
    ["serve", "--mcp", "--environments", "nope:*", "--recipe"],  # ends if nothing is refused
]
COMPARE = ["compare", "--trainers", "trl", "--out", "out", "--allow-dirty"]
CASES = [(command, kind) for command in COMMANDS for kind in CODE]
# A comparison sets the estimator itself.
CASES += [([*COMPARE, "--dry-run", "--baselines"], kind) for kind in [*CODE][2:]]


@pytest.mark.parametrize(
    ("command", "kind"), CASES, ids=lambda one: one if isinstance(one, str) else one[0]
)
def test_no_command_runs_what_a_recipe_names(
    command: list[str],
    kind: str,
    foreign: Callable[[str], Path],
    marker: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = foreign(CODE[kind])
    monkeypatch.chdir(recipe.parent)
    monkeypatch.setenv("GEM_CORE_PYTHON_TRL", sys.executable)
    assert main([*command, str(recipe)]) != 0
    shown = capsys.readouterr()
    assert "--trust" in shown.out + shown.err
    assert not marker.exists() and "somebody" not in sys.modules


def test_a_cell_of_a_comparison_runs_no_code(
    foreign: Callable[[str], Path], marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = foreign(CODE["trl"])
    monkeypatch.chdir(recipe.parent)
    monkeypatch.setenv("GEM_CORE_PYTHON_TRL", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(recipe.parent))
    assert main([*COMPARE, "--baselines", str(recipe)]) == 1
    logs = [path.read_text() for path in Path("out").rglob("*") if path.suffix in (".log", ".json")]
    assert any("--trust" in log for log in logs), logs
    assert not marker.exists()


def test_show_makes_no_environment_of_somebodys_code(
    foreign: Callable[[str], Path], marker: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = foreign('[[env]]\nid = "multi:Nim-v0-easy"\nkwargs = {{ game = "{module}:Game" }}\n')
    assert main(["show", str(recipe), "--episodes", "1"]) == 2
    assert "--trust" in capsys.readouterr().err and not marker.exists()
    assert main(["show", str(recipe), "--episodes", "1", "--trust"]) == 0
    assert marker.exists() and TRUST_VARIABLE not in os.environ


def test_a_run_of_somebody_else_runs_no_code(
    foreign: Callable[[str], Path],
    tmp_path: Path,
    marker: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The run was made on a machine that trusted it; its ``run.json`` cannot say so here."""
    with trust(True):
        recipe = load_recipe(foreign(CODE["estimator"]))
    marker.unlink()
    sys.modules.pop("somebody")
    run = RunDir.create(tmp_path / "run", recipe, "trl")
    info = json.loads((run.path / "run.json").read_text())
    info.update(trust=True, GEM_CORE_TRUST="1")
    (run.path / "run.json").write_text(json.dumps(info))
    for command in (["eval"], ["report"], ["train", "--trainer", "trl", "--from"]):
        code = main([*command, str(run.path)])
        shown = capsys.readouterr()
        assert code != 0 and "--trust" in shown.out + shown.err, (command, shown)
    assert not marker.exists()


def test_a_trusted_launch_reaches_its_workers(foreign: Callable[[str], Path], marker: Path) -> None:
    recipe = foreign('[[env]]\nid = "multi:Nim-v0-easy"\nkwargs = {{ game = "{module}:Game" }}\n')
    program = (
        "from gem_core.env.registration.references import trust\n"
        "from gem_core.runs.environments import pools\n"
        "from gem_core.runs.recipe.load import load_recipe\n"
        "from gem_core.runs.tasks import MachineFactory\n"
        "if __name__ == '__main__':\n"
        f"    recipe = load_recipe({str(recipe)!r}, None, ['workers.backend=process'])\n"
        "    for given in (False, True):\n"
        "        with trust(given):\n"
        "            machine = MachineFactory(recipe).train(0)\n"
        "            machine.start()\n"
        "            print(machine.done and machine.episode.error)\n"
        "            pools.close_run_pools(None)\n"
    )
    path = f"{recipe.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[-2:]
    assert "TrustError" in first and second == "False" and marker.exists()


# --- native keys ---------------------------------------------------------------------------------


def test_native_keys_that_name_code_are_told_apart() -> None:
    for key, value in (
        ("trust_remote_code", True),
        ("actor.model.external_lib", "antigravity"),
        ("data.custom_cls.name", "Evil"),
        ("reward.remote_url", "http"),
        ("custom_reward_function.path", "evil.py"),
        ("deepspeed", "/tmp/x.json"),
        ("optim", "somebody:Optimizer"),
        ("attn_implementation", "somebody/kernels"),
        ("data.extra", "${oc.env:HOME}"),
        ("x", "a.py"),
        ("vllm.worker_extension_cls", "Evil"),
        ("workerCls", "Evil"),
        ("push_to_hub", True),
        ("hub_token", "x"),
        ("runtime_env.env_vars.LD_PRELOAD", "x"),
        ("resume_from_checkpoint.path", "x"),
    ):
        assert names_code(f"trainer.t.{key}", value), key
    for key, value in (
        ("optim", "adamw_torch_fused"),
        ("lr", 1e-5),
        ("output_dir", 1),
        ("mask_truncated_tokens", True),
        ("max_tokens", 64),
        ("attn_implementation", "flash_attention_2"),
        ("gradient_checkpointing", True),
        ("trust_remote_code", False),
        ("mode", None),
    ):
        assert not names_code(f"trainer.t.{key}", value), key


def test_nested_native_keys_are_found() -> None:
    data: dict[str, Any] = {
        "name": "x",
        "env": [{"id": "game:GuessTheNumber-v0-easy"}],
        "trainer": {"trl": {"a": [{"b": {"external_lib": "evil"}}]}},
    }
    with pytest.raises(TrustError, match=r"trainer.trl.a.b.external_lib = 'evil'"):
        recipe_from_dict(data)
    with trust(True):
        recipe_from_dict(data)


# --- one home ------------------------------------------------------------------------------------

IMPORTS = {
    "__init__.py": "its own public names",
    "envs/graders/__init__.py": "its own public names",
    "env/spec.py": "an entry point that was registered",
    "env/registration/references.py": "the home of references that come as data",
    "advantages/registry.py": "estimators; those of recipes are checked by runs.recipe.trust",
    "tools/registry.py": "its own table, and entry points",
    "envs/players/registry.py": "its own tables",
    "runs/trainers.py": "declarations of adapters, and the table of the commands",
    "envs/graders/_pool_server.py": "a constant of the module that starts the process",
    "execution/workers/child.py": "builders of the process that started the worker",
    "gem_compare/prepared.py": "declarations of adapters",
    "gem_conform/candidate.py": "declarations of adapters",
    "gem_parity/replays.py": "entry points, and the replays of the checkout",
    "gem_preflight/readiness/probe.py": "declarations of adapters",
    "gem_bridges/gem_llm.py": "GEM's own registry",
    "runs/tracking/trackers.py": "its own table",
    "cli/check.py": "the class that the command line names",
}
MAKES = {
    "__init__.py": "the public name",
    "env/registration/__init__.py": "make_from_data",
    "env/checker/check.py": "Python calls",
    "execution/vector/make.py": "Python calls",
    "execution/vector/slots.py": "Python calls",
    "envs/evaluation.py": "Python calls",
    "gem_bridges/as_gymnasium.py": "Python calls",
    "gem_bridges/as_inspect.py": "Python calls",
    "cli/play.py": "an id of the command line",
    "cli/check.py": "an id or a class of the command line",
    "training/tiny/corpus.py": "five names of its own",
}


def files() -> Iterator[tuple[str, ast.AST]]:
    """Yield the modules of the core, named from its folder, and those of its companions."""
    folders = [(ROOT / "gem_core", ROOT / "gem_core")]
    integrations = ROOT / "integrations"
    folders += [(integrations, integrations / name) for name in sorted(import_graph.COMPANIONS)]
    for base, folder in folders:
        for path in sorted(folder.rglob("*.py")):
            yield str(path.relative_to(base)), ast.parse(path.read_text(encoding="utf-8"))


def called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_modules_are_imported_by_name_in_known_places_only() -> None:
    """A new place needs a reason here, or `gem_core.env.registration.references`."""
    found = {
        name
        for name, tree in files()
        for node in ast.walk(tree)
        if called(node) in ("import_module", "EntryPoint", "__import__")
        and isinstance(node, ast.Call)
        and not (node.args and isinstance(node.args[0], ast.Constant))
        and not name.startswith("gem_sandbox/")  # inside the sandbox
        and name != "envs/graders/_code_runner.py"
    }
    assert found <= IMPORTS.keys(), found - IMPORTS.keys()


def test_environments_of_data_are_made_as_data() -> None:
    found = set()
    for name, tree in files():
        imported = any(
            isinstance(node, ast.ImportFrom)
            and node.module in ("gem_core.env.registration", "gem_core")
            and any(alias.name == "make" for alias in node.names)
            for node in ast.walk(tree)
        )
        if imported or name == "env/registration/__init__.py":
            found.add(name)
    assert found <= MAKES.keys(), found - MAKES.keys()
