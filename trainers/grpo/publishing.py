"""Maps the policies of a training to policies of a deployment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from loopline.agents.workflows import agents_of
from loopline.runtime.config.settings import Settings
from loopline.trainers.core.network import base_folder
from loopline.trainers.core.publishing import Publication, require_base
from loopline.trainers.errors import TrainingError
from loopline.trainers.grpo.settings import GrpoSettings
from loopline.trainers.grpo.storing import folder_name


def served_policies(
    agents: Iterable[str],
    deployed: Settings,
    workflow: str | None,
    pool: str | None,
    *,
    environment: str | None = None,
    option: str = "--publish",
) -> dict[str, str]:
    """Policy of the deployment that answers for each agent: from its `[policies]`, otherwise from
    the defaults of the workflow and the environment. With `pool`, it is the adapter of that pool
    with the agent's name. Raises `TrainingError`, which blames `option`, for an agent without a
    policy."""
    defaults = agents_of(workflow or deployed.workflow, environment)
    policy_by_agent: dict[str, str] = {}
    for agent in agents:
        named = deployed.policies.get(agent) or defaults.get(agent)
        policy_name = f"{pool}/{agent}" if pool is not None else named
        if policy_name is None:
            raise TrainingError(
                f"{option}: the deployment names no policy for {agent}: give --pool, or a policy "
                "in its [policies]"
            )
        policy_by_agent[agent] = policy_name
    return policy_by_agent


def require_publishable(
    settings: GrpoSettings,
    policy_by_agent: Mapping[str, str],
    folder: Path,
    deployed: Settings,
    *,
    option: str = "--publish",
) -> None:
    """Raise `TrainingError`, which blames `option`, before the training if the policies in `folder`
    could not be published after it."""
    trained = _trained_policies(settings, policy_by_agent, option)
    for publication in publications(settings, policy_by_agent, folder, option=option):
        if settings.weights == "full":
            # A whole model is compared with the pool's by its tokenizer, which is that of its base.
            base = base_folder(settings.base_of(trained[publication.policy]).model)
            publication = replace(publication, folder=base)
        require_base(publication, deployed.models, option=option)


def publications(
    settings: GrpoSettings,
    policy_by_agent: Mapping[str, str],
    folder: Path,
    *,
    option: str = "--publish",
) -> tuple[Publication, ...]:
    """Publications of the policies trained in `folder`, one for each policy of the deployment.
    Raises `TrainingError`, which blames `option`, if two trained policies map to the same one of
    the deployment."""
    return tuple(
        Publication(policy, folder / folder_name(trained), settings.base_of(trained).sha256)
        for policy, trained in _trained_policies(settings, policy_by_agent, option).items()
    )


def _trained_policies(
    settings: GrpoSettings, policy_by_agent: Mapping[str, str], option: str
) -> dict[str, str]:
    """Policy of the training for each policy of the deployment. Raises `TrainingError`."""
    adapters: dict[str, str] = {}
    for agent, policy in policy_by_agent.items():
        trained_policy = settings.policy_of(agent)
        if adapters.setdefault(policy, trained_policy) != trained_policy:
            raise TrainingError(
                f"{option}: {adapters[policy]} and {trained_policy} are both served as {policy}: "
                "give each "
                "agent a policy of its own in the deployment's [policies], or train with "
                "--policies shared"
            )
    return adapters
