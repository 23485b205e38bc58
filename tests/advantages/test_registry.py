"""Names, options, plugins of other distributions, and what compute_advantages guarantees."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from functools import wraps

import numpy as np
import pytest

from gem_core.advantages import (
    EstimatorNeeds,
    TurnBatch,
    compute_advantages,
    declare_needs,
    estimator_needs,
    estimator_options,
    get_estimator,
    list_estimators,
    rebn,
    register_estimator,
    registry,
)
from gem_core.errors import AdvantageError, RegistrationError, UnknownNameError

BUILT_IN = ["dr_grpo", "gae", "grpo", "rebn", "reinforce", "rloo"]
BATCH = TurnBatch.from_episodes([[1.0, 2.0], [3.0]], groups=[0, 0])


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """Undo the registrations of each test."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setattr(registry, "_resolved", {})


def install(directory, monkeypatch, dist, points, code=""):
    """Put a distribution on ``sys.path`` as an installer does."""
    info = directory / f"{dist}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {value}" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[gem_core.advantages]\n{lines}\n")
    (directory / f"{dist}.py").write_text(textwrap.dedent(code))
    monkeypatch.syspath_prepend(directory)
    monkeypatch.delitem(sys.modules, dist, raising=False)
    importlib.invalidate_caches()


CLIPPED = """
    import numpy as np
    from gem_core.advantages import discounted_returns

    def clipped(batch, *, gamma, lam, reduce, limit=1.0):
        assert batch.mask is None
        return np.clip(discounted_returns(batch, gamma), -limit, limit)
"""


def test_built_in_names():
    assert set(BUILT_IN) <= set(list_estimators())
    assert get_estimator("rebn") is rebn


def test_unknown_name_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match=r"Unknown estimator 'rebm'\. Did you mean 'rebn'"):
        get_estimator("rebm")


@pytest.mark.parametrize("name", BUILT_IN)
def test_unknown_option_gets_a_name(name):
    with pytest.raises(UnknownNameError, match=rf"option of estimator '{name}': 'flor'"):
        compute_advantages(name, BATCH, gamma=0.9, flor=1.0)


def test_unknown_option_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match="Did you mean 'floor'"):
        compute_advantages("rebn", BATCH, gamma=0.9, flor=1.0)
    with pytest.raises(UnknownNameError, match="Options: none"):
        compute_advantages("reinforce", BATCH, gamma=0.9, eps=1.0)


def test_options_are_listed_with_their_defaults():
    assert estimator_options("rebn") == {"per_env": False, "ddof": 0, "eps": 0.0, "floor": 1e-8}
    assert estimator_options("gae") == {"whiten": False}
    assert estimator_options("reinforce") == {}


def test_register_and_use():
    @register_estimator("half")
    def half(batch, *, gamma, lam, reduce, scale):
        return scale * batch.rewards

    assert "half" in list_estimators() and get_estimator("half") is half
    advantages = compute_advantages("half", BATCH, gamma=0.9, scale=0.5)
    assert advantages.tolist() == [0.5, 1.0, 1.5]
    with pytest.raises(AdvantageError, match="needs the option scale"):
        compute_advantages("half", BATCH, gamma=0.9)
    assert register_estimator("half")(half) is half  # the same thing twice is no conflict


def test_built_in_estimators_declare_what_they_need():
    needing_groups = {name for name in BUILT_IN if estimator_needs(name).groups}
    assert needing_groups == {"grpo", "dr_grpo", "rloo"}
    assert {name for name in BUILT_IN if estimator_needs(name).values} == {"gae"}


def test_a_registered_estimator_declares_what_it_needs():
    @register_estimator("paired", needs_groups=True)
    def paired(batch, *, gamma, lam, reduce):
        return batch.rewards

    @register_estimator("wrapped", needs_values=True)
    @wraps(paired)
    def wrapped(*args, **kwargs):
        return paired(*args, **kwargs)

    assert estimator_needs("paired") == EstimatorNeeds(values=False, groups=True)
    assert estimator_needs("wrapped") == EstimatorNeeds(values=True, groups=True)
    with pytest.raises(AdvantageError, match="wrapped needs TurnBatch"):
        compute_advantages("wrapped", BATCH, gamma=0.9)
    with pytest.raises(AdvantageError, match="paired needs TurnBatch"):
        compute_advantages("paired", TurnBatch.from_episodes([[1.0]]), gamma=0.9)
    assert compute_advantages("paired", BATCH, gamma=0.9).tolist() == [1.0, 2.0, 3.0]
    assert compute_advantages("paired", TurnBatch.from_episodes([]), gamma=0.9).size == 0


def test_what_cannot_carry_a_declaration_is_refused():
    class Fixed:
        __slots__ = ()
        __qualname__ = "Fixed"

        def __call__(self, batch, *, gamma, lam, reduce):
            return batch.rewards

    declare_needs()(Fixed())  # there is nothing to carry
    with pytest.raises(RegistrationError, match="make it a function"):
        declare_needs(needs_values=True)(Fixed())


def test_needs_of_an_installed_estimator(tmp_path, monkeypatch):
    code = CLIPPED.replace("discounted_returns", "declare_needs, discounted_returns", 1)
    code = code.replace("    def clipped", "    @declare_needs(needs_values=True)\n    def clipped")
    install(tmp_path, monkeypatch, "acme_v", {"acme_v": "acme_v:clipped"}, code)
    assert estimator_needs("acme_v").values
    assert estimator_needs("acme_v:clipped").values


def test_open_ended_options_pass():
    @register_estimator("open")
    def anything(batch, **options):
        return np.full(len(batch), float(options["shift"]))

    assert compute_advantages("open", BATCH, gamma=0.9, shift=2).tolist() == [2.0] * 3


@pytest.mark.parametrize("name", ["rebn", "gae"])
def test_a_taken_name_is_refused(name):
    with pytest.raises(RegistrationError, match=r"taken by gem_core\.advantages\.estimators"):
        register_estimator(name)(lambda batch, *, gamma, lam, reduce: batch.rewards)


@pytest.mark.parametrize("name", ["", "1st", "a b", "mod:fn"])
def test_malformed_names_are_refused(name):
    with pytest.raises(RegistrationError, match="malformed"):
        register_estimator(name)(lambda batch, *, gamma, lam, reduce: batch.rewards)


def test_a_signature_that_does_not_fit_is_refused():
    with pytest.raises(RegistrationError, match="does not accept lam, reduce"):
        register_estimator("narrow")(lambda batch, *, gamma: batch.rewards)
    with pytest.raises(RegistrationError, match="is a int"):
        register_estimator("number")(3)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([1.0], r"shape \(1,\) for 3 turns"),
        ([1.0, np.nan, np.inf], "nan for turn 1 \\(2 of 3"),
        ([[1.0], [2.0], [3.0]], "one advantage per turn"),
    ],
)
def test_a_bad_result_is_named(result, message):
    @register_estimator("bad")
    def bad(batch, *, gamma, lam, reduce):
        return result

    with pytest.raises(AdvantageError, match=message):
        compute_advantages("bad", BATCH, gamma=0.9)


def test_overflow_is_an_error_not_a_gradient():
    huge = TurnBatch.from_episodes([[1e308, 1e308]])
    with np.errstate(over="ignore"), pytest.raises(AdvantageError, match="inf for turn 0"):
        compute_advantages("reinforce", huge, gamma=1.0)


def test_estimator_of_an_installed_distribution(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "acme_adv", {"acme_clip": "acme_adv:clipped"}, CLIPPED)
    assert "acme_clip" in list_estimators()
    assert "acme_adv" not in sys.modules  # listing imports nothing
    masked = TurnBatch([1.0, 5.0, -7.0], [0, 0, 1], mask=[True, False, True])
    advantages = compute_advantages("acme_clip", masked, gamma=1.0, limit=2.0)
    assert advantages.tolist() == [1.0, 0.0, -2.0]
    with pytest.raises(UnknownNameError, match="Did you mean 'limit'"):
        compute_advantages("acme_clip", masked, gamma=1.0, limits=2.0)
    with pytest.raises(RegistrationError, match="taken by acme_adv:clipped"):
        register_estimator("acme_clip")(rebn)


def test_estimator_of_an_installed_distribution_in_a_fresh_process(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "acme_adv", {"acme_clip": "acme_adv:clipped"}, CLIPPED)
    code = (
        "import sys; sys.path[:0] = eval(sys.argv[1])\n"
        "from gem_core.advantages import TurnBatch, compute_advantages\n"
        "batch = TurnBatch.from_episodes([[3.0]])\n"
        "print(compute_advantages('acme_clip', batch, gamma=1.0).tolist())\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, repr(sys.path)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("[1.0]\n", 0), done.stderr


def test_a_module_may_both_register_and_be_an_entry_point(tmp_path, monkeypatch):
    code = CLIPPED.replace("discounted_returns", "discounted_returns, register_estimator", 1)
    code = code.replace("    def clipped", '    @register_estimator("acme_both")\n    def clipped')
    install(tmp_path, monkeypatch, "acme_both_adv", {"acme_both": "acme_both_adv:clipped"}, code)
    assert compute_advantages("acme_both", BATCH, gamma=1.0).tolist() == [1.0] * 3
    assert get_estimator("acme_both") is get_estimator("acme_both")


def test_two_sources_of_one_name_are_an_error(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "acme_adv", {"rebn": "acme_adv:clipped"}, CLIPPED)
    with pytest.raises(RegistrationError, match=r"acme_adv:clipped and gem_core\.advantages"):
        get_estimator("rebn")


@pytest.mark.parametrize("value", ["acme_adv:nothing", "no_such_module_x:f"])
def test_a_broken_plugin_names_itself(tmp_path, monkeypatch, value):
    install(tmp_path, monkeypatch, "acme_adv", {"acme_broken": value}, CLIPPED)
    assert "acme_broken" in list_estimators()
    with pytest.raises(RegistrationError, match=f"cannot be loaded from '{value}'"):
        get_estimator("acme_broken")
    assert get_estimator("rebn") is rebn  # the others are not touched


def test_module_colon_function(tmp_path, monkeypatch):
    (tmp_path / "own_estimators.py").write_text(textwrap.dedent(CLIPPED))
    monkeypatch.syspath_prepend(tmp_path)
    advantages = compute_advantages("own_estimators:clipped", BATCH, gamma=1.0, limit=2.5)
    assert advantages.tolist() == [2.5, 2.0, 2.5]
    with pytest.raises(RegistrationError, match="cannot be loaded"):
        get_estimator("own_estimators:clpped")
    with pytest.raises(RegistrationError, match="write it as 'module:function'"):
        get_estimator(":clipped")
