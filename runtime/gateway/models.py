"""The models that a caller may request: a pool, a policy with its adapter, or a workflow."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loopline.agents.errors import AgentError
from loopline.agents.workflows import agents_of, workflows
from loopline.bus import Bus, policies
from loopline.runtime.config.settings import Settings
from loopline.runtime.gateway.errors import ApiError

WORKFLOW = "workflow/"
_NOT_TEAMS = ("chat", "completion", "embeddings")
"""Workflows of one call: callers name their policies directly."""


@dataclass(frozen=True)
class Target:
    """The workflow that answers a request, and its policies."""

    workflow: str
    policies: Mapping[str, str] = field(default_factory=dict[str, str])


class ModelCatalogue:
    """The current models of a deployment."""

    def __init__(self, bus: Bus, settings: Settings) -> None:
        self._bus = bus
        self._settings = settings

    @property
    def embedding(self) -> tuple[str, ...]:
        """Pools that compute embeddings and don't answer questions."""
        return tuple(name for name, model in self._settings.models.items() if model.embeddings)

    async def names(self) -> list[str]:
        versions = await self._versions()
        return list(dict.fromkeys([*self._settings.models, *versions, *self._workflows()]))

    async def resolve(self, model: str) -> Target:
        """Return the target of a model's name. Raises `ApiError` 404, which lists similar names."""
        if model in self.embedding:
            return Target("embeddings", {"embeddings": model})
        if model in self._settings.models:
            return Target("chat", {"chat": model})
        if model.startswith(WORKFLOW):
            if model in self._workflows():
                return Target(model.removeprefix(WORKFLOW))
        else:
            name, version = policies.split_pin(model)
            versions = (await self._versions()).get(name)
            if versions is not None:
                if version is not None and version not in versions:
                    raise _not_in_use(name, version, versions[0])
                return Target("chat", {"chat": model})
        raise _unknown(model, await self.names())

    async def _versions(self) -> dict[str, tuple[int, ...]]:
        """Return versions by policy: the version in use, and one on trial. 0 is the pool's own
        model, which answers for some policies until they are published."""
        unpublished = {
            f"{pool}/{adapter}": (0,)
            for pool, settings in self._settings.models.items()
            for adapter in settings.base_until_published
        }
        published = await policies.policies(self._bus)
        return unpublished | {
            policy.name: (policy.current, *((policy.canary.version,) if policy.canary else ()))
            for policy in published
        }

    def _workflows(self) -> list[str]:
        """Return the workflows whose policies are all served here."""
        names: list[str] = []
        for name in workflows.names():
            if name in _NOT_TEAMS:
                continue
            try:
                agents = agents_of(name)
            except AgentError:
                continue  # a plug-in that can't be loaded affects only callers that name it
            pools = {
                policies.pool_of(self._settings.policies.get(agent, default))
                for agent, default in agents.items()
            }
            if pools and pools <= self._settings.models.keys():
                names.append(f"{WORKFLOW}{name}")
        return names


def _not_in_use(name: str, version: int | None, current: int) -> ApiError:
    """Return the error for a version that is not in use, since a policy serves only one version at
    a time. The version may change before the model is asked; the gpu worker then raises the same
    error."""
    return ApiError(
        404,
        f"Version {version} of the model '{name}' is not served: version {current}"
        " is. `runtime policies pin` changes that; without '@' any version answers.",
        code="model_not_found",
        param="model",
    )


def _unknown(model: str, names: Sequence[str]) -> ApiError:
    near = difflib.get_close_matches(model, names, n=1)
    guess = f" Did you mean '{near[0]}'?" if near else ""
    return ApiError(
        404,
        f"The model '{model[:256]}' does not exist here.{guess} GET /v1/models lists the others.",
        code="model_not_found",
        param="model",
    )
