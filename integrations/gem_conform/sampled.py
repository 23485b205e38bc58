"""What the engine samples with: every stop token of the model, and the model without dropout."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from gem_conform.candidate import Candidate
from gem_conform.dropout import add_dropout
from gem_conform.failures import NotConforming, require_none
from gem_core.runs.directory.run_dir import RunDir

TOP_K = 3
SAMPLED = (
    "train.steps=1",
    "eval.every=1",
    "eval.inside_episodes=6",
    "train.log_episodes=8",
    f"sampling.top_k={TOP_K}",
)
"""Overrides of the run. Its evaluation comes after the update, when the engine has new weights."""
LARGEST = 1e-4
"""Largest difference of a log-probability to that of the exported model."""
Action = tuple[list[int], list[int], list[float]]
"""Tokens before an action, its tokens, and their log-probabilities."""


def check_sampling(candidate: Candidate) -> str:
    """Actions end at every stop token of the model, and an engine samples it without dropout."""
    folder = candidate.path("two-stop-tokens")
    second = write_model(candidate, folder)
    env = add_dropout(candidate.folder / "dropout")
    run = candidate.run("sampling", f'model.path="{folder}"', *SAMPLED, env=env)
    found = {split: list(actions(run, split)) for split in ("train", "eval")}
    _require_stops([*found["train"], *found["eval"]], second)
    worst = largest_difference(run, found["eval"])
    if not worst <= LARGEST:
        raise NotConforming(
            f"the evaluation's log-probabilities differ from the model's without dropout, with "
            f"top_k = {TOP_K}, by {worst:.2g}"
        )
    return (
        f"{len(found['train'])} and {len(found['eval'])} actions end at either stop token; "
        f"largest difference of a log-probability: {worst:.1e}"
    )


def write_model(candidate: Candidate, folder: Path) -> int:
    """Write the tiny model with a second stop token; return that token.

    It is the first digit, which the policy samples in the middle of many actions.
    """
    from transformers import AutoTokenizer

    from gem_core.training.tiny import model_path

    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model_path(candidate.recipe()), folder)
    second: int = AutoTokenizer.from_pretrained(folder).encode("1", add_special_tokens=False)[-1]
    path = folder / "generation_config.json"
    settings = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    first = json.loads((folder / "config.json").read_text(encoding="utf-8"))["eos_token_id"]
    settings["eos_token_id"] = [first, second]
    path.write_text(json.dumps(settings), encoding="utf-8")
    return second


def actions(run: RunDir, split: str) -> Iterator[Action]:
    """Yield the logged actions of a run."""
    for tags, episode in run.episodes():
        if tags["split"] == split:
            for segment in episode.segments:
                for _, start, end in segment.spans:
                    ids, logprobs = segment.token_ids, segment.logprobs or []
                    yield ids[:start], ids[start:end], logprobs[start:end]


def _require_stops(found: list[Action], second: int) -> None:
    if not any(ids[-1] == second for _, ids, _ in found):
        raise NotConforming("no action has the second stop token")
    beyond = [ids for _, ids, _ in found if second in ids[:-1]]
    require_none(f"stop token {second} did not reach the engine: it went on in", beyond[:3])


def largest_difference(run: RunDir, found: list[Action]) -> float:
    """Return by how much log-probabilities differ from the exported model's in evaluation mode.

    It is infinite where a token is not among the `TOP_K` most likely.

    Raises:
        NotConforming: there is no action.
    """
    import torch

    from gem_core.policies.models.weights import load_model

    if not found:
        raise NotConforming("the log has no episode of the evaluation inside training")
    trained = load_model(run.model).eval()
    worst = 0.0
    for prompt, ids, logprobs in found:
        with torch.no_grad():
            logits = trained(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 :]
        logits = logits[:-1].double() / run.recipe.eval.temperature
        logits[logits < logits.topk(TOP_K).values[:, -1:]] = -torch.inf
        chosen = torch.log_softmax(logits, -1).gather(1, torch.tensor(ids)[:, None])[:, 0]
        worst = max(worst, float((chosen - torch.tensor(logprobs).double()).abs().max()))
    return worst
