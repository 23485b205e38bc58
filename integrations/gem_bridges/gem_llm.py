"""Environments of ``gem-llm``: ``gem:<id>``, such as ``gem:game:GuessTheNumber-v0-easy``."""

from __future__ import annotations

from inspect import Parameter, signature
from random import Random
from typing import TYPE_CHECKING, Any

from gem_bridges.foreign import ForeignEnv
from gem_core.errors import RecipeError, unknown

if TYPE_CHECKING:
    from gem_core.env.interface import Info, StepResult

SUCCESS_REWARD = 1.0
"""GEM's training programs count an episode with this last reward as a success."""
_NEEDS_TOKENIZER = ("concat_chat", "concat_chat_on_reset")


class GemLlmEnv(ForeignEnv):
    """An environment of an installed ``gem-llm``: its own prompts, parsing, rewards and wrappers.

    A seed from 0 to 2**32 - 1 gives the episode that GEM's own ``reset(seed)`` gives. Without
    ``wrappers``, the observation and ``info["suffix"]`` are GEM's, and gem-core's templates and
    histories show them. A wrapper that returns the whole history (``concat``) is for recipes whose
    history shows the last observation only.

    Args:
        name: GEM's id.
        wrappers: names of GEM's wrappers with commas between them, the innermost first.
        success_reward: the last reward from which on an episode is a success.
        **kwargs: parameters of the environment, over those of the id.

    Raises:
        MissingDependencyError: ``gem-llm`` is not installed.
        UnknownNameError: it has no such environment, wrapper or parameter.
        RecipeError: a wrapper that writes chat templates.
    """

    distribution = "gem-llm"

    def __init__(
        self,
        name: str,
        *,
        wrappers: str = "",
        success_reward: float = SUCCESS_REWARD,
        **kwargs: Any,
    ) -> None:
        self.wrappers = [part.strip() for part in wrappers.split(",") if part.strip()]
        self.success_reward = success_reward
        super().__init__(name, **kwargs)
        self._arguments.update(wrappers=wrappers, success_reward=success_reward)

    def random_action(self, rng: Random) -> str:
        """Return an action of GEM's own ``sample_random_action``, or a number where it has none."""
        with self._replace_random(rng):
            try:
                return str(self._made.sample_random_action())
            except NotImplementedError:
                return f"\\boxed{{{rng.randint(0, 9)}}}"

    def _make(self) -> Any:
        from gem.envs.registration import ENV_REGISTRY, make

        _load_ids()
        if self.name not in ENV_REGISTRY:
            raise unknown("environment of gem-llm", self.name, ENV_REGISTRY)
        for wrapper in self.wrappers:
            _check_wrapper(wrapper)
        _check_parameters(self.name, ENV_REGISTRY[self.name].entry_point, self.kwargs)
        env = make(self.name, **self.kwargs)
        for wrapper in self.wrappers:
            from gem.wrappers.wrapper_factory import WRAPPER_FACTORY

            env = WRAPPER_FACTORY[wrapper](env)
        return env

    def _foreign_reset(self, seed: int, options: dict[str, Any] | None) -> tuple[str, Info]:
        inner = self._made.unwrapped
        if hasattr(inner, "ds_iter"):
            # GEM makes a new table after `size` resets: the seed alone must decide the task.
            inner.idx = 0
        observation, info = self._made.reset(seed=seed)
        return observation, self._clean_info(info)

    def _foreign_step(self, action: str) -> StepResult:
        observation, reward, terminated, truncated, info = self._made.step(action)
        number = float(reward)
        shown = self._clean_info(info)
        # GEM sets both at the end of a game's own turn budget, which ends the task.
        truncated = bool(truncated) and not terminated
        if terminated or truncated:
            shown["success"] = bool(terminated) and number >= self.success_reward
        return observation, number, bool(terminated), truncated, shown

    def _clean_info(self, info: Info) -> Info:
        """Return a copy of the info; what a wrapper has put into the observation is removed."""
        copy = dict(info)
        if any(wrapper.startswith("concat") for wrapper in self.wrappers):
            copy.pop("prefix", None)
            copy.pop("suffix", None)
        return copy


def list_gem_envs() -> list[str]:
    """Return the ids of all environments of the installed ``gem-llm``, for `gem_core.make`."""
    from gem.envs.registration import ENV_REGISTRY

    _load_ids()
    return sorted(f"gem:{name}" for name in ENV_REGISTRY)


def _load_ids() -> None:
    import gem.envs  # noqa: F401


def _check_wrapper(name: str) -> None:
    from gem.wrappers.wrapper_factory import WRAPPER_FACTORY

    if name not in WRAPPER_FACTORY:
        raise unknown("wrapper of gem-llm", name, WRAPPER_FACTORY)
    if name in _NEEDS_TOKENIZER:
        raise RecipeError(
            f"The wrapper {name!r} writes a chat template into the observation, which the recipe's "
            "template does here: leave it out, and choose prompt.template and prompt.history."
        )


def _check_parameters(name: str, entry_point: Any, kwargs: dict[str, Any]) -> None:
    """Refuse parameters that the class would ignore: GEM's classes take and drop any name."""
    if isinstance(entry_point, str):
        from importlib import import_module

        module, _, attribute = entry_point.partition(":")
        entry_point = getattr(import_module(module), attribute)
    parameters = signature(entry_point).parameters.values()
    named = [p.name for p in parameters if p.kind is not Parameter.VAR_KEYWORD]
    for given in kwargs:
        if given not in named:
            raise unknown(f"parameter of {name}", given, named, f"It takes: {', '.join(named)}.")
