"""How the adapter gets into verl's processes, and how it says that it did not."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

from gem_core.errors import MissingDependencyError
from gem_core.runs import trainers
from gem_verl import _compat as compat

REGISTERED = (
    "from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY as r; "
    "print(sorted(k for k in r if k.startswith('gem_')))"
)


def python(code, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("VERL_", "GEM_VERL_"))}
    return subprocess.run(
        [sys.executable, "-c", code], env=clean | environment, capture_output=True, text=True
    )


def test_importing_verl_registers_the_estimators():
    done = python(f"import verl; {REGISTERED}")
    assert "'gem_rebn'" in done.stdout and "'gem_gae'" in done.stdout, done.stderr


@pytest.mark.slow  # verl's own runs with several rows or sets use it, and make no advantage without
def test_external_lib_does_it_where_plugins_are_off():
    code = f"import verl; {REGISTERED}; import gem_verl.plugin; {REGISTERED}"
    done = python(code, VERL_USE_EXTERNAL_PLUGINS="none")
    first, second = done.stdout.splitlines()[-2:]
    assert first == "[]" and "'gem_rebn'" in second, done.stderr


def test_a_plugin_that_fails_prints_why():
    broken = (
        "import sys; sys.modules['gem_core.advantages'] = None\n"
        "import verl; print('verl swallowed it')"
    )
    done = python(broken)
    assert "verl swallowed it" in done.stdout
    assert "gem-core could not be loaded into verl" in done.stdout
    assert "gem_core.advantages" in done.stdout


@pytest.mark.parametrize("version", ["0.8.0", "0.10.0", None])
def test_an_untested_verl_is_an_error_that_names_the_range(monkeypatch, version):
    monkeypatch.setattr(trainers, "installed_version", lambda _: version)
    with pytest.raises(MissingDependencyError, match=r"pip install .*\[verl\]") as error:
        importlib.reload(compat)
    assert version is None or ">=0.9.1,<0.10" in str(error.value)
    monkeypatch.undo()
    importlib.reload(compat)


def test_what_the_adapter_relies_on_is_there():
    compat.check_private_signatures()


@pytest.mark.parametrize("path", compat.PRIVATE_SIGNATURES)
def test_a_changed_signature_is_an_error_that_names_it(monkeypatch, path):
    monkeypatch.setitem(compat.PRIVATE_SIGNATURES, path, "self something else")
    with pytest.raises(MissingDependencyError, match=rf"{path} takes \(.*verl>=0\.9\.1,<0\.10"):
        compat.check_private_signatures()
