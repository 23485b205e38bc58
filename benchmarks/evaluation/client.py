"""One measured client: ``python client.py NAME URL EPISODES``; it prints a JSON object.

All clients play the same number of episodes of five turns at the same time. What is measured is the
processor time of this process from the first request on, and its largest resident memory.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TURNS = 5
QUESTION = "Guess a number from 1 to 10. Write your answer like this: \\boxed{5}. " * 3
Used = tuple[float, int]
"""Processor seconds, and turns."""


def gem_core(url: str, episodes: int) -> Used:
    """``gem-core eval``: environment, messages, answer, rows, episodes on disk, summary."""
    from gem_core.evaluation.contenders import EndpointModel
    from gem_core.evaluation.evaluation import run_evaluation
    from gem_core.evaluation.plan import count_tasks, read_subject
    from gem_core.evaluation.progress import show_progress
    from gem_core.policies.endpoint.policy import EndpointConfig

    # Zero is never right, so that each episode has all of its turns.
    subject = read_subject(
        ["game:GuessTheNumber-v0-easy"], None, [f"env.0.kwargs.max_turns={TURNS}"]
    )
    model = EndpointModel(EndpointConfig(base_url=url, model="m"), concurrency=episodes)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        result = run_evaluation(
            subject,
            count_tasks(subject, None, episodes),
            model,
            Path(folder) / "eval",
            progress=show_progress,
        )
    assert result["metrics"]["episodes"] == episodes and not result["errors"]
    return time.process_time() - began, round(result["metrics"]["turns/mean"] * episodes)


def openai_sdk(url: str, episodes: int) -> Used:
    """The openai SDK alone: a conversation, no environment, nothing stored."""
    import openai

    async def episode(client: openai.AsyncOpenAI) -> None:
        messages = []
        for _ in range(TURNS):
            messages.append({"role": "user", "content": QUESTION})
            done = await client.chat.completions.create(model="m", messages=messages, max_tokens=64)
            messages.append({"role": "assistant", "content": done.choices[0].message.content})

    async def all_of_them() -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=2) as client:
            await asyncio.gather(*[episode(client) for _ in range(episodes)])

    began = time.process_time()
    asyncio.run(all_of_them())
    return time.process_time() - began, episodes * TURNS


def inspect_ai(url: str, episodes: int) -> Used:
    """Inspect: a task with one sample per episode and a solver of five turns, logged to disk."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageUser, GenerateConfig, get_model
    from inspect_ai.scorer import match
    from inspect_ai.solver import solver

    @solver
    def turns():  # type: ignore[no-untyped-def]
        async def solve(state, generate):  # type: ignore[no-untyped-def]
            for _ in range(TURNS - 1):
                state = await generate(state)
                state.messages.append(ChatMessageUser(content=QUESTION))
            return await generate(state)

        return solve

    samples = MemoryDataset([Sample(input=QUESTION, target="0") for _ in range(episodes)])
    task = Task(dataset=samples, solver=turns(), scorer=match())
    config = GenerateConfig(max_connections=episodes, max_tokens=64)
    model = get_model("openai-api/local/m", base_url=url, api_key="x", config=config)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        logs = eval(
            task, model=model, log_dir=folder, display="none", max_samples=episodes,
            max_connections=episodes,
        )  # fmt: skip
    assert logs[0].status == "success", logs[0].error
    return time.process_time() - began, episodes * TURNS


CLIENTS: dict[str, Callable[[str, int], Used]] = {
    "gem-core eval": gem_core,
    "openai SDK alone": openai_sdk,
    "inspect_ai": inspect_ai,
}


def main() -> None:
    name, url, episodes = sys.argv[1:]
    began = time.perf_counter()
    seconds, turns = CLIENTS[name](url, int(episodes))
    measured = {
        "client": name,
        "episodes": int(episodes),
        "turns": turns,
        "cpu_ms_per_turn": round(seconds / turns * 1000, 3),
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "wall_s": round(time.perf_counter() - began, 2),
    }
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
