"""TRL's Triton kernels, which it takes on a GPU, on a CPU by Triton's interpreter; see `run.py`.

On a CPU TRL computes log-probabilities in plain torch. Here its kernels are compared with float64,
and TRL trains with them, token by token as without.
"""

from __future__ import annotations

import interpreter  # before Triton

# isort: split
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from common import write_result
from trl.kernels import ChunkedLogProbFunction, chunked_logprob
from trl.kernels import selective_log_softmax_and_entropy as score_logits
from trl.trainer import utils

from gem_core.runs.recipe.load import load_recipe
from gem_core.training.experiment import run_experiment

SEED = 0
BASELINE = "guess-the-number-easy"
ROWS, WIDTH, VOCABULARY = 6, 16, 2_500
"""Tokens, numbers of a hidden state, words; a kernel's block has 1,024 words."""
CHUNK = 1_536
"""Words of a chunk of the head: one and a half blocks."""
ROUNDING = 1e-5
"""Largest accepted error of a log-probability, an entropy or a gradient in float32."""
ROUNDING_BFLOAT16 = 0.05
"""The same where the head's logits are bfloat16."""
METRICS = ("loss/policy", "grad_norm", "entropy", "rollout/logprob_difference")
"""What is compared of each step of a training."""
HEADS: dict[str, dict[str, Any]] = {
    "plain": {},
    "temperature 0.7": {"temperature": 0.7},
    "soft cap 30": {"softcap": 30.0},
    "bias": {"bias": True},
    "bfloat16": {"dtype": torch.bfloat16},
}


@contextmanager
def using_triton(use: bool) -> Iterator[None]:
    """Have TRL take its kernels, or plain torch, as if the device were a GPU or not."""
    modules = (chunked_logprob, utils)
    before = [module._use_triton for module in modules]
    for module in modules:
        module._use_triton = lambda device: use
    try:
        yield
    finally:
        for module, function in zip(modules, before, strict=True):
            module._use_triton = function


def make_head(
    bias: bool = False, dtype: torch.dtype = torch.float32, **_: Any
) -> dict[str, torch.Tensor | None]:
    """Return hidden states [rows, width], weights [words, width], a bias or none."""
    generator = torch.Generator().manual_seed(SEED)
    shapes = {"hidden": (ROWS, WIDTH), "weight": (VOCABULARY, WIDTH), "bias": (VOCABULARY,)}
    made = {key: torch.randn(shape, generator=generator) for key, shape in shapes.items()}
    return {
        key: value.to(dtype).requires_grad_() if key != "bias" or bias else None
        for key, value in made.items()
    }


def score_exactly(
    head: Mapping[str, torch.Tensor | None],
    targets: torch.Tensor,
    temperature: float = 1.0,
    softcap: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities and entropies in float64, [rows] each."""
    hidden, weight, bias = (None if part is None else part.double() for part in head.values())
    assert hidden is not None and weight is not None
    logits = hidden @ weight.T + (0 if bias is None else bias)
    if softcap is not None:
        logits = softcap * (logits / softcap).tanh()
    logprobs = (logits / temperature).log_softmax(-1)
    return logprobs.gather(1, targets[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(-1)


def weigh(scores: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Return a loss with another weight for each log-probability and entropy."""
    weights = torch.arange(1, ROWS + 1) / ROWS
    loss: torch.Tensor = (weights * scores[0] - 0.3 * weights.flip(0) * scores[1]).sum()
    return loss


def find_error(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """Return the largest difference, relative to the largest number of its tensor."""
    pairs = zip(found, expected, strict=True)
    return max(float((a.double() - b).abs().max() / b.abs().max()) for a, b in pairs)


def compare_head(dtype: torch.dtype = torch.float32, **how: Any) -> float:
    """Return the largest error of the head's scores and gradients against float64."""
    targets = torch.tensor([0, 1_023, 1_024, 1_536, 2_000, VOCABULARY - 1])
    head = make_head(dtype=dtype, **how)
    parts = [part for part in head.values() if part is not None]
    temperature, softcap = how.get("temperature", 1.0), how.get("softcap")
    expected = score_exactly(head, targets, temperature, softcap)
    gradients = torch.autograd.grad(weigh(expected), parts)
    with using_triton(True):
        scores = ChunkedLogProbFunction.apply(
            *head.values(), targets, temperature, CHUNK, softcap, 1.0, ("entropy",)
        )[:2]
        found = torch.autograd.grad(weigh(scores), parts)
    return find_error([*scores, *found], [*expected, *(g.double() for g in gradients)])


def compare_logits() -> float:
    """Return the largest error of the kernel that has all logits, half of its rows masked out.

    Raises:
        AssertionError: a row that is masked out has a score or a gradient.
    """
    generator = torch.Generator().manual_seed(SEED)
    logits = torch.randn(2, ROWS, VOCABULARY, generator=generator).requires_grad_()
    targets = torch.randint(VOCABULARY, (2, ROWS), generator=generator)
    mask = torch.tensor([[True] * ROWS, [False] * ROWS])
    scores = score_logits(logits, targets, 0.7, mask)
    loss = sum(weigh(pair) for pair in zip(*scores, strict=True))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert not gradient[1].any() and not scores[0][1].any() and not scores[1][1].any()
    exact = logits[0].double().div(0.7).log_softmax(-1)
    chosen = exact.gather(1, targets[0, :, None])[:, 0]
    expected = chosen, -(exact.exp() * exact).sum(-1)
    (wanted,) = torch.autograd.grad(weigh(expected), logits)
    return find_error([scores[0][0], scores[1][0], gradient[0]], [*expected, wanted[0].double()])


def score_model(model: Any, labels: torch.Tensor, use: bool) -> list[torch.Tensor]:
    """Return log-probabilities, entropies and gradients of a model with TRL's fused head."""
    model.zero_grad()
    with using_triton(use):
        output = model(input_ids=labels.abs(), labels=labels, fused_lm_head=True)
        (output.log_probs.sum() + 0.3 * output.entropy.sum()).backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return [output.log_probs.detach(), output.entropy.detach(), *gradients]


def compare_compacted() -> dict[str, float]:
    """Compare the head that scores the unmasked tokens alone with the one that scores all.

    Returns:
        The largest difference of a score or a gradient, for a batch with a row that is masked out.

    Raises:
        AssertionError: a batch that is masked out as a whole has a gradient, or has no gradients,
            which data parallel training would wait for.
    """
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(SEED)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=VOCABULARY, **sizes, **heads))
    utils.add_fused_lm_head(model, temperature=0.7, outputs=("log_probs", "entropy"))
    labels = torch.randint(VOCABULARY, (3, 5))
    labels[0, :2] = labels[1] = -100
    found, expected = (score_model(model, labels, use) for use in (True, False))
    difference = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))
    nothing = score_model(model, torch.full_like(labels, -100), True)
    assert len(nothing) == len(found) and all(not part.any() for part in nothing)
    return {"compacted": difference}


def train(folder: Path, use: bool) -> tuple[list[list[int]], list[dict[str, Any]]]:
    """Train three steps; return the tokens of all episodes and the metrics of all steps."""
    keys = ["train.steps=3", "batch.episodes=8", "eval.episodes=8", "train.log_episodes=8"]
    with using_triton(use):
        run = run_experiment(load_recipe(BASELINE, "tiny", keys), "trl", folder)
    rows = [segment.token_ids for _, episode in run.episodes() for segment in episode.segments]
    return rows, run.metrics()


def compare_training(folder: Path) -> dict[str, Any]:
    """Train with the kernels and without.

    Raises:
        AssertionError: other tokens were drawn, or a step's loss or gradient differs.
    """
    launches = count_launches()
    (tokens, metrics), (expected, before) = (
        train(folder.with_name(f"{folder.name}-{use}"), use) for use in (True, False)
    )
    assert tokens == expected and len(tokens) == 24, len(tokens)
    pairs = [(a[n], b[n]) for a, b in zip(metrics, before, strict=True) for n in METRICS]
    difference = max(abs(a - b) for a, b in pairs)
    assert difference < ROUNDING, pairs
    assert launches["kernels"] > 0, "TRL did not take its kernels"
    return {"steps": len(metrics), "episodes": len(tokens), "training": difference, **launches}


def count_launches() -> dict[str, int]:
    """Count how often TRL launches the head's kernels from now on."""
    counts = {"kernels": 0}

    class Counted:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, grid: Any) -> Any:
            counts["kernels"] += 1
            return self.kernel[grid]

    for name in ("_forward_kernel", "_backward_kernel"):
        setattr(chunked_logprob, name, Counted(getattr(chunked_logprob, name)))
    return counts


def compare(name: str, folder: Path, steps: int) -> None:
    """Compare each kernel, then a training."""
    errors = {key: compare_head(**how) for key, how in HEADS.items()}
    errors |= {"all logits": compare_logits(), **compare_compacted()}
    print(errors)
    for key, error in errors.items():
        assert error < (ROUNDING_BFLOAT16 if key == "bfloat16" else ROUNDING), errors
    print(write_result(name, SEED, {"case": name, "errors": errors, **compare_training(folder)}))


CASES: dict[str, Callable[[str, Path, int], None]] = {"trl-kernels": compare}


if __name__ == "__main__":
    assert interpreter.os.environ["TRITON_INTERPRET"] == "1"
    case, folder_name, count = sys.argv[1:]
    CASES[case](case, Path(folder_name), int(count))
