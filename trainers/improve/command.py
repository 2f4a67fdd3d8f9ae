"""`train improve`, and `loopline improve`: the closed loop on a running deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from loopline.runtime.client.deployment import Deployment
    from loopline.trainers.improve.loop import Decision
    from loopline.trainers.improve.options import ImproveOptions
    from loopline.trainers.improve.settings import LoopSettings


def improve(options: ImproveOptions) -> None:
    """Let a cascade's small model learn what it escalates.

    It checks the deployment's recorded runs. Whenever enough were escalated, it trains a candidate
    and compares it with the serving version on audited questions. If the candidate is better, it
    publishes it and calibrates the cascade's router on it; otherwise it rolls the candidate back.

    It ends at its bounds or by Ctrl-C. Run it again to continue, also after a crash.
    """
    import asyncio

    from loopline.runtime.client.deployment import find
    from loopline.trainers.core.interruption import exit_on_interrupt
    from loopline.trainers.core.output_folder import lock_output

    deployment = find(redis_url=options.redis_url, profile=options.profile)
    settings, router = require_cascade(deployment, options)
    with exit_on_interrupt(), lock_output(options.output):
        asyncio.run(_follow(options, deployment, settings, router))


async def _follow(
    options: ImproveOptions, deployment: Deployment, settings: LoopSettings, router: Path
) -> None:
    import asyncio

    from loopline.runtime.client.client import Client
    from loopline.trainers.improve.loop import ImprovementLoop

    def say(text: str) -> None:
        typer.echo(text)

    async with Client.of(deployment.settings) as client:
        loop = ImprovementLoop(
            settings,
            options.output,
            client=client,
            store=deployment.state.store,
            router=router,
            say=say,
            trackers=options.trackers,
        )
        while True:
            bound = bound_reached(options, loop.decisions())
            if bound is not None:
                say(f"ends: {bound}")
                return
            if await loop.look() is None and options.once:
                say("no round is due")
            if options.once:
                return
            await asyncio.sleep(options.look)


def bound_reached(options: ImproveOptions, decisions: list[Decision]) -> str | None:
    """The bound that was reached, as text, or None."""
    cpu = sum(decision.cpu_seconds for decision in decisions) / 60
    dollars = sum(decision.micro_dollars for decision in decisions) / 1e6
    if options.max_rounds is not None and len(decisions) >= options.max_rounds:
        return f"{len(decisions):,} rounds were taken (--max-rounds)"
    if options.max_cpu_minutes is not None and cpu >= options.max_cpu_minutes:
        return f"the trainings took {cpu:.1f} CPU minutes (--max-cpu-minutes)"
    if options.max_usd is not None and dollars >= options.max_usd:
        return f"the comparisons cost ${dollars:.4f} (--max-usd)"
    return None


def require_cascade(deployment: Deployment, options: ImproveOptions) -> tuple[LoopSettings, Path]:
    """The loop's settings, and its router's file. Raises `TrainingError` for a deployment whose
    cascade would not notice the loop's changes."""
    from pathlib import Path

    from loopline.bus import pool_of
    from loopline.trainers.errors import TrainingError

    configuration = deployment.settings
    pool = pool_of(options.policy)
    if pool not in configuration.models:
        pools = ", ".join(configuration.models)
        raise TrainingError(f"--policy {options.policy}: there is no pool {pool!r}; pools: {pools}")
    settings = options.loop(configuration.models[pool].model)
    adapters = configuration.models[pool].base_until_published
    missing = [
        name
        for name in (settings.policy.partition("/")[2], settings.candidate.partition("/")[2])
        if name not in adapters
    ]
    if missing:
        raise TrainingError(
            f"the pool {pool} serves no adapter {missing[0]!r} before one is published: set "
            f"models.{pool}.base_until_published to "
            f"{[settings.policy.partition('/')[2], settings.candidate.partition('/')[2]]}"
        )
    if configuration.policies.get("first") != settings.policy:
        raise TrainingError(
            f"the cascade's small model is {configuration.policies.get('first')!r}: set "
            f"policies.first = {settings.policy!r}, or name another --policy"
        )
    cascade = configuration.options.get("cascade", {})
    router, audit = cascade.get("router"), cascade.get("audit")
    if not isinstance(router, str):
        raise TrainingError(
            "the cascade has no router to calibrate: set options.cascade.router to the path of a "
            "file, such as /srv/loopline/cascade.router.json; the file need not exist yet"
        )
    if not isinstance(audit, (int, float)) or audit <= 0:
        raise TrainingError(
            "the cascade audits no runs, so nothing could be compared: set options.cascade.audit, "
            "for example to 0.1"
        )
    return settings, Path(router)
