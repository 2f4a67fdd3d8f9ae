"""Hands finished adapters to a running deployment, whose gpu workers load them at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bus import Policy
from trainers.errors import TrainingError
from trainers.glpft.facts import StageFacts
from trainers.glpft.fingerprint import weights_sha256
from trainers.glpft.report import Report
from trainers.glpft.settings import GlpftSettings
from trainers.glpft.stages import ROLES
from trainers.network import base_folder


@dataclass(frozen=True)
class Publication:
    """One policy and the adapter that it is to be answered with."""

    policy: str
    folder: Path
    facts: StageFacts


def require_publishable(settings: GlpftSettings) -> None:
    """Raises `TrainingError` for what three policies of one pool can't be served by. Asked before
    the training, which takes long."""
    if settings.method == "single":
        raise TrainingError(
            "--publish: a single model writes no turns of a planner, a caller or a summarizer; "
            "the workflow umi could not read it"
        )
    if settings.weights == "full":
        raise TrainingError(
            "--publish: policies are adapters of the model that a pool serves; train them with "
            "--weights lora or lora-roles, or serve the folders as pools of their own"
        )


def publications(report: Report, output: Path, pool: str) -> tuple[Publication, ...]:
    """The three policies; of a multi-task model all three are the same adapter."""
    by_stage = {facts.stage: facts for facts in report.stages}
    return tuple(
        Publication(f"{pool}/{role}", output / stage, by_stage[stage])
        for role in ROLES
        for stage in (role if role in by_stage else "multitask",)
    )


def publish(chosen: tuple[Publication, ...], pool: str, redis_url: str | None, wait: float) -> None:
    """Publish all of them, and tell what became of each.

    Raises `TrainingError`, before anything is published, if there is no deployment, or if the pool
    serves another model than the adapters' base: same shapes would be loaded without complaint and
    answer nonsense. Raises `typer.Exit` behind the first adapter that a worker refuses; those
    after it are not published.
    """
    from bus import BusUnavailable
    from runtime.commands.policies import change
    from runtime.errors import UserError

    try:
        _require_base(chosen, pool, redis_url)
        for each in chosen:
            path = str(each.folder.resolve())
            change(each.policy, redis_url, wait, _published(path))
    except (UserError, BusUnavailable) as error:
        raise TrainingError(f"--publish: {error}") from error


def _require_base(chosen: tuple[Publication, ...], pool: str, redis_url: str | None) -> None:
    from runtime.deployment import find

    pools = find(redis_url=redis_url).settings.models
    if pool not in pools:
        raise TrainingError(f"--publish: there is no pool {pool!r}; pools: {', '.join(pools)}")
    served = pools[pool]
    if served.engine != "torch":
        raise TrainingError(
            f"--publish: the pool {pool} is served by {served.engine}, which reads no PEFT "
            "folders; convert the adapters with `train export --gguf FILE --base MODEL` and "
            "publish the files with `runtime policies publish`"
        )
    found = weights_sha256(base_folder(served.model))
    for each in chosen:
        if each.facts.base_sha256 != found:
            raise TrainingError(
                f"--publish: {each.folder} is an adapter of another base than {served.model}, "
                f"which the pool {pool} serves: its base's weights have the hash "
                f"{each.facts.base_sha256[:12]}, the pool's {found[:12]}. Train from that model "
                f"(--base {served.model}), or serve the adapter's own base"
            )


def _published(path: str) -> Callable[[Policy], Policy]:
    return lambda policy: policy.published(path, time.time())
