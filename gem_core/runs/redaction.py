"""Take secrets out of what is written to a file: commands, settings, messages.

Run folders are copied, committed and sent to others. What looks like a secret is replaced by `MARK`
before it is written the first time: values whose names say so, passwords in addresses, keys in
well-known forms, and the values of this process's environment variables whose names say so.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

MARK = "***"
_NAMED = re.compile(
    r"(^|[_.-])((api|access|auth|client|private|secret|signing)[_-]?(key|secret)|password|passwd|pwd"
    r"|passphrase|secret|credentials?|authorization|bearer|cookie"
    r"|(api|access|auth|bearer|bot|client|hf|hub|oauth|refresh|secret|user)[_-]?token)$"
    r"|(^|[.-])token$",
    re.IGNORECASE,
)
_LIKE = re.compile(
    r"(key|token|secret|auth|password|passwd|pwd|credentials?|cookie)$", re.IGNORECASE
)
_UNLIKE = re.compile(
    r"(^|[_-])((pad|eos|bos|unk|sep|cls|mask|stop)[_-]token|prompt_cache_key|tokens[_-]key)$",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(?P<head>[a-z][a-z0-9+.-]*://)[^\s/?#@'\"]+@", re.IGNORECASE)
_QUERY = re.compile(r"(?P<head>[?&](?P<name>[\w.-]+)=)(?P<value>[^&\s'\"#]+)")
_FORMS = re.compile(
    r"\b(sk-[\w-]{8,}|hf_\w{8,}|gh[opsu]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{8,}|AKIA[0-9A-Z]{12,}|AIza[\w-]{20,})|(?<=bearer )[\w.~+/=-]{8,}",
    re.IGNORECASE,
)
"""Keys in the forms of OpenAI, Hugging Face, GitHub, GitLab, Slack, Amazon and Google."""
_LONG = 8
"""Characters of a value that is searched for in texts; a shorter one would hit words."""
_JSON_OPTIONS = frozenset({"--body"})
"""Options whose value is JSON."""


def is_secret_name(name: str) -> bool:
    """Whether what has this name is a secret, in settings that have many other keys and tokens.

    >>> names = ("api_key", "hub_token", "max_tokens", "eos_token", "prompt_key")
    >>> [name for name in names if is_secret_name(name)]
    ['api_key', 'hub_token']
    """
    return bool(_NAMED.search(name))


@lru_cache(maxsize=4096)
def may_be_secret(name: str) -> bool:
    """Whether what has this name could be a secret: for what is sent, where names are free.

    >>> names = ("user_key", "max_tokens", "eos_token")
    >>> [name for name in names if may_be_secret(name)]
    ['user_key']
    """
    return bool(_LIKE.search(name)) and not _UNLIKE.search(name)


def redact(value: Any, named: Callable[[str], bool] = may_be_secret, name: str = "") -> Any:
    """Return plain data without secrets; the structure stays.

    Args:
        value: the data.
        named: tells which names are those of secrets.
        name: the name of ``value`` itself.

    >>> redact({"headers": {"Authorization": "Bearer abcdefgh"}, "user_key": "x", "n": 3})
    {'headers': {'Authorization': '***'}, 'user_key': '***', 'n': 3}
    """
    if isinstance(value, Mapping):
        return {key: redact(item, named, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(item, named, name) for item in value]
    if not isinstance(value, str) or not value:
        return value
    return MARK if named(name) or is_secret_name(name) else redact_text(value)


def secrets_in(value: Any, name: str = "") -> list[str]:
    """Return the texts in plain data that `redact` replaces because of their names.

    >>> secrets_in({"a": {"api_key": "abc"}, "n": "x"})
    ['abc']
    """
    if isinstance(value, Mapping):
        return [text for key, item in value.items() for text in secrets_in(item, str(key))]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in secrets_in(item, name)]
    is_one = isinstance(value, str) and (may_be_secret(name) or is_secret_name(name))
    return [value] if is_one else []


def redact_text(text: str, *secrets: str | None) -> str:
    """Return a text without passwords in addresses, known forms of keys, and ``secrets``.

    >>> redact_text("no answer from http://me:pw@host/v1?api_key=abc&n=1")
    'no answer from http://***@host/v1?api_key=***&n=1'
    """
    if len(text) >= _LONG:
        for secret in (*secrets, *_of_environment()):
            if secret and len(secret) >= _LONG:
                text = text.replace(secret, MARK)
    text = _ADDRESS.sub(rf"\g<head>{MARK}@", text)
    text = _QUERY.sub(
        lambda hit: hit["head"] + MARK if may_be_secret(hit["name"]) else hit[0], text
    )
    return _FORMS.sub(MARK, text)


def redact_command(command: Sequence[str]) -> list[str]:
    """Return a command line without secrets.

    >>> redact_command(["eval", "--set", "env.0.kwargs.api_key=abc", "--body", '{"user_key": "x"}'])
    ['eval', '--set', 'env.0.kwargs.api_key=***', '--body', '{"user_key": "***"}']
    """
    shown: list[str] = []
    option = ""
    for word in command:
        name, sign, value = word.partition("=")
        if sign and name.startswith("--"):
            shown.append(f"{name}={_argument(name, value)}")
            option = ""
            continue
        shown.append(_argument(option, word))
        option = word if word.startswith("--") else ""
    return shown


def _argument(option: str, word: str) -> str:
    """Return the value of an option without secrets."""
    if option in _JSON_OPTIONS:
        try:
            return json.dumps(redact(json.loads(word)))
        except (ValueError, RecursionError):
            return MARK  # it cannot be told what is in it
    if option and is_secret_name(option.lstrip("-")):
        return MARK
    name, sign, _ = word.partition("=")
    if sign and re.fullmatch(r"[\w.-]+", name) and is_secret_name(name):
        return f"{name}={MARK}"
    return redact_text(word)


def _of_environment() -> list[str]:
    """Return the secrets in this process's environment, the longest first."""
    named = (value for name, value in os.environ.items() if may_be_secret(name))
    return sorted(named, key=len, reverse=True)
