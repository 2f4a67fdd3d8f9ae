"""Versioned payload types: which pydantic model stands behind (`type`, `version`).

A consumer may be older or newer than the producer. A payload of an earlier version is lifted
step by step by registered upcasters; a later or unknown one is refused, and the delivery goes to
the dead letters with that reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pydantic
from pydantic import BaseModel

from loopline.bus.envelope import Envelope
from loopline.bus.errors import MalformedEnvelope, UnknownPayload

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


class Registry:
    """Payload types of one process. Types are registered when their module is imported."""

    def __init__(self) -> None:
        self._current: dict[str, tuple[int, type[BaseModel]]] = {}
        self._upcasters: dict[tuple[str, int], Upcaster] = {}

    def register(self, name: str, model: type[BaseModel], *, version: int = 1) -> None:
        """Make `model` the current version of `name`. Registering it again is allowed only
        with the same model and version."""
        registration = self._current.get(name)
        if registration is not None and registration != (version, model):
            raise ValueError(f"payload type {name!r} is already registered as {registration}")
        self._current[name] = (version, model)

    def upcast(self, name: str, from_version: int, lift: Upcaster) -> None:
        """`lift` turns a payload of `from_version` into one of `from_version + 1`."""
        self._upcasters[(name, from_version)] = lift

    def decode(self, envelope: Envelope) -> BaseModel:
        """The typed payload. Raises `UnknownPayload` or `MalformedEnvelope`."""
        registration = self._current.get(envelope.type)
        if registration is None:
            names = ", ".join(sorted(self._current)) or "none"
            raise UnknownPayload(f"unknown payload type {envelope.type!r}; known here: {names}")
        version, model = registration
        payload, at = envelope.payload, envelope.type_version
        if at > version:
            raise UnknownPayload(
                f"payload {envelope.type!r} has version {at}, this process knows {version}: "
                "upgrade this worker"
            )
        while at < version:
            lift = self._upcasters.get((envelope.type, at))
            if lift is None:
                raise UnknownPayload(f"no way from version {at} to {version} of {envelope.type!r}")
            payload, at = lift(payload), at + 1
        try:
            return model.model_validate(payload)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise MalformedEnvelope(
                f"payload of {envelope.type!r}: {where}: {first['msg']}"
            ) from None
