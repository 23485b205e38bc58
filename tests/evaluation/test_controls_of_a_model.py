"""The controls that have a model: the one before training, sampled and greedy."""

from __future__ import annotations

from msgspec.structs import replace

from gem_core.evaluation.controls.file import CONTROLS
from gem_core.evaluation.controls.play import play_controls, read_trained
from gem_core.evaluation.local import evaluation_episodes
from gem_core.evaluation.outcomes import as_text
from gem_core.evaluation.progress import no_progress

COUNT = 24
SMALL = (
    "model.tiny.warm_start_steps=20",
    "model.tiny.warm_start_batch=16",
    f"eval.episodes={COUNT}",
)


def test_the_model_before_training_plays_the_episodes_of_a_run(model_dir, tmp_path):
    trained = read_trained("guess-the-number-easy", "tiny", SMALL)
    controls = play_controls(trained, model_dir, tmp_path / "c", progress=no_progress)
    assert tuple(controls.outcomes) == CONTROLS
    recipe = trained.recipe
    greedy = replace(recipe, eval=replace(recipe.eval, temperature=0.0))
    for name, of in (("start_sampled", recipe), ("start_greedy", greedy)):
        expected = as_text(e.success for e in evaluation_episodes(of, model_dir))
        assert controls.outcomes[name] == [expected], name
    assert controls.outcomes["start_sampled"] != controls.outcomes["start_greedy"]
    assert controls.start == model_dir.rpartition("/")[2]
