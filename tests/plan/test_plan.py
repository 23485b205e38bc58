import pytest

from gem_core.cli import main
from gem_core.errors import RecipeError
from gem_core.plan.estimate import estimate
from gem_core.plan.shapes import QWEN3
from gem_core.training.recipe import load_recipe
from gem_core.training.trainers import trainer_names

BASELINE = "guess-the-number-easy"


def paper(*overrides: str):
    return load_recipe(BASELINE, "paper", ("hardware.gpus_per_node=8", *overrides))


def test_the_sizes_give_the_known_numbers_of_parameters():
    assert QWEN3["Qwen3-1.7B"].parameters == pytest.approx(1.72e9, rel=0.01)
    assert QWEN3["Qwen3-8B"].parameters == pytest.approx(8.19e9, rel=0.01)


@pytest.mark.parametrize("trainer", ["openrlhf", "rl2"])
def test_whole_minibatches_of_the_paper_profile_overflow(trainer: str):
    plan = estimate(paper("batch.micro_batch=16"), trainer, 80)
    assert plan.tokens_per_pass == 16 * 12800
    assert plan.parts["logits"] > 120e9
    assert "batch.micro_batch" in plan.problems[0]


@pytest.mark.parametrize("trainer", trainer_names())
def test_one_row_in_a_pass_fits(trainer: str):
    assert estimate(paper("batch.micro_batch=1"), trainer, 80).problems == ()


def test_the_bound_that_is_advised_fits():
    refused = estimate(paper("batch.max_tokens_per_device=200000"), "openrlhf", 80)
    most = int(refused.problems[0].split("at most ")[1].split()[0])
    fits = estimate(paper(f"batch.max_tokens_per_device={most}"), "openrlhf", 80)
    assert fits.problems == ()


def test_a_model_of_unknown_sizes_is_refused():
    with pytest.raises(RecipeError, match=r"config\.json"):
        estimate(paper("model.path=someone/model"), "trl", 80)


@pytest.mark.parametrize("gpus", ["8", "0x80", "eightx80"])
def test_gpus_are_number_and_size(gpus: str, capsys):
    arguments = ["plan", BASELINE, "--profile", "paper", "--trainer", "trl", "--gpus", gpus]
    assert main(arguments) != 0
    assert "8x80" in capsys.readouterr().err
