"""Episodes of a run's first and last training step, as they were played."""

from __future__ import annotations

import html
import textwrap
from pathlib import Path
from typing import Any

from gem_core.episodes.data import Episode
from gem_core.runs.directory import files as run_files
from gem_core.runs.directory.run_dir import RunDir

FILE = "samples.json"
"""What `keep_samples` writes, beside the kept figures of a run."""
EACH = 2
"""Episodes of a step: the first that the run stored, whatever came out."""


def keep_samples(run: RunDir, target: Path) -> None:
    """Write the texts of `EACH` episodes of the first and of the last step to ``target``.

    A run that stored no episodes (``train.log_episodes = 0``) leaves no file.
    """
    steps: dict[int, list[Episode]] = {}
    for tags, episode in run.episodes():
        if tags["split"] == "train":
            steps.setdefault(tags["step"], []).append(episode)
    if not steps:
        return
    texts = [
        _text(step, episode) for step in (min(steps), max(steps)) for episode in steps[step][:EACH]
    ]
    run_files.write_object(target / FILE, {"episodes": texts})


def samples_section(folder: Path) -> list[str]:
    """Return the kept episodes of a run as Markdown, and nothing where none were kept."""
    if not (folder / FILE).exists():
        return []
    episodes = run_files.read_object(folder / FILE)["episodes"]
    seed = folder.name.rpartition("-seed")[2]
    text = (
        f"\nThe first {EACH} episodes that were stored of the first and of the last step, "
        f"seed {seed}, each with its turns:\n"
    )
    shown = html.escape(
        "\n".join(line for episode in episodes for line in _lines(episode)), quote=False
    )
    return [text, f"<pre>\n{shown}\n</pre>"]


def _text(step: int, episode: Episode) -> dict[str, Any]:
    turns = [[turn.observation, turn.action] for turn in episode.turns]
    return {
        "step": step,
        "success": episode.success,
        "turns": turns,
        "final_observation": episode.final_observation,
    }


def _lines(episode: dict[str, Any]) -> list[str]:
    """Return an episode as lines; ``>`` stands before those of the model."""
    lines = [f"step {episode['step']}, {'solved' if episode['success'] else 'not solved'}"]
    for observation, action in episode["turns"]:
        lines += [*_indented(observation), *(f"  > {line}" for line in action.splitlines() or [""])]
    return [*lines, *_indented(episode["final_observation"])]


def _indented(text: str) -> list[str]:
    return [
        textwrap.indent(part, "  ")
        for line in text.strip().splitlines()
        for part in textwrap.wrap(line, 96) or [""]
    ]
