"""Which weights sample a turn, and engines that keep old ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gem_adapters.native_keys import check_staleness, refuse_values
from gem_adapters.versions import (
    VersionedEngines,
    compute_version,
    count_kept_versions,
    generate_by_version,
    measure_staleness,
    name_missing,
    pick_version,
)
from gem_core.episodes.data import Completion, Episode, Segment, Turn
from gem_core.errors import GemError, RecipeError
from gem_core.runs.directory.run_dir import RUN_VARIABLE, RunDir
from gem_core.runs.recipe.load import load_recipe, recipe_from_dict

torch = pytest.importorskip("torch", reason="the environments of the trainers have it")


def recipe(*overrides):
    return load_recipe("guess-the-number-easy", "tiny", ("batch.episodes=4", *overrides))


@pytest.mark.parametrize(
    ("overrides", "of_task_13", "of_task_5"),
    [
        (("sampling.staleness=1",), [2, 2, 2, 2, 2], [0, 0, 0, 0, 0]),
        (("sampling.staleness=5",), [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]),
        (("sampling.staleness=2", "sampling.refresh_turns=1"), [1, 2, 3, 3, 3], [0, 0, 1, 1, 1]),
        (("sampling.staleness=2", "sampling.refresh_turns=2"), [1, 1, 2, 2, 3], [0, 0, 0, 0, 1]),
    ],
)
def test_the_clock(overrides, of_task_13, of_task_5):
    found = recipe(*overrides)  # steps of 4 tasks: the fourth and the second
    assert [compute_version(found, 13, turn) for turn in range(5)] == of_task_13
    assert [compute_version(found, 5, turn) for turn in range(5)] == of_task_5


def test_only_training_with_old_weights_asks_for_a_version():
    machine = SimpleNamespace(index=13, turn=0, split="train")
    assert pick_version(recipe("sampling.staleness=1"), machine) == 2
    assert pick_version(recipe(), machine) is None
    machine.split = "eval"
    assert pick_version(recipe("sampling.staleness=1"), machine) is None


def test_where_nothing_keeps_weights_the_recipe_is_refused():
    for also in ("hardware.device=gpu", "hardware.engine=vllm"):
        old = recipe("sampling.staleness=1", also)
        with pytest.raises(RecipeError, match=r"X cannot honour sampling\.staleness = 1 and hard"):
            refuse_values(old, "X", [check_staleness(old)])
    for kept in (recipe("hardware.device=gpu"), recipe("sampling.staleness=1")):
        refuse_values(kept, "X", [check_staleness(kept)])
    with pytest.raises(RecipeError, match=r"refresh_turns.*sampling\.staleness >= 1"):
        recipe("sampling.refresh_turns=1")


def test_the_keys_leave_other_recipes_as_they_were():
    assert "staleness" not in recipe().to_dict()["sampling"]
    stale = recipe("sampling.staleness=2", "sampling.refresh_turns=1")
    assert recipe_from_dict(stale.to_dict()) == stale


def test_an_engine_keeps_as_many_versions_as_its_run_needs(tmp_path, monkeypatch):
    monkeypatch.delenv(RUN_VARIABLE, raising=False)
    assert count_kept_versions() == 0
    RunDir.create(tmp_path, recipe("sampling.staleness=3"), "trl")
    monkeypatch.setenv(RUN_VARIABLE, str(tmp_path))
    assert count_kept_versions() == 3


class Model(torch.nn.Module):
    """One number, which is what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.number = torch.nn.Parameter(torch.zeros(()))

    def forward(self) -> float:
        return float(self.number.detach())


class Reader:
    """An engine whose completion is the model's number."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.calls = 0

    def generate(self, requests):
        self.calls += 1
        return [Completion([int(self.model()) * 10 + request]) for request in requests]


@pytest.fixture
def engines():
    """Versions 0 to 4 of a model whose number is the version, of which two old ones are kept."""
    model = Model()
    made = VersionedEngines(model, Reader, keep=2)
    for version in range(1, 5):
        with torch.no_grad():
            model.number.fill_(version)
        made.name(version)
    with torch.no_grad():
        model.number.fill_(9)  # an update that has not come to its end
    return made


def test_requests_are_sampled_by_their_versions_in_their_order(engines):
    found = generate_by_version(engines, [1, 2, 3, 4], [4, 2, 3, 2])
    assert [completion.token_ids for completion in found] == [[41], [22], [33], [24]]
    assert [completion.version for completion in found] == [4, 2, 3, 2]
    assert engines.at(2)[0].calls == 1
    (newest,) = generate_by_version(engines, [1], [None])
    assert (newest.token_ids, newest.version) == ([91], 4)


@pytest.mark.parametrize("version", [1, 5])
def test_a_version_that_is_gone_or_did_not_come_is_an_error(engines, version):
    message = rf"weights after training step {version}, and has those of the steps \[2, 3, 4\]"
    with pytest.raises(GemError, match=message):
        engines.at(version)


def test_a_copy_does_not_compute_with_the_original():
    model = Model()
    stock = model.forward
    model.forward = lambda: stock()  # as TRL does for its loss
    made = VersionedEngines(model, Reader, keep=1)
    with torch.no_grad():
        model.number.fill_(7)
    made.name(1)
    assert [made.at(version)[0].model() for version in (0, 1)] == [0.0, 7.0]
    model.register_forward_hook(lambda *_: None)
    with pytest.raises(GemError, match="Model has hooks"):
        made.name(2)


def test_nothing_is_copied_without_old_versions():
    made = VersionedEngines(Model(), Reader)
    made.name(1)
    assert made.at(None) == (made.live, 1)
    with pytest.raises(GemError, match=r"of the steps \[\]"):
        made.at(1)


def episode(index, *turns):
    """An episode of turns with (version, tokens)."""
    found = Episode("game:GuessTheNumber-v0-easy", 0, index=index)
    segment = Segment()
    for number, (version, tokens) in enumerate(turns):
        segment.add_context([1])
        segment.add_action(number, Completion([2] * tokens, [-1.0] * tokens))
        found.turns.append(Turn(number, "", "", version=version))
    found.segments.append(segment)
    return found


def test_the_metrics_count_tokens():
    batch = [episode(8, (2, 1), (1, 3)), episode(9, (0, 4))]
    found = measure_staleness(recipe(), 3, batch)
    assert found == {"rollout/staleness": (3 * 1 + 4 * 2) / 8, "rollout/staleness_max": 2.0}
    assert measure_staleness(recipe(), 3, [episode(8)]) == {
        "rollout/staleness": 0.0,
        "rollout/staleness_max": 0.0,
    }


def test_a_turn_without_a_version_leaves_them_out_until_it_has_one():
    batch = [episode(8, (2, 1), (None, 1))]
    assert measure_staleness(recipe(), 3, batch) == {}
    name_missing(batch, 1)
    assert [turn.version for turn in batch[0].turns] == [2, 1]
    assert measure_staleness(recipe(), 3, batch)["rollout/staleness"] == 0.5


@pytest.mark.parametrize(
    ("overrides", "version", "expected"),
    [
        ((), 3, "0 to 2"),
        (("sampling.staleness=1",), 2, "1"),
        (("sampling.staleness=1",), 0, "1"),
        (("sampling.staleness=1",), None, "1"),
    ],
)
def test_other_weights_than_the_recipes_end_the_run(overrides, version, expected):
    message = f"turn 0 of task 8 was sampled by the weights after step {version}, not {expected}:"
    with pytest.raises(GemError, match=message):
        measure_staleness(recipe(*overrides), 3, [episode(8, (version, 1))])


def test_versions_are_stored_where_they_are_known():
    found = episode(8, (2, 1), (None, 1))
    data = found.to_dict()
    assert [turn.get("version") for turn in data["turns"]] == [2, None]
    assert "version" not in data["turns"][1]
    assert Episode.from_dict(data) == found
