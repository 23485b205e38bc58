"""OpenEnv's messages: what clients send, and how an environment's results look in them.

A client sends ``reset``, ``step``, ``state`` or ``close`` and gets ``observation``, ``state`` or
``error``. An action is ``{"text": ...}``. An observation has ``text``, ``terminated``,
``truncated`` and ``info`` beside OpenEnv's own ``reward`` and ``done``. Two more types, ``save``
and ``load``, hold the state of the environment itself, for gem-core's client.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gem_core.env.interface import Env
from gem_core.env.remote.errors import remote_place
from gem_core.errors import StateError, error_line
from gem_server.limits import RefusedError
from gem_server.sessions import Session, Sessions, as_json

if TYPE_CHECKING:
    from gem_core.env.interface import Info, StepResult

Message = dict[str, Any]
TYPES = ("reset", "step", "state", "save", "load")
_MAX_NAME = 255


async def answer(sessions: Sessions, session: Session, message: Message) -> Message:
    """Return the answer to a message of a session's client.

    Raises:
        RefusedError: the message is not one of the protocol.
        Exception: the environment's own.
    """
    kind = message.get("type")
    data = message.get("data", {})
    if kind not in TYPES:
        raise RefusedError(f"Unknown message type: {kind!r:.80}", "UNKNOWN_TYPE")
    if not isinstance(data, dict):
        raise RefusedError("data is not an object.")
    if kind == "reset":
        return observation(await _reset(sessions, session, data))
    if kind == "step":
        return observation(await _step(sessions, session, data))
    if kind == "save":
        return {"type": "save", "data": await sessions.call(session, lambda e: e.get_state())}
    if kind == "load":
        try:
            await sessions.call(session, lambda env: env.set_state(data))
        except StateError as error:
            raise RefusedError(str(error)) from None
        return {"type": "load", "data": {}}
    return {"type": "state", "data": state(session)}


def read(text: str) -> Message:
    """Return a message from its text.

    Raises:
        RefusedError: it is not a JSON object.
    """
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"Invalid JSON: {error}", "INVALID_JSON") from None
    if not isinstance(message, dict):
        raise RefusedError("A message is a JSON object.", "INVALID_JSON")
    return message


def error_message(error: Exception) -> Message:
    """Return the message that tells a client of an error.

    Beside OpenEnv's ``message`` and ``code`` it has ``exception``, the class of an environment's
    own, and ``place``, where it was raised; or ``deadline_s``, how long a call was allowed to take.
    """
    if isinstance(error, RefusedError):
        data = {"message": str(error), "code": error.code}
        late = {} if error.deadline_s is None else {"deadline_s": error.deadline_s}
        return {"type": "error", "data": {**data, **late}}
    data = {
        "message": error_line(error),
        "code": "EXECUTION_ERROR",
        "exception": type(error).__name__,
        "place": remote_place(error),
    }
    return {"type": "error", "data": data}


def observation(data: dict[str, Any]) -> Message:
    """Return the message around an observation."""
    return {"type": "observation", "data": data}


def state(session: Session) -> dict[str, Any]:
    """Return what OpenEnv calls the state: the episode's name and its steps."""
    return {
        "episode_id": session.episode_id,
        "step_count": session.steps,
        "environment": session.environment,
    }


async def _reset(sessions: Sessions, session: Session, data: dict[str, Any]) -> dict[str, Any]:
    seed = data.get("seed")
    options = data.get("options")
    episode_id = data.get("episode_id")
    if not (seed is None or (isinstance(seed, int) and not isinstance(seed, bool))):
        raise RefusedError("seed is not an integer.")
    if not (options is None or isinstance(options, dict)):
        raise RefusedError("options is not an object.")
    if not (episode_id is None or (isinstance(episode_id, str) and len(episode_id) <= _MAX_NAME)):
        raise RefusedError(f"episode_id is not a text of at most {_MAX_NAME} characters.")

    def start(env: Env) -> tuple[str, Info, Info]:
        text, info = env.reset(seed=seed, options=options)
        return text, info, facts(env)

    text, info, known = await sessions.call(session, start)
    session.steps = 0
    session.episode_id = episode_id or session.name
    result = step_as_observation((text, 0.0, False, False, info))
    return {**result, "reward": None, "metadata": known}


async def _step(sessions: Sessions, session: Session, data: dict[str, Any]) -> dict[str, Any]:
    action = data.get("text")
    if not isinstance(action, str) or set(data) - {"text", "metadata"}:
        raise RefusedError('An action is {"text": "..."}.')
    result = await sessions.call(session, lambda env: env.step(action))
    session.steps += 1
    return step_as_observation(result)


def step_as_observation(result: StepResult) -> dict[str, Any]:
    """Return the result of a step as OpenEnv's observation."""
    text, reward, terminated, truncated, info = result
    inner = {
        "text": text,
        "terminated": bool(terminated),
        "truncated": bool(truncated),
        "info": as_json(info),
        "metadata": {},
    }
    done = bool(terminated or truncated)
    return {"observation": inner, "reward": float(reward), "done": done}


def facts(env: Env) -> dict[str, Any]:
    """Return what an environment is, for the record of a run that plays it.

    ``items``, ``sample`` and ``images`` are those of `gem_core.runs.environments.data`.
    """
    spec = env.spec
    if spec is None:
        return {}
    inner = env.unwrapped
    return {
        "fingerprint": spec.fingerprint(),
        "data_revision": spec.data_revision,
        "items": getattr(inner, "item_count", None),
        "sample": bool(getattr(inner, "is_sample", False)),
        "images": bool(getattr(inner, "shows_images", False)),
    }


SCHEMA = {
    "action": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "metadata": {"type": "object"}},
        "required": ["text"],
        "additionalProperties": False,
    },
    "observation": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "terminated": {"type": "boolean"},
            "truncated": {"type": "boolean"},
            "info": {"type": "object"},
            "reward": {"type": ["number", "null"]},
            "done": {"type": "boolean"},
            "metadata": {"type": "object"},
        },
    },
    "state": {
        "type": "object",
        "properties": {
            "episode_id": {"type": ["string", "null"]},
            "step_count": {"type": "integer"},
            "environment": {"type": "string"},
        },
    },
}
"""JSON schemas of what is sent, as OpenEnv's ``/schema`` gives them."""
