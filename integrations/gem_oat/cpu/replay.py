"""A frozen batch through the real package, for the parity tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from gem_core.episodes.data import Episode
from gem_core.errors import GemError
from gem_core.parity.replay import Replay, Row
from gem_core.training.recipe import Recipe
from gem_core.training.runs import RunDir
from gem_oat.cpu import install


def replay(recipe: Recipe, episodes: Sequence[Episode], model_dir: str) -> Replay:
    """Rows, loss and gradient of the first update that Oat makes on ``episodes``.

    Oat has a row per turn; rows of one segment are joined, after checking that each is a prefix of
    the next, so that they can be compared with the reference.
    """
    install()
    from gem_oat.cpu.in_process import make

    with TemporaryDirectory() as folder:
        run = RunDir(Path(folder))
        learner: Any = make(_arguments(recipe, run, model_dir), _capturing(), alone=True)
        learner._init(learner.args, learner.actors)
        learner.steps, learner.gradient_update_st = 0, 0.0
        _feed(learner, recipe, episodes)
        learner.learn(1)
    return Replay(_join(learner.seen), learner.first_loss, learner.gradients)


def _arguments(recipe: Recipe, run: RunDir, model_dir: str) -> Any:
    from gem_oat import config
    from gem_oat.learner import GemRun

    args = config.arguments(recipe)
    args.pretrain = args.ref_pretrain = args.critic_pretrain = model_dir
    args.save_path, args.gem = str(run.path / "oat"), GemRun(recipe, run)
    args.tokenizer = _tokenizer(run.path / "tokenizer")
    return args


def _tokenizer(path: Path) -> str:
    """Oat wants a tokenizer beside the model; nothing is tokenised here but padding."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<end>": 1}, unk_token="<pad>"))
    fast = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>")
    fast.save_pretrained(path)
    return str(path)


def _feed(learner: Any, recipe: Recipe, episodes: Sequence[Episode]) -> None:
    from gem_oat.rollout import to_native
    from gem_oat.rows import turn_rows

    ids = sorted({episode.env_id for episode in episodes})
    rows = [
        to_native(row)
        for number, episode in enumerate(episodes)
        for row in turn_rows(episode, number, ids.index(episode.env_id))
    ]
    learner.process_feedback_data(rows)


def _capturing() -> type:
    """The learner of the harness, keeping the first gradient and what each row was given."""
    from deepspeed.utils import safe_get_full_grad

    from gem_oat.cpu.in_process import InProcessLearner

    class Capturing(InProcessLearner):
        first_loss: float
        gradients: dict[str, np.ndarray]
        seen: list[tuple[Any, list[int], int, float]]

        def learning_step(self, trajectory: dict[str, Any]) -> dict[str, Any]:
            step = self.strategy.optimizer_step
            self.gradients, self.trajectory = {}, trajectory

            def capture(optimizer: Any, model: Any, scheduler: Any, **kwargs: Any) -> None:
                engine = self.model.model
                due = model is self.model and engine.is_gradient_accumulation_boundary()
                if due and not self.gradients:
                    self.first_loss = self.loss.sums["loss/policy"]
                    for name, parameter in engine.module.named_parameters():
                        gradient = safe_get_full_grad(parameter)
                        self.gradients[name] = gradient.double().numpy().copy()
                step(optimizer, model, scheduler, **kwargs)

            self.strategy.optimizer_step = capture
            try:
                return super().learning_step(trajectory)
            finally:
                self.strategy.optimizer_step = step

        def compute_monte_carlo_advantages(self, rewards: Any, response_masks: Any) -> Any:
            advantages = super().compute_monte_carlo_advantages(rewards, response_masks)
            lengths = self.trajectory["attention_mask"].sum(1).long().tolist()
            self.seen = []
            for n, row in enumerate(self.rows):
                ids = self.trajectory["input_ids"][n, : lengths[n]].tolist()
                start = self.trajectory["prompt_ids_lens"][n]
                if self.trajectory["loss_masks"][n]:
                    self.seen.append((row, ids, start, float(advantages[n])))
            return advantages

    return Capturing


def _join(seen: list[tuple[Any, list[int], int, float]]) -> list[Row]:
    """One row per segment from one row per turn."""
    joined: dict[tuple[int, int], Row] = {}
    for row, ids, start, advantage in sorted(seen, key=lambda item: item[0][:2]):
        key = (row.episode, row.segment)
        before = joined.get(key) or Row(row.episode, [], [], np.zeros(0))
        old = len(before.token_ids)
        if ids[:old] != before.token_ids or start < old:
            raise GemError(f"The turns of segment {key} do not continue one another.")
        mask = before.loss_mask + [0] * (start - old) + [1] * (len(ids) - start)
        values = np.concatenate(
            [before.advantages, np.zeros(start - old), np.full(len(ids) - start, advantage)]
        )
        joined[key] = Row(row.episode, ids, mask, values)
    return list(joined.values())
