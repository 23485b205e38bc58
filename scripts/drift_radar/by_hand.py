"""What the source of the adapters does not say of the trainers, and where the settings are."""

from __future__ import annotations

from drift_radar.scan import Use

BY_HAND: dict[str, tuple[tuple[str, Use], ...]] = {
    "trl": tuple(
        # `check_private_signatures` looks them up by their bare names.
        ("_compat.py", Use(f"trl.GRPOTrainer.{name}", "exact", 1))
        for name in (
            "_generate_and_score_completions",
            "_generate_single_turn",
            "_build_accelerator_args",
        )
    ),
    # OpenRLHF's and Oat's configurations are parsed by the functions that these modules call.
    "openrlhf": (("launch.py", Use("openrlhf.cli.train_ppo_ray", "use", 1)),),
}
"""Trainer -> file of its adapter, and a seam that cannot be read there."""
OTHER_SOURCE = {"rl2": ("newer",)}
"""Trainer -> folders of its adapter for a source that the package index does not have."""
ABSENT = frozenset({"RL2.utils.communication", "verl.log"})
"""No seams: what tells another source of a trainer from its releases, and a file's name."""
FIELDS = {"trl": "trl.GRPOConfig", "oat": "oat.algorithms.ppo.PPOArgs"}
"""Trainer -> class whose fields are its settings."""
ARGUMENTS = {"openrlhf": "openrlhf.cli.train_ppo_ray"}
"""Trainer -> module that declares its settings as command-line arguments."""
HYDRA = {
    "verl": "verl/trainer/config/_generated_ppo_trainer.yaml",
    "rl2": "RL2/trainer/config/ppo.yaml",
}
"""Trainer -> file in the wheel that has its settings."""
