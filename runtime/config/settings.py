"""The typed configuration of one deployment. `load` resolves it; `runtime config` prints it.

Every process of a deployment gets the same resolved values: the supervisor resolves them once and
passes them to its workers as a file, so that a worker never reads a profile itself.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Self

import pydantic
from pydantic import Field, JsonValue, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from loopline.agents.errors import AgentError
from loopline.agents.prompts import parse_replacement_prompt
from loopline.agents.records import JsonObject
from loopline.bus.policies import pool_of
from loopline.bus.settings import BusSettings
from loopline.runtime.config.key_value_options import option_value
from loopline.runtime.config.prompt_files import shipped_prompt
from loopline.runtime.config.sections import (
    AppFile,
    GatewaySettings,
    ImproveOption,
    JobSettings,
    LoggingSettings,
    PromptFile,
    RecorderSection,
    RedisServerSettings,
    SupervisorSettings,
    TenantSettings,
    WorkerSettings,
)
from loopline.runtime.config.sources import (
    Layer,
    environment_layer,
    merge_layers,
    origin_of,
    override_layer,
    profile_layers,
    unknown_keys,
)
from loopline.runtime.errors import ConfigError
from loopline.workers.engines.settings import ModelSettings
from loopline.workers.sandbox import SandboxSettings
from loopline.workers.settings import MetricsSettings, TracingSettings
from loopline.workers.tool_sources.settings import SourceName, ToolSourceSettings

DEFAULT_PROFILE = "micro"
SINGLE_KINDS = ("tool", "judge", "recorder", "jobs", "improve", "gateway")
"""Worker kinds that need neither roles nor models."""
_checked: ContextVar[bool] = ContextVar("checked", default=False)
"""Whether a supervisor has already checked the options. A context variable, since `BaseSettings`
does not pass on the context of a validation."""


def _concurrency_substitute(kind: str, worker: WorkerSettings) -> str:
    """Name the setting that limits the concurrent work of a worker kind whose `concurrency` setting
    has no effect; empty for other kinds."""
    if worker.concurrency == WorkerSettings.model_fields["concurrency"].default:
        return ""
    if worker.models:
        return "a gpu worker takes models.POOL.max_concurrency of each of its pools"
    if kind == "recorder":
        return "a recorder writes everything pending in one batch"
    if kind == "improve":
        return "a loop takes one round at a time"
    return "jobs.max_jobs limits all of them together" if kind == "jobs" else ""


class Settings(BaseSettings):
    """All settings of one deployment."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True
    )

    bus: BusSettings = BusSettings()
    """The Redis Streams bus. Without `redis_url` the runtime starts its own server."""
    redis: RedisServerSettings = RedisServerSettings()
    """The Redis server that `runtime up` starts when `bus.redis_url` is not set."""
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    """Model pools by name."""
    policies: dict[str, str] = Field(default_factory=dict)
    """Role → policy that serves its completions: a pool, or pool/adapter."""
    tools: dict[SourceName, ToolSourceSettings] = Field(default_factory=dict)
    """MCP servers and HTTP APIs with tools that the tool workers call."""
    app: AppFile | None = None
    """A one-file app whose tools the tool workers run."""
    sandbox: SandboxSettings = SandboxSettings()
    """Settings with which the judge runs programs that models write."""
    workers: dict[str, WorkerSettings] = Field(default_factory=dict)
    """Worker processes by kind."""
    workflow: str = "delegate"
    """Workflow of `runtime ask` when `--workflow` is not given."""
    options: dict[str, JsonObject] = Field(default_factory=dict)
    """Workflow → default options of its runs. A text is parsed as JSON (`4`, `true`) or else kept
    as text, as in `runtime ask --option`."""
    prompts: dict[str, PromptFile] = Field(default_factory=dict)
    """Prompt → Markdown file that replaces it, as in `umi_planner = "planner.md"`."""
    supervisor: SupervisorSettings = SupervisorSettings()
    """Restarts, readiness, drain, log files."""
    logging: LoggingSettings = LoggingSettings()
    """Log lines of every process."""
    metrics: MetricsSettings = MetricsSettings()
    """`/metrics` for Prometheus."""
    tracing: TracingSettings = TracingSettings()
    """Traces for an OpenTelemetry collector."""
    recorder: RecorderSection = RecorderSection()
    """The store's files."""
    jobs: JobSettings = JobSettings()
    """Offline jobs."""
    improve: dict[str, ImproveOption] = Field(default_factory=dict)
    """Options of `train improve` by name, as in `max_usd = 5`, for the worker kind `improve`."""
    tenants: dict[str, TenantSettings] = Field(default_factory=dict)
    """Tenants by name. A run's tenant comes from its key (`runtime keys create --tenant`), or from
    its tag `tenant`, or else is the id of its key."""
    gateway: GatewaySettings = GatewaySettings()
    """OpenAI's API and this project's own API over HTTP."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Ignore pydantic's own sources: `load` has read and merged every layer, and the
        constructor never reads the environment."""
        return (init_settings,)

    @field_validator("options", mode="after")
    @classmethod
    def _parse_text_options(cls, options: dict[str, JsonObject]) -> dict[str, JsonObject]:
        """Parse options from a variable or from `--set`, which are always texts."""
        return {
            workflow: {name: option_value(value) for name, value in workflow_options.items()}
            for workflow, workflow_options in options.items()
        }

    @field_validator("improve", mode="before")
    @classmethod
    def _parse_text_improve_options(cls, options: JsonValue) -> JsonValue:
        if not isinstance(options, dict):
            return options
        return {name: option_value(value) for name, value in options.items()}

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        for kind, worker in self.workers.items():
            if not worker.roles and not worker.models and kind not in SINGLE_KINDS:
                others = sorted({*self.workers, *SINGLE_KINDS} - {kind})
                nearest = difflib.get_close_matches(kind, others, n=1)
                raise ValueError(
                    f"workers.{kind} has neither roles nor models, so it would do nothing; "
                    + (f"did you mean workers.{nearest[0]}? " if nearest else "")
                    + f"Kinds: {', '.join(others)}"
                )
            if instead := _concurrency_substitute(kind, worker):
                raise ValueError(
                    f"workers.{kind}.concurrency has no effect: {instead}; leave it out"
                )
            if kind == "improve" and worker.count > 1:
                raise ValueError("workers.improve.count must be at most 1: there is only one loop")
            if worker.roles and worker.models:
                raise ValueError(f"workers.{kind} has roles and models: split it into two kinds")
            for pool in worker.models:
                if pool not in self.models:
                    raise ValueError(
                        f"workers.{kind}.models names the pool {pool!r}, which [models] doesn't"
                        f" have ({', '.join(self.models) or 'it is empty'})"
                    )
        if self.tracing.endpoint is not None and "recorder" not in self.workers:
            raise ValueError(
                "tracing.endpoint does nothing without a recorder, which sends the traces: add "
                "[workers.recorder]"
            )
        for role, policy in self.policies.items():
            if pool_of(policy) not in self.models:
                raise ValueError(
                    f"policies.{role} names the pool {pool_of(policy)!r}, which [models] doesn't"
                    f" have ({', '.join(self.models) or 'it is empty'})"
                )
        if self.options and not _checked.get():
            _check_options(self.options)
        for name, file in self.prompts.items():
            try:
                shipped_prompt(name)
                parse_replacement_prompt(file.content, name, origin=file.path)
            except AgentError as error:
                raise ValueError(f"prompts.{name}: {error}") from error
        return self

    @property
    def prompt_files(self) -> dict[str, str]:
        """Content by prompt file, as in `Run.prompt_files`."""
        return {f"{name}.md": file.content for name, file in self.prompts.items()}

    @property
    def secret_variables(self) -> tuple[str, ...]:
        """Environment variables whose values must never be written anywhere."""
        keys = (name for model in self.models.values() for name in model.key_variables)
        of_tools = (name for tool in self.tools.values() for name in tool.secret_variables)
        callers = (key.env for key in self.gateway.keys.values())
        return (*keys, *of_tools, *self.tracing.headers_env.values(), *callers)

    @property
    def priced_pools(self) -> tuple[str, ...]:
        """Pools that have a price, even 0; the cost of other pools' calls is unknown."""
        return tuple(name for name, model in self.models.items() if model.price.is_known)

    @property
    def ready_seconds(self) -> float:
        """Seconds that workers may take to be ready; a worker that starts a server may take the
        server's start time."""
        servers = [model.serving.start_seconds for model in self.models.values() if model.managed]
        return max([self.supervisor.ready_seconds, *servers])

    @property
    def own_redis(self) -> bool:
        """Whether the runtime starts the Redis server itself."""
        return "redis_url" not in self.bus.model_fields_set

    def with_redis_url(self, url: str) -> Settings:
        """Return the same settings for the server at `url`."""
        bus = BusSettings.model_validate(
            {**self.bus.model_dump(exclude_unset=True), "redis_url": url}
        )
        return self.model_copy(update={"bus": bus})

    def naming(self, keys: set[str]) -> Settings:
        """Return the same settings, with the given bus settings marked as set."""
        bus = self.bus.naming(keys)
        return self.model_copy(update={"bus": bus})

    def to_json(self) -> str:
        """Return all settings as JSON, including secrets: write it only to files of mode 0600."""
        return self.model_dump_json(exclude_unset=False)


def _check_options(options: Mapping[str, JsonObject]) -> None:
    """Raises ValueError for an unknown workflow or option."""
    # Imported here, since it loads every role and environment, which most processes don't need.
    from loopline.agents.workflows import workflows

    for workflow, its_options in options.items():
        try:
            workflows.get(workflow).check_options(its_options)
        except AgentError as error:
            raise ValueError(f"options.{workflow}: {error}") from error


def chosen_profile(profile: str | None, environ: Mapping[str, str] | None = None) -> str:
    """Return the given profile, or else the environment's, or else the default profile."""
    environ = os.environ if environ is None else environ
    return profile or environ.get("LOOPLINE_PROFILE") or DEFAULT_PROFILE


def load(
    profile: str | None = None,
    *,
    overrides: Iterable[str] = (),
    redis_url: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Resolve the configuration.

    Raises `ConfigError`, which lists every unknown key and every wrong value with its source.
    """
    environ = os.environ if environ is None else environ
    layers = [
        *profile_layers(chosen_profile(profile, environ)),
        environment_layer(Settings, environ),
        override_layer(overrides),
    ]
    if redis_url is not None:
        layers.append(Layer(origin="--redis-url", data={"bus": {"redis_url": redis_url}}))
    return _resolve_layers(layers)


def is_profile_given(profile: str | None) -> bool:
    """Whether a profile is given, or the environment names one."""
    return bool(profile or os.environ.get("LOOPLINE_PROFILE"))


def load_for_remote_deployment(
    values: Mapping[str, JsonValue],
    *,
    overrides: Iterable[str] = (),
    redis_url: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Load a remote deployment's settings, overridden by the settings of this machine.

    Raises `ConfigError` as `load` does.
    """
    layers = [
        Layer(origin="the deployment", data=dict(values)),
        environment_layer(Settings, os.environ if environ is None else environ),
        override_layer(overrides),
    ]
    if redis_url is not None:
        layers.append(Layer(origin="--redis-url", data={"bus": {"redis_url": redis_url}}))
    return _resolve_layers(layers)


def load_for_running_deployment(
    running: Settings,
    profile: str | None = None,
    *,
    overrides: Iterable[str] = (),
) -> Settings:
    """Load the settings that a deployment was started with, or another profile on its bus, with the
    overrides on top. Neither that profile nor the environment changes the bus's address and prefix:
    a process with another prefix would silently miss the deployment. A shared value that differs is
    refused at the join.

    Raises `ConfigError` as `load` does.
    """
    data = running.model_dump(mode="json")
    origin = "the running deployment"
    around = environment_layer(Settings, os.environ)
    if profile:
        extra_layers = [*profile_layers(profile), around]
        layers = [Layer(origin=origin, data={"bus": data["bus"]}), *extra_layers]
    else:
        of_bus = {name: value for name, value in around.data.items() if name == "bus"}
        extra_layers = [Layer(origin=around.origin, data=of_bus, names=around.names)]
        layers = [Layer(origin=origin, data=data), *extra_layers]
    over = override_layer(overrides)
    place = {name: data["bus"][name] for name in ("redis_url", "prefix")}
    settings = _resolve_layers([*layers, Layer(origin=origin, data={"bus": place}), over])
    named = merge_layers([*extra_layers, over]).get("bus", {})
    return settings.naming(set(named) if isinstance(named, dict) else set())


def configured_redis_url(profile: str | None, overrides: Iterable[str]) -> str | None:
    """Return the URL of the bus from a profile, the environment or an override; `None` if none sets
    it. Raises `ConfigError` if one of them can't be read.
    """
    layers = [
        *(profile_layers(profile) if profile else ()),
        environment_layer(Settings, os.environ),
        override_layer(overrides),
    ]
    bus = merge_layers(layers).get("bus")
    return (bus.get("redis_url") or None) if isinstance(bus, dict) else None


def environment_names_bus() -> bool:
    """Whether an environment variable sets a value of the bus."""
    return bool(environment_layer(Settings, os.environ).data.get("bus"))


def _resolve_layers(layers: list[Layer]) -> Settings:
    wrong = [problem for layer in layers for problem in unknown_keys(Settings, layer)]
    if wrong:
        raise ConfigError("\n".join(wrong), hint="`runtime config --keys` lists every valid key.")
    try:
        return Settings.model_validate(merge_layers(layers))
    except pydantic.ValidationError as error:
        raise ConfigError(_explain_error(error, layers)) from None


def parse(text: str) -> Settings:
    """Read settings from the JSON that `Settings.to_json` wrote."""
    before = _checked.set(True)
    try:
        return Settings.model_validate_json(text)
    except pydantic.ValidationError as error:
        raise ConfigError(
            "the resolved configuration was written by another version: "
            f"{_explain_error(error, [])}",
            hint="stop the deployment with the version that started it, then start it again.",
        ) from None
    finally:
        _checked.reset(before)


def load_resolved_file(path: Path) -> Settings:
    """Read settings from a file that the supervisor wrote. They don't count as chosen by the user,
    so the deployment's later agreements override them. Raises `ConfigError`."""
    try:
        return parse(path.read_text()).naming(set())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


def _explain_error(error: pydantic.ValidationError, layers: list[Layer]) -> str:
    lines: list[str] = []
    for detail in error.errors(include_url=False, include_input=False):
        path = tuple(str(part) for part in detail["loc"])
        message = detail["msg"].removeprefix("Value error, ")
        lines.append(f"{origin_of(layers, path)}: {message}" if path else message)
    return "\n".join(lines)
