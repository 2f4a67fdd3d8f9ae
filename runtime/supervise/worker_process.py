"""One worker process of this deployment: converts the runtime's settings to a worker's plain
values."""

from __future__ import annotations

import asyncio
import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from loopline.runtime.config.secrets import secret_values
from loopline.runtime.config.settings import Settings
from loopline.runtime.config.state import StateDirectory
from loopline.runtime.errors import EXIT_CONFIG, ConfigError, UserError
from loopline.runtime.observe.logging import configure
from loopline.runtime.supervise.worker_environment import gateway_pools, worker_environment
from loopline.runtime.supervise.worker_name import worker_name
from loopline.workers.process_lifetime import PARENT_VARIABLE, watch_parent
from loopline.workers.self_limits import become_undumpable
from loopline.workers.settings import (
    GpuWorkerSettings,
    JudgeWorkerSettings,
    RecorderSettings,
    RoleWorkerSettings,
    ToolWorkerSettings,
    WorkerSettings,
)
from loopline.workers.tracing.providers import provider_of

if TYPE_CHECKING:
    from loopline.bus import Agreement
    from loopline.workers.process import Front

log = structlog.get_logger("runtime.worker")

_RETRY_SECONDS = 2.0


def worker_settings_of(
    settings: Settings, kind: str, name: str, state: StateDirectory
) -> WorkerSettings:
    """Return the settings of a `kind` worker. Raises `ConfigError` for a kind that isn't
    configured."""
    configured = settings.workers.get(kind)
    if configured is None:
        nearest = difflib.get_close_matches(kind, list(settings.workers), n=1)
        suggestion = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise ConfigError(
            f"there is no worker kind {kind!r} in this configuration",
            hint=f"{suggestion}Kinds: {', '.join(settings.workers)}",
        )
    bus, concurrency, metrics = settings.bus, configured.concurrency, settings.metrics
    if configured.roles:
        return RoleWorkerSettings(
            bus=bus, name=name, concurrency=concurrency, metrics=metrics, roles=configured.roles
        )
    if configured.models:
        pools = {pool: settings.models[pool] for pool in configured.models}
        return GpuWorkerSettings(
            bus=bus, name=name, concurrency=concurrency, metrics=metrics, models=pools
        )
    if kind == "gateway":
        return RoleWorkerSettings(
            bus=bus,
            name=name,
            concurrency=concurrency,
            metrics=metrics,
            roles=("chat", "embeddings"),
            models={name: settings.models[name] for name in gateway_pools(settings)},
        )
    if kind == "tool":
        return ToolWorkerSettings(
            bus=bus,
            name=name,
            concurrency=concurrency,
            metrics=metrics,
            sources=settings.tools,
            tracing=settings.tracing,
        )
    if kind == "judge":
        return JudgeWorkerSettings(
            bus=bus,
            name=name,
            concurrency=concurrency,
            metrics=metrics,
            problems=state.problems,
            sandbox=settings.sandbox,
        )
    if kind == "recorder":
        return RecorderSettings(
            bus=bus,
            name=name,
            concurrency=concurrency,
            metrics=metrics,
            store=state.store,
            **settings.recorder.model_dump(),
            priced_pools=settings.priced_pools,
            tracing=settings.tracing,
            providers={name: provider_of(model) for name, model in settings.models.items()},
        )
    raise ConfigError(f"workers.{kind} has neither roles nor models, so it would do nothing")


def run_worker(
    settings: Settings,
    kind: str,
    name: str | None,
    state: StateDirectory,
    *,
    remedy: str,
    profile: str | None = None,
) -> None:
    """Serve until stopped. A worker that was started by hand, with a `profile`, must match its
    deployment's configuration, which the first worker writes. Raises `UserError`, with `remedy` if
    an engine can't start, or `BusUnavailable`."""
    watch_parent()
    _forget_secrets_of_others(settings, kind)
    become_undumpable()
    name = name or worker_name(kind)
    configure(
        level=settings.logging.level,
        form=settings.logging.format,
        secrets=secret_values(
            settings.bus.redis_url, [*settings.secret_variables, "OPENAI_API_KEY"]
        ),
        worker=name,
    )
    if kind == "jobs":
        from loopline.runtime.jobs.queue import run_jobs_worker

        run_jobs_worker(settings, name, state)
        return
    if kind == "improve":
        from loopline.runtime.jobs.improve_worker import run_improve_worker

        run_improve_worker(settings, name, state)
        return
    if settings.app is not None and kind in ("tool", "gateway"):
        from loopline.runtime.app.loading import load_app

        load_app(settings.app)
    front = None
    if kind == "gateway":
        from loopline.runtime.gateway.front import GatewayFront

        front = GatewayFront(settings, state)
    worker_settings = worker_settings_of(settings, kind, name, state)
    _serve(worker_settings, remedy, _deployment_view(settings, kind, profile, state), front)


def _forget_secrets_of_others(settings: Settings, kind: str) -> None:
    """Delete other kinds' secrets from the environment. A worker under a supervisor has none of
    them; a worker that was started by hand has all."""
    environment = worker_environment(settings, kind, os.environ)
    for variable in set(os.environ) - set(environment):
        del os.environ[variable]


@dataclass(frozen=True)
class _DeploymentView:
    """Return the entries that a worker writes about its deployment, and its checks after the
    join."""

    claims: Mapping[str, str]
    require: Callable[[Agreement], None] | None


def _deployment_view(
    settings: Settings, kind: str, profile: str | None, state: StateDirectory
) -> _DeploymentView:
    if profile is None:
        return _DeploymentView({}, None)
    from loopline.runtime.config.shared import (
        STORE,
        claims_of,
        configuration_of,
        require_passwords,
        require_same,
        require_same_store,
        shared_configuration,
    )

    require_passwords(settings)
    claims = claims_of(settings, profile, state if kind == "recorder" else None)

    def require(agreement: Agreement) -> None:
        if STORE in claims:
            require_same_store(agreement, claims[STORE])
        if (there := configuration_of(agreement)) is not None:
            require_same(shared_configuration(settings, profile), there)

    return _DeploymentView(claims, require)


def _serve(
    worker_settings: WorkerSettings,
    remedy: str,
    agreement: _DeploymentView,
    front: Front | None,
) -> None:
    import uvloop

    from loopline.agents.errors import AgentError
    from loopline.workers.engines.protocol import EngineError

    try:
        uvloop.run(_run_through_outages(worker_settings, agreement, front))
    except EngineError as error:
        # A restart doesn't fix a refused key or a missing model.
        code = None if error.retryable else EXIT_CONFIG
        raise UserError(str(error), hint=remedy, exit_code=code) from error
    except AgentError as error:
        raise UserError(str(error), exit_code=EXIT_CONFIG) from error


async def _run_through_outages(
    worker_settings: WorkerSettings, agreement: _DeploymentView, front: Front | None
) -> None:
    """Under a supervisor, a worker waits for Redis: dying would only trip the crash-loop breaker. A
    worker that was started by hand reports the outage and exits."""
    from loopline.bus import BusUnavailable, DeploymentChanged, DeploymentMismatch
    from loopline.workers.process import Worker

    while True:
        try:
            await Worker(
                worker_settings,
                claims=agreement.claims,
                require=agreement.require,
                front=front,
            ).run()
            return
        except DeploymentChanged:
            log.info("the deployment has agreed on other settings: joining again")
            continue
        except DeploymentMismatch as error:
            raise UserError(str(error), exit_code=EXIT_CONFIG) from error
        except BusUnavailable as error:
            if PARENT_VARIABLE not in os.environ:
                raise
            log.warning("waiting for the bus", error=str(error), again_in=_RETRY_SECONDS)
        await asyncio.sleep(_RETRY_SECONDS)
