"""``gem-core controls``."""

from __future__ import annotations

import argparse

from gem_core.cli.output import is_quiet, print_json, quiet_libraries


def controls(arguments: argparse.Namespace) -> int:
    """Play the controls of a run or a recipe, and print what each reaches."""
    import msgspec

    from gem_core.evaluation.controls.play import play_controls, read_trained
    from gem_core.evaluation.progress import no_progress, show_progress
    from gem_core.results.tables import markdown_table, plain_table

    quiet_libraries()
    trained = read_trained(
        arguments.source, arguments.profile, arguments.overrides, arguments.episodes
    )
    start = None
    if not arguments.players_only:
        from gem_core.policies.models.source import require_hf
        from gem_core.training.tiny import model_path

        require_hf("The model before training (--players-only leaves it out)")
        start = model_path(trained.recipe)
    played = play_controls(
        trained,
        start,
        arguments.out,
        samples=arguments.samples,
        if_exists=(
            "resume" if arguments.resume else "overwrite" if arguments.overwrite else "error"
        ),
        progress=no_progress if is_quiet() else show_progress,
    )
    if arguments.json:
        print_json(arguments, msgspec.to_builtins(played))
        return 0
    table = markdown_table if arguments.markdown else plain_table
    rows = [(name, f"{success:.3f}") for name, success in played.success.items()]
    print(table(("control", "success"), rows))
    return 0
