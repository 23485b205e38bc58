"""What a user of Inspect writes to play gem-core's environments; the model is a script."""

from itertools import repeat

from inspect_ai import Task, task
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from gem_bridges.as_inspect import gem_task

USAGE = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
"""Without it, Inspect counts tokens with a tokenizer that it would download."""


@task
def guess(seeds: int = 100) -> Task:
    said = ModelOutput.from_content("mockllm/model", "\\boxed{5}")
    said.usage = USAGE
    return gem_task(
        "game:GuessTheNumber-v0-easy",
        {"max_turns": 3},
        seeds=seeds,
        first_seed=7,
        model=get_model("mockllm/model", custom_outputs=repeat(said)),
    )
