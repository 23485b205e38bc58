from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task
from inspect_ai import eval as inspect_eval
from inspect_ai.log import EvalLog
from inspect_ai.model import ModelOutput, ModelUsage, get_model

sys.path.insert(0, str(Path(__file__).parent))
import own_tasks


@pytest.fixture(autouse=True)
def watched() -> Iterator[list[own_tasks.Watched]]:
    """The environments of `own_tasks` that were made: one for the dataset, one for each sample."""
    made = own_tasks.Watched.made
    made.clear()
    yield made
    assert [env.closed for env in made] == [1] * len(made), "one was left open"


@pytest.fixture
def evaluate(tmp_path: Path) -> Callable[..., EvalLog]:
    """``evaluate(task, answer, **options)``: the log of an evaluation by Inspect.

    ``answer``: a function from the texts of a conversation to the next one, or to a `ModelOutput`.
    """

    def run(task: Task, answer: Callable[[list[str]], Any], **options: Any) -> EvalLog:
        def complete(messages: Any, *_: Any) -> ModelOutput:
            said = answer([message.text for message in messages])
            if not isinstance(said, ModelOutput):
                said = ModelOutput.from_content("mockllm/model", said)
            # Without a usage, Inspect counts tokens with a tokenizer that it would download.
            said.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
            return said

        model = get_model("mockllm/model", custom_outputs=complete, memoize=False)
        (log,) = inspect_eval(
            task, model=model, log_dir=str(tmp_path / "logs"), display="none", **options
        )
        return log

    return run
