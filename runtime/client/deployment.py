"""The deployment that a command works on: that of this state directory, or one joined by URL."""

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
    """Settings to reach it with; `run` is set when its supervisor runs on this machine."""

    settings: Settings
    state: StateDirectory
    run: RunFile | None
    profile: str
    """Profile of the settings: its name, or the absolute path of its file."""


def find(
    *, redis_url: str | None = None, profile: str | None = None, overrides: tuple[str, ...] = ()
) -> Deployment:
    """The deployment that runs in this state directory, with the configuration it was started
    with, or another profile on its bus, and the overrides over it. With a `redis_url` that is not
    its own, given or configured (by a profile, the environment or an override), the one behind it:
    without a profile, with what that one serves.

    Raises `Unreachable` when there is neither, or it is just starting.
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
            if configured not in (None, run.redis_url):  # by another user, as a job is
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
    """Check the supervisor of this machine. Raises `Unreachable` when none runs, or it is just
    starting."""
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
