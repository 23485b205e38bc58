"""Checks against the reference in plain PyTorch: the first gradient, recorded runs, whole steps."""

from __future__ import annotations

from collections.abc import Sequence

from gem_compare.lockstep.differences import differences, drifts
from gem_compare.lockstep.divergence import first_divergence
from gem_compare.lockstep.summary import cause, describe
from gem_compare.lockstep.traces import Trace, read_trace
from gem_conform.candidate import Candidate
from gem_conform.cases import (
    choose_cases,
    gradient_cases,
    recorded_cases,
    replay_of,
    small_model,
    traits_of,
)
from gem_conform.failures import NotApplicable, NotConforming, require_none
from gem_conform.trained import FIRST
from gem_core.errors import RecipeError

LOGPROBS_EQUAL = 1e-5
"""Bound of the mean difference between the log-probabilities of an engine and of its trainer in the
profile ``tiny``, both in float32. Rounding makes about 1e-6 of it; caches of the weights of a step
before made 2e-2 (TRL)."""
REPLAYED_STEPS = 3
"""Training steps of every recorded run."""
_DIFFERENCE = "rollout/logprob_difference"
FROZEN = ("batch.episodes=16", "batch.group_size=2", "algorithm.epochs=1")
COUNTED = (
    "algorithm.estimator=reinforce",
    "algorithm.gamma=0",  # a turn's advantage is its own reward
    "algorithm.epochs=1",
    "batch.group_size=1",
)


def check_gradient(candidate: Candidate) -> str:
    """On frozen episodes rows, advantages, loss and first gradient are the reference's."""
    replay = replay_of(candidate).replay
    from gem_core.policies.models.weights import load_model
    from gem_parity.frozen import frozen_episodes
    from gem_parity.measure import measure
    from gem_parity.reference import reference
    from gem_parity.replay import expected_rows

    model_dir = small_model(candidate.folder)
    passed: list[str] = []
    refused: list[str] = []
    faults: list[str] = []
    for name, keys in choose_cases(candidate, gradient_cases()).items():
        try:
            recipe = candidate.recipe(*FROZEN, *keys)
            candidate.translate(recipe)
        except RecipeError as error:
            refused.append(_named(name, keys, error))
            continue
        rows = expected_rows(recipe, frozen_episodes(16, group_size=2))
        found = measure(
            replay(recipe, frozen_episodes(16, group_size=2), model_dir),
            reference(recipe, rows, load_model(model_dir)),
        )
        passed += [] if found.faults else [name]
        faults += [f"{name}: {fault}" for fault in found.faults]
    return _summary(passed, refused, faults)


def check_turn_rewards(candidate: Candidate) -> str:
    """The reward of each turn is the advantage of that turn's tokens, however an episode ends."""
    replay = replay_of(candidate).replay
    from gem_parity.counted import REWARDS, play_counting

    counted = play_counting()
    episodes = [episode for of_end in counted.values() for episode in of_end]
    recipe = candidate.recipe(*COUNTED, f"batch.episodes={len(episodes)}")
    replayed = replay(recipe, episodes, small_model(candidate.folder))
    rows = {tuple(row.token_ids): row.advantages.tolist() for row in replayed.rows}
    for end, of_end in counted.items():
        for episode in of_end:
            (segment,) = episode.segments
            expected = [0.0] * len(segment.token_ids)
            for turn, first, behind in segment.spans:
                expected[first:behind] = [REWARDS[turn]] * (behind - first)
            found = rows.get(tuple(segment.token_ids))
            if found is None:
                raise NotConforming(f"{end}: no row has the tokens of the episode")
            if found != expected:
                arrived = [found[first] for _, first, _ in segment.spans]
                raise NotConforming(f"{end}: rewards {REWARDS} arrived as {arrived}")
    return f"rewards {REWARDS} are on the tokens of their turns: {', '.join(counted)}"


def check_recorded_runs(candidate: Candidate) -> str:
    """In recorded runs the weights after every step are the reference's."""
    module = replay_of(candidate)
    from gem_parity.teacher_forced import teacher_forced

    model_dir = small_model(candidate.folder)
    passed: list[str] = []
    refused: list[str] = []
    faults: list[str] = []
    keys = [*candidate.tables.refused]
    for name, case in choose_cases(candidate, recorded_cases(module)).items():
        try:
            recipe = case.recipe(keys, REPLAYED_STEPS, candidate.overrides)
            candidate.translate(recipe)
        except RecipeError as error:
            refused.append(_named(name, case.about, error))
            continue
        found = teacher_forced(recipe, model_dir, module.replay_run, module.TRAITS)
        passed += [] if found.faults else [name]
        faults += [f"{name}: {'; '.join(found.faults)}"] if found.faults else []
    traits = module.TRAITS.differences()
    own = f"; in its own way: {traits}" if traits else ""
    return _summary(passed, refused, faults) + own


def check_injected_faults(candidate: Candidate) -> str:
    """A fault put into the episodes or the recipe that the replay gets is found."""
    module = replay_of(candidate)
    from gem_parity.faults import INPUT_FAULTS, faulty_recipe, find_fault

    model_dir = small_model(candidate.folder)
    found: list[str] = []
    green: list[str] = []
    refused: list[str] = []
    for name, fault in choose_cases(candidate, INPUT_FAULTS).items():
        try:
            recipe = faulty_recipe(fault, [*candidate.tables.refused], candidate.overrides)
            what = find_fault(fault, recipe, module, model_dir)
        except RecipeError as error:
            refused.append(f"{name} ({error})")
            continue
        (found if what else green).append(name)
    require_none("the replay does not show", green)
    if not found:
        raise NotConforming(f"every fault is refused: {', '.join(refused)}")
    left_out = f"; refused: {', '.join(refused)}" if refused else ""
    return f"{len(found)} faults found: {', '.join(found)}{left_out}"


def check_lockstep(candidate: Candidate) -> str:
    """The first steps of a run draw the tokens and have the weights of a run of the reference."""
    from gem_parity.reference_run import reference_run

    recipe = candidate.recipe(*FIRST)
    if recipe.algorithm.minibatches != 1:
        raise NotApplicable("trainers order minibatches in their own ways; set 1 of them")
    traits = traits_of(candidate)
    run = candidate.run("first", *FIRST)
    require_none(
        "not sampled with the weights of the step before, by rollout/logprob_difference",
        [
            f"step {row['step']}: {row[_DIFFERENCE]:.1e} on average"
            for row in run.metrics()
            if row.get(_DIFFERENCE, 0.0) > LOGPROBS_EQUAL
        ],
    )
    mine = read_trace(run)
    theirs = Trace("reference", recipe.seed, reference_run(recipe, traits), {}, {})
    divergence = first_divergence(mine, theirs, "train")
    equal = recipe.train.steps if divergence is None else divergence.step - 1
    steps = range(1, equal + 1)
    drift = [drifts(mine, theirs, step) for step in steps]
    faults = [
        f"{row.quantity} differ from step {row.begins} by more than rounding: {row.values}"
        for row in differences(mine, theirs, steps)
        if row.begins is not None
    ]
    require_none("differs from the reference", faults)
    if divergence is not None:
        found = divergence.to_dict()
        why = f"{describe(found)}; {cause(found, drift)}"
        raise NotConforming(f"differs from the reference: {why}")
    known = [size for size in drift if size is not None]
    largest = f"{max(known):.1e}" if known else "not reported"
    return f"{equal} steps, token for token; largest difference of a log-probability: {largest}"


def _named(name: str, keys: Sequence[str], error: RecipeError) -> str:
    """Return the name of a case that is refused.

    Raises:
        NotConforming: the refusal names no key that the case is about.
    """
    if not any(text.partition("=")[0] in str(error) for text in keys):
        raise NotConforming(f"{name} is refused for another reason: {error}")
    return name


def _summary(passed: Sequence[str], refused: Sequence[str], faults: Sequence[str]) -> str:
    require_none("differs from the reference", "\n".join(faults))
    if not passed:
        raise NotConforming(f"every case is refused: {', '.join(refused)}")
    left_out = f"; refused by name: {', '.join(refused)}" if refused else ""
    return f"equal: {', '.join(passed)}{left_out}"
