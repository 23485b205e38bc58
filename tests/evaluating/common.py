"""What the tests of whole evaluations share."""

from __future__ import annotations

import json

from gem_core.evaluation.contenders import EndpointModel, ScriptedPlayer
from gem_core.evaluation.evaluation import run_evaluation
from gem_core.evaluation.folder import ITEMS, EvalDir
from gem_core.evaluation.plan import count_tasks, read_subject
from gem_core.evaluation.progress import show_progress
from gem_core.policies.endpoint.policy import EndpointConfig
from gem_core.policies.endpoint.retries import RetryConfig

GAME = "game:GuessTheNumber-v0-easy"
HARD = "game:GuessTheNumber-v0-hard"


def evaluated(out, sources=(GAME,), contender=None, *, tasks=5, overrides=(), **options):
    """Evaluate; return the result and the directory."""
    subject = read_subject(sources, None, overrides)
    result = run_evaluation(
        subject,
        count_tasks(subject, None, tasks),
        contender or ScriptedPlayer("random"),
        out,
        progress=show_progress,
        **options,
    )
    return result, EvalDir(out)


def endpoint(server, *, concurrency=16, **options):
    retry = RetryConfig(attempts=3, first_pause_s=0.002, longest_pause_s=0.05)
    config = EndpointConfig(base_url=server.url, model="m", timeout_s=0.5, retry=retry, **options)
    return EndpointModel(config, concurrency=concurrency)


def indices(folder):
    """The item of every line of the file, repeated ones too."""
    return [json.loads(line)["item"] for line in (folder.path / ITEMS).read_text().splitlines()]
