"""Versioned payload types: which pydantic model stands behind (`type`, `version`).

A consumer may be older or newer than the producer. A payload of an earlier version is lifted
step by step by registered upcasters; a later one is read where its sender says that this version
may (`Envelope.readable_from`), and keeps the fields that are not known here. Any other is refused:
the delivery is handed back for a worker that can read it.
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
        differs by optional fields alone. Registering it again is allowed only with the same."""
        registration = self._current.get(name)
        if registration is not None and registration != (version, model, readable_from):
            raise ValueError(f"payload type {name!r} is already registered as {registration}")
        self._current[name] = (version, model, readable_from)

    def upcast(self, name: str, from_version: int, lift: Upcaster) -> None:
        """`lift` turns a payload of `from_version` into one of `from_version + 1`."""
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
                    f"payload {envelope.type!r} has version {at}, this process knows {version}: "
                    "upgrade this worker"
                )
            # A process that writes it down says so, too.
            versions = {"type_version": at, "readable_from": envelope.readable_from}
            payload = {**payload, **versions}
        for below in range(at, version):
            lift = self._upcasters.get((envelope.type, below))
            if lift is not None:
                payload = lift(payload)
            elif not 0 < readable_from <= below:
                raise UnknownPayload(
                    f"no way from version {below} to {version} of {envelope.type!r}"
                )
        try:
            return model.model_validate(payload)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise MalformedEnvelope(
                f"payload of {envelope.type!r}: {where}: {first['msg']}"
            ) from None
