"""Versioned payload types: the pydantic model for each (`type`, `version`).

A consumer may be older or newer than the producer. Registered upcasters convert a payload of an
earlier version step by step. A later version is read if its sender allows this version to
(`Envelope.readable_from`), and keeps its unknown fields. Any other payload is refused: the delivery
is handed back for a worker that can read it.
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
        self._current: dict[str, tuple[int, type[BaseModel], int]] = {}
        self._upcasters: dict[tuple[str, int], Upcaster] = {}

    def register(
        self, name: str, model: type[BaseModel], *, version: int = 1, readable_from: int = 0
    ) -> None:
        """Make `model` the current version of `name`. `readable_from`: the oldest version that
        differs only in optional fields. Registering the name again is allowed only with the same
        values."""
        registration = self._current.get(name)
        if registration is not None and registration != (version, model, readable_from):
            raise ValueError(f"payload type {name!r} is already registered as {registration}")
        self._current[name] = (version, model, readable_from)

    def upcast(self, name: str, from_version: int, lift: Upcaster) -> None:
        """`lift` converts a payload of `from_version` into one of `from_version + 1`."""
        self._upcasters[(name, from_version)] = lift

    def decode(self, envelope: Envelope) -> BaseModel:
        """The typed payload. Raises `UnknownPayload` or `MalformedEnvelope`."""
        registration = self._current.get(envelope.type)
        if registration is None:
            names = ", ".join(sorted(self._current)) or "none"
            raise UnknownPayload(f"unknown payload type {envelope.type!r}; known here: {names}")
        version, model, readable_from = registration
        payload, at = envelope.payload, envelope.type_version
        if at > version:
            if not 0 < envelope.readable_from <= version:
                raise UnknownPayload(
                    f"payload {envelope.type!r} has version {at}, but this process knows only "
                    f"{version}: upgrade this worker"
                )
            # A process that writes this payload again keeps its versions.
            versions = {"type_version": at, "readable_from": envelope.readable_from}
            payload = {**payload, **versions}
        for below in range(at, version):
            lift = self._upcasters.get((envelope.type, below))
            if lift is not None:
                payload = lift(payload)
            elif not 0 < readable_from <= below:
                raise UnknownPayload(
                    f"no upgrade from version {below} to {version} of {envelope.type!r}"
                )
        try:
            return model.model_validate(payload)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise MalformedEnvelope(
                f"payload of {envelope.type!r}: {where}: {first['msg']}"
            ) from None
