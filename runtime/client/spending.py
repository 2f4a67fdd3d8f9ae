"""Checks whether a run's budget can be enforced, and finds its tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopline.agents.records import Run
from loopline.bus import pool_of
from loopline.bus.tenants import Tenant
from loopline.runtime.errors import InputError
from loopline.workers.admission import tenant_name

if TYPE_CHECKING:
    from loopline.runtime.config.settings import Settings

ENGINES_WITHOUT_BILLS = ("torch", "llama_cpp", "scripted", "vllm", "sglang")
"""Engines without bills: their pools may lack a price if other pools have one."""
MAX_TENANT = 64
"""Maximum length of a tenant's name in characters."""


def tenant_of(run: Run, settings: Settings | None) -> Tenant:
    """Return the tenant of a run with its settings. Raises `InputError`."""
    name = tenant_name(run)
    if not name.isprintable() or len(name) > MAX_TENANT:
        raise InputError(
            f"the tenant {name[:60]!r} is not a name of at most {MAX_TENANT} printable characters"
        )
    configured = settings.tenants.get(name) if settings is not None else None
    if configured is None:
        return Tenant(name)
    return Tenant(name, configured.weight, configured.max_working, configured.priority)


def unpriced_pools(pools: tuple[str, ...], settings: Settings) -> list[str]:
    """Return the pools without a price that need one for a budget in dollars."""
    priced = [pool for pool in pools if pool in settings.priced_pools]
    return [
        pool
        for pool in pools
        if pool not in priced
        and not (priced and settings.models[pool].engine in ENGINES_WITHOUT_BILLS)
    ]


def require_prices(run: Run, settings: Settings) -> None:
    """Raises `InputError` for a run with a budget in dollars whose calls have no known price."""
    if run.budget.micro_dollars is None:
        return
    pools = {pool_of(policy) for policy in run.policies.values()}
    missing = unpriced_pools(tuple(sorted(pools & settings.models.keys())), settings)
    if missing:
        models = ", ".join(f"{name} ({settings.models[name].model})" for name in missing)
        setting = f"models.{missing[0]}.price"
        raise InputError(
            f"the price of {models} is unknown, so a budget in dollars can't be enforced",
            hint=f"set {setting}.prompt and {setting}.completion (US dollars per million tokens, 0 "
            "for your own server), or leave out the dollars",
        )
