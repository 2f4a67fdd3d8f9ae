"""The deployment that a command works on: the one in this state directory, or one joined by URL."""

from __future__ import annotations

from dataclasses import dataclass

from loopline.runtime.config.settings import (
    Settings,
    chosen_profile,
    configured_redis_url,
    environment_names_bus,
    is_profile_given,
    load,
    load_for_remote_deployment,
    load_for_running_deployment,
    load_resolved_file,
)
from loopline.runtime.config.shared import read_from
from loopline.runtime.config.sources import absolute_profile
from loopline.runtime.config.state import RunFile, StateDirectory
from loopline.runtime.errors import Unreachable
from loopline.runtime.observe.logging import log_to_stderr
from loopline.runtime.redis.users import without_user


@dataclass(frozen=True)
class Deployment:
    """A deployment and how to reach it. `run` is set if its supervisor runs on this machine."""

    settings: Settings
    state: StateDirectory
    run: RunFile | None
    profile: str
    """Profile of the settings: its name, or the absolute path of its file."""


def find(
    *, redis_url: str | None = None, profile: str | None = None, overrides: tuple[str, ...] = ()
) -> Deployment:
    """Return the deployment that runs in this state directory, with the configuration it was
    started with or with another profile on its bus; overrides apply on top. If a different
    `redis_url` is given or configured (by a profile, the environment or an override), return the
    deployment behind that URL; without a profile, use the configuration that it serves.

    Raises `Unreachable` if there is neither, or if the deployment is still starting.
    """
    log_to_stderr()
    state = StateDirectory.from_environment()
    run = None if redis_url else state.running()
    if run is not None:
        other_profile = None if profile and absolute_profile(profile) == run.profile else profile
        configured = configured_redis_url(other_profile, overrides)
        if configured is None or without_user(configured) == without_user(run.redis_url):
            settings = load_resolved_file(state.resolved)
            if other_profile or overrides or environment_names_bus():
                settings = load_for_running_deployment(settings, other_profile, overrides=overrides)
            if configured not in (None, run.redis_url):  # another Redis user, as in a job
                settings = settings.with_redis_url(configured)
            return Deployment(settings, state, run, absolute_profile(other_profile or run.profile))
    settings = load(profile, overrides=overrides, redis_url=redis_url)
    if settings.own_redis:
        raise _unreachable_error(state, ", or name its bus with --redis-url")
    if not is_profile_given(profile) and (there := read_from(settings.bus)) is not None:
        settings = load_for_remote_deployment(
            there.values, overrides=overrides, redis_url=redis_url
        )
        return Deployment(settings, state, None, there.profile)
    return Deployment(settings, state, None, absolute_profile(chosen_profile(profile)))


def local_run_file(state: StateDirectory | None = None) -> RunFile:
    """Return the run file of this machine's supervisor. Raises `Unreachable` if none runs, or if it
    is still starting."""
    state = state or StateDirectory.from_environment()
    run = state.running()
    if run is None:
        raise _unreachable_error(state)
    return run


def _unreachable_error(state: StateDirectory, otherwise: str = "") -> Unreachable:
    if pid := state.holder():
        return Unreachable(
            f"a deployment is just starting in {state.path} (pid {pid})",
            hint="try again in a moment; its progress is in the terminal of `runtime up`, or with"
            f" --detach in {state.supervisor_log}. `kill {pid}` ends it.",
        )
    return Unreachable(
        f"no deployment runs in {state.path}",
        hint="start one with `runtime up --detach`; if one runs, go to the folder where it was"
        f" started, or set LOOPLINE_STATE to its state directory{otherwise}.",
    )
