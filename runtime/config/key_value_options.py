"""Options of a command in the form NAME=VALUE: `--setting turns=40 --setting brief=true`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from pydantic import JsonValue

from loopline.agents.records import JsonObject
from loopline.bus import pool_of
from loopline.runtime.errors import InputError


def option_value(value: JsonValue) -> JsonValue:
    """Parse a workflow's option that may be text: as JSON, or else as plain text."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def key_value_options(option: str, words: Sequence[str], example: str = "turns=40") -> JsonObject:
    """Return values by name: JSON (`4`, `true`) or else text. Raises `InputError`."""
    texts = _pairs(option, words, "NAME=VALUE", example)
    return {name: option_value(text) for name, text in texts.items()}


def key_value_texts(
    option: str, words: Sequence[str], *, form: str, example: str
) -> dict[str, str]:
    """Return texts by name; the last value of a repeated name wins. A name ends at the first `=`.
    Raises `InputError` with the `form` (`ROLE=POOL`) and the `example` (`solo=slm`) for a word that
    lacks the name or the text.
    """
    texts = _pairs(option, words, form, example)
    for name, text in texts.items():
        if not text:
            raise _malformed(option, f"{name}=", form, example)
    return texts


def policy_options(words: Sequence[str], pools: Collection[str]) -> dict[str, str]:
    """Return policies by role, from `--policy ROLE=POOL` or `ROLE=POOL/ADAPTER`. Raises
    `InputError` for a pool that the deployment does not have."""
    policies = key_value_texts("--policy", words, form="ROLE=POOL", example="solo=slm")
    require_pools(policies, pools)
    return policies


def require_pools(policies: Mapping[str, str], pools: Collection[str]) -> None:
    """Raises `InputError` for a policy whose pool the deployment does not have."""
    for role, policy in policies.items():
        if pool_of(policy) not in pools:
            raise InputError(
                f"--policy {role}={policy}: there is no pool {pool_of(policy)!r}",
                hint=f"pools: {', '.join(pools)}",
            )


def _pairs(option: str, words: Sequence[str], form: str, example: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals):
            raise _malformed(option, word, form, example)
        texts[name] = text
    return texts


def _malformed(option: str, word: str, form: str, example: str) -> InputError:
    return InputError(f"{option}: {word!r} is not {form}", hint=f"as in {option} {example}.")
