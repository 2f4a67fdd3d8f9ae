"""Finds or starts the deployment of a benchmark, and checks whether it can play the arms."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from loopline.agents.prompts import parse_replacement_prompt
from loopline.agents.workflows import prompts_of
from loopline.bench.arms import Arm, exchange_policies
from loopline.bench.errors import UsageError
from loopline.bench.output import Manifest, PoolFacts
from loopline.bench.registry import benchmark_of

if TYPE_CHECKING:
    from loopline.runtime.client.deployment import Deployment
    from loopline.runtime.config.settings import Settings

_UNNEEDED_WORKERS = ("workers.gateway.count=0", "workers.jobs.count=0")
"""Settings of a deployment that serves one benchmark only."""


@contextmanager
def joined(
    profile: str | None, redis_url: str | None, manifest: Manifest, arms: tuple[Arm, ...]
) -> Generator[Deployment]:
    """Yield the deployment that runs here or behind the URL. If none runs and a profile is given,
    start a deployment from that profile for the duration of the block. Raises `UserError`; raises
    UsageError before anything is started if the profile can't play the arms or enforce the
    budget."""
    from loopline.runtime.config.settings import chosen_profile, is_profile_given, load
    from loopline.runtime.config.state import StateDirectory
    from loopline.runtime.supervise.detached import temporary_deployment

    state = StateDirectory.from_environment()
    if redis_url or state.holder() or not is_profile_given(profile):
        yield _deployment(profile, redis_url)
        return
    settings = load(profile)
    if not settings.own_redis:
        yield _deployment(profile, redis_url)
        return
    add_deployment(manifest, arms, settings)
    require_prices(manifest, arms, settings)
    with temporary_deployment(
        chosen_profile(profile), list(_UNNEEDED_WORKERS), f"bench {manifest.benchmark}"
    ):
        yield _deployment(profile, redis_url)


def _deployment(profile: str | None, redis_url: str | None) -> Deployment:
    """Return the deployment that runs here, or behind the URL. Raises
    `loopline.runtime.errors.UserError` when there is none."""
    from loopline.runtime.client.deployment import find
    from loopline.runtime.config.sources import absolute_profile
    from loopline.runtime.errors import Unreachable

    try:
        deployment = find(redis_url=redis_url, profile=profile)
    except Unreachable as error:
        hint = f"{error.hint} With --profile NAME, a benchmark starts and stops its own deployment."
        raise Unreachable(error.args[0], hint=hint) from None
    if deployment.run and profile and deployment.run.profile != absolute_profile(profile):
        raise UsageError(
            f"--profile {profile}: the deployment that runs here has the profile "
            f"{deployment.run.profile}; stop it (`runtime down`) and start the other "
            f"(`runtime up --detach --profile {profile}`), or leave --profile out"
        )
    return deployment


def add_deployment(manifest: Manifest, arms: tuple[Arm, ...], settings: Settings) -> Manifest:
    """Return the manifest with the facts of each pool, its prompts and policies, and the
    deployment's values for options that it leaves open. Raises UsageError if an arm lacks a pool,
    or a worker for one of its roles."""
    pools = dict(settings.models)
    if benchmark_of(manifest).needs_judge_worker and "judge" not in settings.workers:
        raise UsageError(
            f"bench {manifest.benchmark} needs a worker of the kind 'judge', which the running "
            "deployment does not have; start one whose profile has it (petting has)"
        )
    for arm in arms:
        _require_roles(arm, settings)
        for pool in needed_pools(arm, settings.policies):
            if pool not in pools:
                raise UsageError(
                    f"arm {arm.name} needs the model pool {pool!r}, which the running deployment "
                    f"does not have (it has: {', '.join(pools) or 'none'}); choose other --arms, "
                    "or start a deployment with that pool"
                )
    facts = {
        name: PoolFacts(
            engine=pool.engine,
            # A path would name this machine; its last part identifies the weights.
            model=Path(pool.model).name if os.path.isabs(pool.model) else pool.model,
            price={
                kind: str(value)
                for kind, value in pool.price.model_dump().items()
                if value is not None
            },
        )
        for name, pool in pools.items()
    }
    played = {arm.name: _playing_policies(arm, settings.policies) for arm in arms}
    options = manifest.options
    if options is not None:
        options = dict(ChainMap(options, *(settings.options.get(arm.workflow, {}) for arm in arms)))
    prompt_files = {file for arm in arms for file in prompts_of(arm.workflow, arm.environment)}
    all_prompts = (
        parse_replacement_prompt(file.content, name, origin=file.path)
        for name, file in settings.prompts.items()
    )
    prompts = {prompt.file: prompt.hash for prompt in all_prompts if prompt.file in prompt_files}
    return manifest.model_copy(
        update={"pools": facts, "options": options, "prompts": prompts, "policies": played}
    )


def require_same_deployment(
    path: Path, manifest: Manifest, arms: tuple[Arm, ...], settings: Settings
) -> None:
    """Check that pools, prompts and policies are those that the benchmark started with. Raises
    UsageError."""
    today = add_deployment(manifest, arms, settings)
    _require_policies(path, manifest, today)
    for arm in arms:
        for pool in sorted(needed_pools(arm, settings.policies)):
            before, now = manifest.pools.get(pool), today.pools[pool]
            if before is not None and (before.engine, before.model) != (now.engine, now.model):
                raise UsageError(
                    f"{path}: the benchmark started with {before.model} ({before.engine}) as pool "
                    f"{pool!r}; the running deployment has {now.model} ({now.engine}). Start the "
                    "original deployment, or start a new benchmark"
                )
    if manifest.prompts != today.prompts:
        raise UsageError(
            f"{path}: the benchmark started with {_prompts(manifest)}; the running deployment has "
            f"{_prompts(today)}. Start it with the original [prompts], or start a new benchmark"
        )


def require_prices(manifest: Manifest, arms: tuple[Arm, ...], settings: Settings) -> None:
    """Check the prices that a budget in dollars needs. Raises UsageError that names the setting of
    a missing price."""
    if manifest.budget_micro_dollars is None:
        return
    from loopline.runtime.client.spending import unpriced_pools

    pools = sorted({pool for arm in arms for pool in needed_pools(arm, settings.policies)})
    missing = unpriced_pools(tuple(pools), settings)
    if missing:
        models = ", ".join(f"{name} ({settings.models[name].model})" for name in missing)
        setting = f"models.{missing[0]}.price"
        raise UsageError(
            f"--budget-usd: the prices of {models} are unknown, so the budget cannot be enforced; "
            f"set {setting}.prompt and {setting}.completion (US dollars per million tokens, "
            "0 for your own server) in the deployment's profile, or leave --budget-usd out"
        )


def _require_policies(path: Path, manifest: Manifest, today: Manifest) -> None:
    """Check that the policies are unchanged: otherwise one arm would mix two systems. Raises
    UsageError; an arm without an entry in the manifest passes."""
    for arm, now in today.policies.items():
        before = manifest.policies.get(arm, now)
        for role in sorted({*before, *now}):
            if before.get(role) != now.get(role):
                raise UsageError(
                    f"{path}: the benchmark started with the policy {before.get(role)!r} as role "
                    f"{role!r} of arm {arm}; the running deployment has {now.get(role)!r}. Start "
                    "it with the original [policies], or start a new benchmark"
                )


def _prompts(manifest: Manifest) -> str:
    named = [f"{file} {hashed[:12]}" for file, hashed in sorted(manifest.prompts.items())]
    return f"the prompts {', '.join(named)}" if named else "the shipped prompts"


def _require_roles(arm: Arm, settings: Settings) -> None:
    """Check that every role has a worker: runs without one would wait until their deadline."""
    from loopline.agents.workflows import serving_role

    worker_roles = {role for worker in settings.workers.values() for role in worker.roles}
    needed = dict.fromkeys(serving_role(arm.workflow, agent) for agent in _roles_of(arm))
    missing = [role for role in needed if role not in worker_roles]
    if missing:
        raise UsageError(
            f"arm {arm.name} needs the role {missing[0]!r}, which no worker of the running "
            f"deployment takes (they take: {', '.join(sorted(worker_roles)) or 'none'}); choose "
            "other --arms, or start a deployment whose profile has a worker with that role (with "
            "--redis-url, LOOPLINE_PROFILE must name that deployment's profile)"
        )


def needed_pools(arm: Arm, policies: dict[str, str]) -> set[str]:
    """Return the pools that serve an arm's roles."""
    from loopline.bus import pool_of

    by_role = _policies_of(arm, policies)
    return {pool_of(by_role[role]) for role in _roles_of(arm)}


def _roles_of(arm: Arm) -> tuple[str, ...]:
    from loopline.agents.workflows import agents_of

    return arm.roles or tuple(agents_of(arm.workflow, arm.environment))


def _policies_of(arm: Arm, policies: dict[str, str]) -> dict[str, str]:
    """Return the policies of an arm by role, given those of a deployment."""
    from loopline.agents.workflows import agents_of, policies_for

    agents = agents_of(arm.workflow, arm.environment)
    role_policies = {agent: policy for agent, policy in policies.items() if agent in agents}
    return policies_for(arm.workflow, {**role_policies, **arm.policies}, arm.environment)


def _playing_policies(arm: Arm, policies: dict[str, str]) -> dict[str, str]:
    """Return the policies of the roles that play in an arm. Raises UsageError if a swap changes
    nothing."""
    by_role = _policies_of(arm, policies)
    if arm.swapped:
        return exchange_policies(arm, by_role)
    return {role: by_role[role] for role in _roles_of(arm)}
