"""Who plays an evaluation: a scripted player, an endpoint, or a local model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from gem_core.episodes.context import Template
from gem_core.errors import GemError
from gem_core.evaluation.engines import CONCURRENCY, engine_loader, engine_of
from gem_core.evaluation.items import Item
from gem_core.evaluation.plan import model_digest
from gem_core.evaluation.runner import ItemPolicy, Record, play_items, play_items_in_batches
from gem_core.policies.endpoint.address import find_proxy
from gem_core.policies.endpoint.http_client import require_client
from gem_core.policies.endpoint.policy import EndpointConfig, EndpointPolicy
from gem_core.policies.endpoint.usage import Price
from gem_core.policies.player import PlayerPolicy
from gem_core.runs.recipe.recipe import Recipe
from gem_core.runs.redaction import redact, redact_text
from gem_core.runs.tasks import MachineFactory


class Contender(Protocol):
    """Who plays the items."""

    name: str
    """In tables."""

    def describe(self) -> dict[str, Any]:
        """Return what decides its actions, as JSON types; a resumed evaluation has the same."""

    def play(self, recipe: Recipe, items: Iterable[Item], record: Record) -> None:
        """Play the items and record each."""


class ScriptedPlayer:
    """A player of `gem_core.envs.players`: ``"expert"``, ``"random"``, or another of its names."""

    def __init__(self, kind: str, concurrency: int = 64) -> None:
        self.name = f"player:{kind}"
        self._kind = kind
        self._concurrency = concurrency

    def describe(self) -> dict[str, Any]:
        """See `Contender`."""
        return {"player": self._kind}

    def play(self, recipe: Recipe, items: Iterable[Item], record: Record) -> None:
        """See `Contender`."""
        policy = PlayerPolicy(self._kind)
        play_without_tokens(recipe, items, policy, record, self._concurrency)


class EndpointModel:
    """A model behind an OpenAI-compatible endpoint; its API key is never stored.

    Raises:
        GemError: the address or its proxy cannot be used.
        MissingDependencyError: aiohttp is missing.
    """

    def __init__(
        self,
        config: EndpointConfig,
        *,
        key: str | None = None,
        price: Price | None = None,
        concurrency: int = 64,
    ) -> None:
        require_client()  # this and the address: before there is a folder
        try:
            find_proxy(config.base_url)
        except ValueError as error:
            raise GemError(f"The endpoint cannot be used: {error}") from None
        self.name = config.model
        self._config = config
        self._key = key
        self._price = price
        self._concurrency = concurrency

    def describe(self) -> dict[str, Any]:
        """See `Contender`; how fast it is asked decides nothing.

        Secrets are replaced by `gem_core.runs.redaction.MARK`, so they are not part of
        what is
        compared: with another key the same model answers, and keys are changed while an evaluation
        stands. A digest of them would let the short ones be guessed.
        """
        config = self._config
        return {
            "base_url": redact_text(config.base_url),
            "model": config.model,
            "api": config.api,
            "body": redact(config.body),
            "system": redact(config.system),
            "tokens_key": config.tokens_key,
            "send_seeds": config.send_seeds,
            "native_tools": config.native_tools,
            "item_tokens": config.item_tokens,
        }

    def play(self, recipe: Recipe, items: Iterable[Item], record: Record) -> None:
        """See `Contender`."""
        if self._config.api == "chat":
            recipe = _without_tokens(recipe)
        factory = MachineFactory(recipe)
        close = factory.template.close
        factory.template = _closing_actions(factory.template)
        policy = EndpointPolicy(
            self._config,
            sampling_fields(recipe),
            key=self._key,
            stop=[close] if close else None,
            price=self._price,
        )
        _play(factory, items, policy, record, self._concurrency)


class LocalModel:
    """A model on this machine, played by the ``eval.engine`` of the recipe.

    ``concurrency`` counts the episodes of a batch; ``None`` = as the device allows. ``trainer`` is
    whose engine ``eval.engine = "trainer"`` means.
    """

    def __init__(
        self, model_dir: str, concurrency: int | None = None, trainer: str | None = None
    ) -> None:
        self.name = model_dir
        self._concurrency = concurrency
        self._trainer = trainer

    def describe(self) -> dict[str, Any]:
        """See `Contender`."""
        return {"local": self.name, "files": model_digest(Path(self.name))}

    def play(self, recipe: Recipe, items: Iterable[Item], record: Record) -> None:
        """See `Contender`; with vLLM and SGLang no item waits for another."""
        engine = engine_of(recipe, self._trainer)
        if engine != "hf":
            with engine_loader(engine)(recipe, self.name, 0) as (machines, steps):
                _play(machines, items, steps, record, self._concurrency or CONCURRENCY)
            return
        from gem_core.evaluation.local import load_policy

        with load_policy(recipe, self.name) as (factory, policy, max_batch):
            play_items_in_batches(
                items,
                lambda item: factory(item.as_task()),
                policy,
                record,
                concurrency=self._concurrency or max_batch,
            )


def play_without_tokens(
    recipe: Recipe, items: Iterable[Item], policy: ItemPolicy, record: Record, concurrency: int = 64
) -> None:
    """Play items in this process with a policy that answers with texts, without a tokenizer.

    The recipe's limits of tokens do not apply.
    """
    factory = MachineFactory(_without_tokens(_without_history(recipe)), inline=True)
    _play(factory, items, policy, record, concurrency)


def sampling_fields(recipe: Recipe) -> dict[str, float]:
    """Return the fields of a request that decide how it is sampled."""
    fields: dict[str, float] = {"temperature": recipe.eval.temperature}
    if recipe.eval.temperature > 0:
        if recipe.eval_top_p < 1:
            fields["top_p"] = recipe.eval_top_p
        if recipe.sampling.top_k > 0:
            fields["top_k"] = recipe.sampling.top_k
    return fields


def _play(
    factory: MachineFactory,
    items: Iterable[Item],
    policy: ItemPolicy,
    record: Record,
    concurrency: int,
) -> None:
    playing = play_items(
        items, lambda item: factory(item.as_task()), policy, record, concurrency=concurrency
    )
    asyncio.run(playing)


def _closing_actions(template: Template) -> Template:
    """Return a template for actions that are texts: they never have the token that ends a turn.

    So the text that ends it is written after each action, whether or not the action was cut off.
    """
    return replace(template, next=template.close + template.next, close="")


def _without_history(recipe: Recipe) -> Recipe:
    """Return a recipe for players that read no prompts, so that nothing need be summed up."""
    from msgspec.structs import replace as changed

    if recipe.context.history != "compact":
        return recipe
    return changed(recipe, context=changed(recipe.context, history="append"))


def _without_tokens(recipe: Recipe) -> Recipe:
    """Return a recipe for messages: a template is for models that continue a text."""
    from msgspec.structs import replace as changed

    return changed(recipe, context=changed(recipe.context, template="no", system=None))
