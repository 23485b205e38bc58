"""The model card: what was trained, how, and what was measured. No figure is made up here."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gem_core.results.tables import HEAD, markdown_table, result_rows, success
from gem_core.runs.directory.run_dir import RunDir
from gem_push.evidence import Measurements

_WORD = re.compile(r"[\w-]+", re.ASCII)
_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]|#!"})


def model_card(
    run: RunDir,
    result: Mapping[str, Any],
    repo: str,
    evidence: Measurements,
    curve: str | None,
    changed: Sequence[str] | None,
) -> str:
    """Return ``README.md`` of the model repository.

    Args:
        run: the run.
        result: its ``result.json``.
        repo: ``OWNER/NAME``.
        evidence: controls and lockstep, each named only where it was measured.
        curve: file of the learning curve in the repository; ``None`` = there is none.
        changed: keys of the recipe whose values were not published; ``None`` = the repository has
            no recipe that can be run.
    """
    parts = [
        _head(run),
        f"# {plain(repo)}",
        _summary(run, result),
        "## Evaluation\n\n"
        "Success with its 95 % interval, before and after training, on the same tasks.\n\n"
        + markdown_table(HEAD, [_row(row) for row in result_rows([result])]),
    ]
    if evidence.controls:
        parts.append(_controls(evidence, result))
    if curve:
        parts.append(f"## Learning curve\n\n![success over training steps]({curve})")
    if evidence.lockstep:
        parts.append(_lockstep(run, evidence))
    parts += [_recipe(run, repo, changed), _versions(run)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def plain(text: object) -> str:
    """Return a text of a run so that Markdown and HTML show it as it is, in one line.

    >>> plain("a|b <script>\\n**c**")
    'a\\\\|b &lt;script&gt; \\\\*\\\\*c\\\\*\\\\*'
    """
    return html.escape(" ".join(str(text).split()), quote=False).translate(_MARKS)


def _row(row: Sequence[str]) -> tuple[str, ...]:
    """Return the cells of a result; all but its names are figures, whose brackets stay."""
    return (*map(plain, row[:3]), *row[3:])


def _head(run: RunDir) -> str:
    """Return the metadata; a JSON string is one of YAML, too."""
    lines = ["library_name: transformers", "tags:", "- gem-core", "- reinforcement-learning"]
    lines.append(f"- {json.dumps(str(run.info['trainer']))}")
    return "\n".join(["---", *lines, "---"])


def _summary(run: RunDir, result: Mapping[str, Any]) -> str:
    ids = ", ".join(plain(env["id"]) for env in result.get("environments", ()))
    task = ids or plain(result["name"])
    return (
        f"Trained by gem-core with {plain(result['trainer'])} on {task}: {result['steps']} steps, "
        f"estimator {plain(result['estimator'])}, seed {result['seed']}."
    )


def _controls(evidence: Measurements, result: Mapping[str, Any]) -> str:
    rows = [(plain(name), f"{rate:.3f}") for name, rate in evidence.controls.items()]
    rows.append(("this model", success(result["after"])))
    return (
        "## Controls\n\nWhat players reach that have learned nothing of the answers "
        "(`gem-core controls`).\n\n" + markdown_table(("player", "success"), rows)
    )


def _lockstep(run: RunDir, evidence: Measurements) -> str:
    rows = [
        (plain(other), f"{same} of {evidence.steps}") for other, same in evidence.lockstep.items()
    ]
    trainer = plain(run.info["trainer"])
    return (
        f"## Lockstep\n\nThe experiment (this recipe and seed) was run in {trainer} and in the "
        "trainers below; from the first step on, so many steps drew the same tokens "
        "(`gem-core compare --lockstep`).\n\n" + markdown_table(("trainer", "same tokens"), rows)
    )


def _recipe(run: RunDir, repo: str, changed: Sequence[str] | None) -> str:
    name = plain(run.recipe.name)
    if changed is None:
        return f"## Recipe\n\n`recipe.json` has every key of the recipe {name}."
    trainer = str(run.info["trainer"])
    lines = [
        f"## Recipe\n\n`recipe.toml` has every key of the recipe {name}; `recipe.json` has the "
        "same for programs. With gem-core and the trainer in the versions below, this runs the "
        "experiment again:",
        f"```bash\nhf download {repo} recipe.toml --local-dir .\n"
        f"gem-core train recipe.toml --trainer {trainer if _WORD.fullmatch(trainer) else 'NAME'}"
        "\n```",
    ]
    if changed:
        lines.append(
            f"Before that, write your own values of {', '.join(map(plain, changed))}: those of the "
            "run were places on a machine, or secrets, and are not published."
        )
    return "\n\n".join(lines)


def _versions(run: RunDir) -> str:
    info = run.info
    versions = {**info.get("versions", {}), "Python": info.get("python", "?")}
    rows = [(plain(name), plain(version)) for name, version in sorted(versions.items())]
    commit = info.get("commit")
    line = f"\nCommit of gem-core: {plain(commit)}." if commit else ""
    return "## Versions\n\n" + markdown_table(("package", "version"), rows) + line
