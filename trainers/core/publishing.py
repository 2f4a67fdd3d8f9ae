"""Publishes the results of a training, adapters or whole models, to a running deployment, whose gpu
workers load them at once.

    OUTPUT/published/<start of the weights' SHA-256>/<folder>/    published weights

Published weights stay there even if the training is discarded, for example with `--restart`: a
deployment may answer with them.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loopline.agents.template_options import TemplateValue
from loopline.bus import Policy, pool_of
from loopline.trainers.core.network import base_folder
from loopline.trainers.core.output_folder import guard_disk_writes
from loopline.trainers.errors import TrainingError
from loopline.workers.atomic_files import atomic_folder
from loopline.workers.engines.local.adapter_base import (
    NO_WHOLE_MODEL,
    holds_whole_model,
    require_same_tokenizer,
    weights_sha256,
)
from loopline.workers.engines.protocol import EngineError
from loopline.workers.engines.settings import SERVED, ModelSettings

if TYPE_CHECKING:
    from loopline.runtime.config.settings import Settings


@dataclass(frozen=True)
class Publication:
    """One policy, and the adapter or whole model that is to answer for it."""

    policy: str
    """A pool, or pool/adapter."""
    folder: Path
    base_sha256: str
    """SHA-256 of the weights that training started from."""
    template_options: Mapping[str, TemplateValue] | None = None
    """Options of the chat template with which the training rendered its prompts; None if prompts
    came from recorded ids."""


def publish(
    publications: Sequence[Publication],
    output: Path,
    redis_url: str | None,
    wait: float,
    profile: str | None = None,
) -> None:
    """Publish all of them, from `output`, and report the outcome of each.

    Raises `TrainingError`, before anything is published, if there is no deployment, or if a pool
    serves another model than the adapters' base: with equal shapes it would load without an error
    and answer nonsense. Raises `typer.Exit` after the first adapter that a worker refuses; the ones
    after it are not published.
    """
    from loopline.bus import BusUnavailable
    from loopline.runtime.client.deployment import find
    from loopline.runtime.client.policy_changes import change_and_report
    from loopline.runtime.errors import UserError

    try:
        pools = find(redis_url=redis_url, profile=profile).settings.models
        for publication in publications:
            require_base(publication, pools)
        for publication in publications:
            path = str(_keep_copy(publication.folder, output).resolve())
            change_and_report(publication.policy, redis_url, wait, _publish_change(path))
    except (UserError, BusUnavailable) as error:
        raise TrainingError(f"--publish: {error}") from error


def target_settings(redis_url: str | None, profile: str | None) -> Settings:
    """The settings of the deployment that a training is to be published to. Raises `TrainingError`,
    before the training, if publishing is not possible."""
    from loopline.runtime.client.deployment import find
    from loopline.runtime.errors import UserError

    try:
        return find(redis_url=redis_url, profile=profile).settings
    except UserError as error:
        raise TrainingError(f"--publish: {error}") from error


def require_base(
    publication: Publication, pools: Mapping[str, ModelSettings], *, option: str = "--publish"
) -> None:
    """Raise `TrainingError`, which blames `option`, unless the policy's pool exists and serves the
    adapter's base."""
    pool = pool_of(publication.policy)
    if pool not in pools:
        raise TrainingError(f"{option}: there is no pool {pool!r}; pools: {', '.join(pools)}")
    pool_settings = pools[pool]
    is_fixed = pool_settings.engine == "vllm" and not pool_settings.managed
    if is_fixed and holds_whole_model(str(publication.folder)):
        raise TrainingError(
            f"{option}: the pool {pool} is served by vllm, and {publication.folder} is a whole "
            f"model: {NO_WHOLE_MODEL}"
        )
    if pool_settings.engine not in ("torch", *SERVED):
        raise TrainingError(
            f"{option}: the pool {pool} is served by {pool_settings.engine}, which reads neither "
            "PEFT "
            "folders nor whole models; convert adapters with `train export --gguf FILE --base "
            "MODEL` and publish the files with `runtime policies publish`"
        )
    _require_weights(publication, pool_settings.model, option)
    if publication.template_options not in (None, pool_settings.template_options):
        raise TrainingError(
            f"{option}: {publication.folder} learned from prompts with the template options "
            f"{dict(publication.template_options or {})}, but the pool {pool} has "
            f"{pool_settings.template_options}: train with the pool's options "
            "(--template-option), or change its template_options"
        )


def _require_weights(publication: Publication, model: str, option: str) -> None:
    if holds_whole_model(str(publication.folder)):
        # It may have been trained through several models: the engine compares their shapes.
        try:
            require_same_tokenizer(str(publication.folder), base_folder(model), model)
        except EngineError as error:
            raise TrainingError(f"{option}: {error}") from error
        return
    pool_sha256 = weights_sha256(base_folder(model))
    if publication.base_sha256 != pool_sha256:
        raise TrainingError(
            f"{option}: {publication.folder} is an adapter of another base than {model}, which the "
            f"pool {pool_of(publication.policy)} serves: its base's weights have the hash "
            f"{publication.base_sha256[:12]}, the pool's {pool_sha256[:12]}. Train from that model "
            f"(--base {model}), or serve the adapter's own base"
        )


def _keep_copy(folder: Path, output: Path) -> Path:
    """Copy the folder's files to a place where no training removes them. Raises `NotEnoughDisk`."""
    final = output / "published" / weights_sha256(folder)[:12] / folder.name
    if final.exists():
        return final
    with guard_disk_writes(final), atomic_folder(final) as partial:
        shutil.copytree(folder, partial, copy_function=_link_file, dirs_exist_ok=True)
    return final


def _link_file(source: str, target: str) -> None:
    """Link a file, or copy it if the file system cannot link. A link takes no room, and is safe
    since trained files are never changed in place."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _publish_change(path: str) -> Callable[[Policy], Policy]:
    return lambda policy: policy.published(path, time.time())
