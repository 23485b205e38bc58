"""Faults as changes of the source, each put into a copy of the tree by ``changes.py --faults``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """One change of one place.

    Attributes:
        name: what is wrong then.
        trainer: in whose environment the detectors run; "none" for the core.
        detectors: names of `changes.DETECTORS` and its like; the first that is red ends the trial.
        file: the source file.
        old: its text, which it has once.
        new: what takes its place.
        why_green: why no detector finds it, where that is known.
    """

    name: str
    trainer: str
    detectors: tuple[str, ...]
    file: str
    old: str
    new: str
    why_green: str = ""

    def put_into(self, tree: Path) -> None:
        """Change the file in a copy of the tree; end the program where it has another text."""
        path = tree / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise SystemExit(f"{self.file} does not have this once: {self.old!r}")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


RUN = ("recorded runs",)
ENGINE = ("weights of the engine",)
SAMPLING = ("sampling",)
STATE = "gem_core/episodes/state.py"
TOKEN_ROWS = "integrations/gem_adapters/token_rows.py"
_ADVANCE = "        turn.reward = reward\n        turn.info = info\n"

STALE_WEIGHTS = (
    Fault(
        "every second weight update of the engine skipped",
        "rl2",
        ENGINE,
        "integrations/gem_rl2/cpu/engine.py",
        "        await self.engines.live.update(self._write, named)\n",
        "        self.skip = not getattr(self, 'skip', True)\n"
        "        if not self.skip:\n"
        "            await self.engines.live.update(self._write, named)\n",
    ),
    Fault(
        "weight updates of the engine skipped after the first",
        "verl",
        ENGINE,
        "integrations/gem_verl/cpu/engine.py",
        "        await self.engines.live.update(self._load, weights)\n",
        "        self.loads = getattr(self, 'loads', 0) + 1\n"
        "        if self.loads < 3:\n"
        "            await self.engines.live.update(self._load, weights)\n",
    ),
    Fault(
        "weight updates of the engine skipped",
        "openrlhf",
        ENGINE,
        "integrations/gem_openrlhf/cpu/stand_ins/vllm/engine.py",
        "            self.parameters[name].copy_(weight)",
        "            pass",
    ),
    Fault(
        "weight updates of the engine skipped",
        "oat",
        ENGINE,
        "integrations/gem_oat/cpu/in_process.py",
        "        self.llm.worker.model_runner.model.load_weights(list(weights))",
        "        list(weights)",
    ),
)
TEMPERATURE = tuple(
    Fault("temperature applied twice in the update", trainer, RUN, file, old, new)
    for trainer, file, old, new in (
        (
            "trl",
            "integrations/gem_trl/trainer.py",
            "        replace_advantages(self.step_batch, output)\n",
            "        replace_advantages(self.step_batch, output)\n"
            '        output["old_per_token_logps"] /= self.temperature\n',
        ),
        (
            "oat",
            "integrations/gem_oat/key_table.py",
            'copied("sampling.temperature", "temperature")',
            'copied("eval.temperature", "temperature")',
        ),
        (
            "openrlhf",
            "integrations/gem_openrlhf/key_table.py",
            'copied("sampling.temperature", "rollout.temperature")',
            'copied("eval.temperature", "rollout.temperature")',
        ),
        (
            "verl",
            "integrations/gem_verl/cpu/local.py",
            "            compute_loss=False,\n            temperature=self.recipe.sampling.temper",
            "            compute_loss=False,\n            temperature=self.recipe.sampling.temper"
            "ature * self.recipe.sampling.temper",
        ),
    )
)
STOPS = tuple(
    Fault("only the first stop token reaches the engine", trainer, SAMPLING, file, old, new)
    for trainer, file, old, new in (
        (
            "rl2",
            "integrations/gem_rl2/rollout.py",
            '"stop_token_ids": list(stop_ids)}',
            '"stop_token_ids": list(stop_ids)[:1]}',
        ),
        (
            "verl",
            "integrations/gem_verl/rollout.py",
            '"stop_token_ids": stop_ids, **asked}',
            '"stop_token_ids": stop_ids[:1], **asked}',
        ),
        (
            "oat",
            "integrations/gem_oat/rollout.py",
            "            stop_token_ids=self.stop_ids,",
            "            stop_token_ids=list(self.stop_ids)[:1],",
        ),
        (
            "openrlhf",
            "integrations/gem_openrlhf/rollout.py",
            "        self.params.stop_token_ids = list(stop_ids)",
            "        self.params.stop_token_ids = list(stop_ids)[:1]",
        ),
        (
            "trl",
            "integrations/gem_trl/cpu/engine.py",
            "        stop_ids = self.stop_ids | set(self.trainer.eos_token_ids)",
            "        stop_ids = frozenset([min(self.stop_ids)])",
        ),
    )
)
ALPHA = tuple(
    Fault("LoRA's alpha is its rank", trainer, RUN, file, old, new)
    for trainer, file, old, new in (
        (
            "trl",
            "integrations/gem_trl/weights.py",
            "lora_alpha=lora.alpha",
            "lora_alpha=lora.rank",
        ),
        (
            "oat",
            "integrations/gem_oat/values.py",
            "int(recipe.model.lora.alpha)",
            "recipe.model.lora.rank",
        ),
        (
            "openrlhf",
            "integrations/gem_openrlhf/values.py",
            "int(recipe.model.lora.alpha)",
            "recipe.model.lora.rank",
        ),
        (
            "verl",
            "integrations/gem_verl/values.py",
            "int(recipe.model.lora.alpha)",
            "recipe.model.lora.rank",
        ),
    )
)
FROM_OUTSIDE = (
    *STALE_WEIGHTS,
    *TEMPERATURE,
    *STOPS,
    *ALPHA,
    Fault(
        "the engine samples in train mode",
        "trl",
        SAMPLING,
        "gem_core/policies/engine/attention.py",
        "            module.training = False",
        "            module.training = True",
    ),
    Fault(
        "a truncated turn's reward goes to the turn before",
        "none",
        ("episode machine",),
        STATE,
        _ADVANCE,
        _ADVANCE.replace(
            "turn.reward = reward",
            "last = self.limits.max_turns == self.turn > 1\n"
            "        (self._episode.turns[-2] if last else turn).reward = reward",
        ),
    ),
    *(
        Fault(
            "a truncated turn's reward goes to the turn before",
            trainer,
            ("turn rewards",),
            STATE,
            _ADVANCE,
            _ADVANCE.replace(
                "turn.reward = reward",
                "last = self.limits.max_turns == self.turn > 1\n"
                "        (self._episode.turns[-2] if last else turn).reward = reward",
            ),
        )
        for trainer in ("trl", "oat", "rl2", "openrlhf", "verl")
    ),
    Fault(
        "asynchronous: the engine's log-probabilities taken as old ones",
        "openrlhf",
        ("asynchronous",),
        "integrations/gem_openrlhf/advantages.py",
        "            experience.advantages = spread_turns(experience, advantages)\n",
        "            experience.advantages = spread_turns(experience, advantages)\n"
        "            if self.args.train.async_enable:\n"
        "                experience.action_log_probs = experience.rollout_log_probs\n",
    ),
)
"""Those that stayed green when somebody else put them in, in the trainers that have the place."""
NEW = (
    Fault(
        "stop tokens not trained",
        "oat",
        RUN,
        "integrations/gem_oat/advantages.py",
        "turn.action.start + 1 : turn.action.stop + 1] = True",
        "turn.action.start + 1 : turn.action.stop] = True",
    ),
    Fault(
        "advantages normalised twice",
        "trl",
        RUN,
        "integrations/gem_adapters/estimate.py",
        "    targets = None\n",
        "    advantages = (advantages - advantages.mean()) / advantages.std()\n"
        "    targets = None\n",
    ),
    Fault(
        "rewards discounted per token",
        "verl",
        RUN,
        TOKEN_ROWS,
        "    for turn, _, end in trained:\n        rewards[end - 1] = episode.turns[turn].reward\n",
        "    for turn, start, end in trained:\n"
        "        rewards[end - 1] = episode.turns[turn].reward * 0.99 ** (end - start - 1)\n",
    ),
    Fault(
        "warm-up a step too long",
        "rl2",
        RUN,
        "integrations/gem_rl2/values.py",
        "    return (warmup + 1e-6) / max(recipe.train.steps, 1)",
        "    return (warmup + 1 + 1e-6) / max(recipe.train.steps, 1)",
    ),
    Fault(
        "clip range asymmetric",
        "trl",
        RUN,
        "integrations/gem_trl/key_table.py",
        'copied("algorithm.clip_high", "epsilon_high")',
        'copied("algorithm.value_clip", "epsilon_high")',
    ),
    Fault(
        "each turn gets the advantage of the turn before it in the batch",
        "openrlhf",
        RUN,
        "integrations/gem_openrlhf/advantages.py",
        "dict(zip(turns, result.advantages.tolist(), strict=True))",
        "dict(zip(turns, np.roll(result.advantages, 1).tolist(), strict=True))",
    ),
    Fault(
        "caches of the engine outlive a weight update",
        "trl",
        ENGINE,
        "gem_core/policies/engine/engine.py",
        "            self.drop_caches()\n        self._weights = weights\n",
        "            pass\n        self._weights = weights\n",
    ),
    Fault(
        "the last prompt token is trained, too",
        "openrlhf",
        RUN,
        "integrations/gem_openrlhf/rollout.py",
        "        (start, end) for _, start, end in segment.spans if",
        "        (start - 1, end) for _, start, end in segment.spans if",
    ),
    Fault(
        "KL term against the policy of the step, not the initial one",
        "openrlhf",
        RUN,
        "integrations/gem_openrlhf/cpu/in_process.py",
        "            Group(self.reference) if self.reference else None,",
        "            Group(self.actor) if self.reference else None,",
    ),
    Fault(
        "every step plays the tasks of the first",
        "none",
        ("episode machine",),
        "gem_core/runs/tasks.py",
        "    draw = recipe.train.start * recipe.groups_per_step + group\n",
        "    draw = recipe.train.start * recipe.groups_per_step + group % recipe.groups_per_step\n",
    ),
    Fault(
        "the first token of a turn twice in the loss",
        "rl2",
        RUN,
        "integrations/gem_rl2/advantages.py",
        '        tensors["advantages"] = _spread(rows, result.advantages)\n',
        '        tensors["advantages"] = _spread(rows, result.advantages)\n'
        '        tensors["advantages"] = tensors["advantages"] * (1 + _first_of_turns(mask))\n',
    ),
)
"""Those that nobody had tried before."""
FAULTS: tuple[Fault, ...] = (*FROM_OUTSIDE, *NEW)
"""All of them."""
