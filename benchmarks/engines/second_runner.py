"""vLLM's Model Runner V2, which GPUs get, on a CPU by Triton's interpreter; see `run.py`.

Builds of vLLM for CPUs take the first runner. Here TRL trains with the second one, and its sampler
is compared with the first one's functions and with float64: which tokens may be drawn, their
log-probabilities, and what a seed decides.
"""

from __future__ import annotations

import interpreter  # before vLLM

# isort: split
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import trl_cases
from common import write_result

SEED = 0
VOCABULARY = 2_500
"""Tokens: more than two of the kernels' blocks of 1,024, the last one not full."""
TIMES = 1_000
"""Draws from one distribution."""
FEW_TOKENS = 8
CHI_SQUARE = 24.3
"""Largest accepted one of the frequencies: its chance is 0.001 with seven degrees of freedom."""
ROUNDING = 2e-6
"""Largest accepted error of a log-probability in float32."""
SAMPLINGS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.0},
    {"temperature": 0.7},
    {"temperature": 1.3, "top_k": 20},
    {"top_p": 0.8},
    {"top_p": 0.8, "top_k": 20},
    {"temperature": 0.7, "min_p": 0.05},
    {"temperature": 1.3, "top_k": 50, "top_p": 0.95, "min_p": 0.01},
    {"top_k": 1},
    {"top_p": 1e-6},
)
"""What the requests of a batch ask for; the other settings cut nothing off, at temperature 1."""


def train(name: str, folder: Path, steps: int) -> None:
    """Train as `trl_cases.colocate` does, with fewer episodes of evaluation."""
    keys = ("hardware.engine=vllm", "eval.episodes=200")
    trl_cases.trained(name, folder, trl_cases.recipe_of(steps, *keys))


def train_over_drawn(name: str, folder: Path, steps: int) -> None:
    """Train the policy that samples, where top-p and top-k cut tokens off.

    The engine reports which tokens could be drawn, and TRL's log-probabilities are over them.

    Raises:
        AssertionError: they are not the engine's, or would be without the sets, too.
    """
    sampling = ("sampling.top_p=0.8", "sampling.top_k=20", "sampling.support=drawn")
    sizes = ("batch.episodes=8", "eval.episodes=200")
    keys = ("hardware.engine=vllm", *sizes, *sampling)
    recipe = trl_cases.recipe_of(min(steps, 3), *keys)
    data = trl_cases.trained(name, folder, recipe)
    assert min(data["logprob_difference_at_temperature_1"]) > 0.1, data


def compare_sampler(name: str, folder: Path, steps: int) -> None:
    """Compare the sampler with the first runner's functions and with float64."""
    data = {
        **compare_rows(make_logits(len(SAMPLINGS), VOCABULARY)),
        **compare_neighbours(),
        **count_draws(),
    }
    print(write_result(name, SEED, {"case": name, **data}))


def make_logits(rows: int, tokens: int) -> torch.Tensor:
    """Return logits, [rows, tokens]: some are equal, some ruled out."""
    generator = torch.Generator().manual_seed(SEED)
    logits = 3 * torch.randn(rows, tokens, generator=generator)
    logits[:, 7] = logits[:, tokens - 3]  # in two blocks of the kernels
    logits[:, 11:19] = float("-inf")
    return logits


class Requests:
    """The second runner's sampler with requests in it.

    Args:
        samplings: arguments of ``vllm.SamplingParams``, one for each request.
        seeds: of the requests.
        tokens: of the vocabulary.
    """

    def __init__(
        self, samplings: Sequence[dict[str, Any]], seeds: Sequence[int], tokens: int
    ) -> None:
        import numpy
        import vllm.v1.worker.cpu.shm  # noqa: F401  (its buffers need no GPU)
        from vllm import SamplingParams
        from vllm.v1.worker.gpu.sample.sampler import Sampler
        from vllm.v1.worker.gpu.states import RequestState

        count, device = len(samplings), torch.device("cpu")
        states = RequestState(count, 64, 64, 0, tokens, device)
        self.sampler = Sampler(
            count, tokens, device, states, "processed_logprobs", return_sampling_mask=True
        )
        for place, (sampling, seed) in enumerate(zip(samplings, seeds, strict=True)):
            self.sampler.add_request(place, 1, SamplingParams(seed=seed, logprobs=0, **sampling))
        self.sampler.apply_staged_writes()
        self.places = numpy.arange(count)

    def draw(
        self, logits: torch.Tensor, positions: Sequence[int], places: Any = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the drawn tokens, [rows], and the logits they were drawn from, [rows, tokens].

        Args:
            logits: of the model, [rows, tokens].
            positions: of the drawn tokens in their sequences.
            places: which request a row is of; all in their order by default.
        """
        places = self.places if places is None else places
        rows = torch.as_tensor(places, dtype=torch.int32)
        nothing = torch.zeros(len(places), dtype=torch.int32)
        tokens, processed = self.sampler.sample(
            logits.clone(),
            rows,
            rows,
            places,
            torch.as_tensor(positions, dtype=torch.int64),
            nothing,
            nothing,
        )
        return tokens, processed


def first_runners_logits(logits: torch.Tensor) -> torch.Tensor:
    """Return the logits that the first runner draws from, by its own function for top-k and top-p.

    Temperature and min-p come before it, as in vLLM's documentation: min-p keeps the tokens whose
    probability is at least that share of the largest one.
    """
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

    column = {key: [s.get(key, other) for s in SAMPLINGS] for key, other in DEFAULTS.items()}
    temperature = torch.tensor(column["temperature"])[:, None]
    scaled = logits / temperature.where(temperature > 0, 1.0)
    shares = (scaled - scaled.amax(-1, keepdim=True)).exp()
    scaled = scaled.masked_fill(shares < torch.tensor(column["min_p"])[:, None], float("-inf"))
    top_k = torch.tensor([k if k > 0 else logits.shape[-1] for k in column["top_k"]])
    return apply_top_k_top_p_pytorch(scaled, top_k, torch.tensor(column["top_p"]))


DEFAULTS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def compare_rows(logits: torch.Tensor) -> dict[str, Any]:
    """Compare one draw for each way of sampling.

    Raises:
        AssertionError: other tokens may be drawn than in the first runner, a greedy request did
            not get the most likely token, or a log-probability is wrong.
    """
    from vllm.v1.worker.gpu.sample.logprob import compute_token_logprobs
    from vllm.v1.worker.gpu.sample.output import SamplingMaskTensors

    requests = Requests(SAMPLINGS, range(2**62, 2**62 + len(SAMPLINGS)), logits.shape[-1])
    tokens, processed = requests.draw(logits, [5] * len(logits))
    expected = first_runners_logits(logits)
    kept, kept_before = processed.isfinite(), expected.isfinite()
    assert torch.equal(kept, kept_before), (kept.sum(-1), kept_before.sum(-1))
    assert kept.gather(1, tokens[:, None]).all(), tokens
    assert tokens[1] == logits[1].argmax() and tokens[8] == logits[8].argmax(), tokens
    ones = torch.ones(len(logits), dtype=torch.int32)
    mask = SamplingMaskTensors.from_logits(processed, ones).tolists(ones.numpy())
    assert mask.token_ids.tolist() == kept.nonzero()[:, 1].tolist()
    found = compute_token_logprobs(processed, tokens[:, None])
    exact = expected.double().log_softmax(-1).gather(1, tokens[:, None])
    error = float((found - exact).abs().max())
    assert error < ROUNDING, error
    return {"kept": kept.sum(-1).tolist(), "logprob_error": error}


def compare_neighbours() -> dict[str, Any]:
    """Compare draws of one request: alone, among others, at another place, at other positions.

    Raises:
        AssertionError: what else is computed changed a draw, or nothing but the weights decides it.
    """
    count = 12
    logits = (make_logits(1, VOCABULARY) / 10).expand(count, -1)  # no token is likely
    seeds = [2**63 - 1 - number for number in range(count)]
    requests = Requests([{}] * count, seeds, VOCABULARY)
    together, _ = requests.draw(logits, [9] * count)
    backwards = requests.places[::-1].copy()
    reversed_rows, _ = requests.draw(logits, [9] * count, backwards)
    alone = [int(requests.draw(logits[:1], [9], backwards[i : i + 1])[0]) for i in (0, 5, 11)]
    later, _ = requests.draw(logits, range(10, 10 + count), [0] * count)
    assert torch.equal(together, reversed_rows.flip(0)), (together, reversed_rows)
    assert alone == [int(reversed_rows[i]) for i in (0, 5, 11)], alone
    seeds_differ, positions_differ = len(set(together.tolist())), len(set(later.tolist()))
    assert min(seeds_differ, positions_differ) > count // 2, (together, later)
    return {"tokens_of_12_seeds": seeds_differ, "tokens_of_12_positions": positions_differ}


def count_draws() -> dict[str, Any]:
    """Count draws of many seeds from one distribution.

    Raises:
        AssertionError: tokens are drawn more or less often than their probabilities say.
    """
    temperature = 0.7
    expected = (0.5 ** torch.arange(FEW_TOKENS)).double()
    expected /= expected.sum()
    requests = Requests([{"temperature": temperature}] * TIMES, range(TIMES), FEW_TOKENS)
    logits = (temperature * expected.log()).float().expand(TIMES, -1)
    tokens, _ = requests.draw(logits, [3] * TIMES)
    seen = tokens.bincount(minlength=FEW_TOKENS) / TIMES
    chi_square = float(TIMES * ((seen - expected).square() / expected).sum())
    assert chi_square < CHI_SQUARE, (chi_square, seen, expected)
    return {"draws": TIMES, "chi_square": chi_square}


CASES: dict[str, Callable[[str, Path, int], None]] = {
    "trl-second-runner": train,
    "trl-second-temperature": trl_cases.temperature,
    "trl-second-support": train_over_drawn,
    "trl-second-sampler": compare_sampler,
}


if __name__ == "__main__":
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    os.environ[trl_cases.CPU_VARIABLE] = "1"
    interpreter.prepare_vllm()
    case, folder_name, count = sys.argv[1:]
    CASES[case](case, Path(folder_name), int(count))
