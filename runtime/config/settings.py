"""The typed configuration of one deployment. `load` resolves it; `runtime config` prints it.

Every process of a deployment gets the same resolved values: the supervisor resolves them once
and hands them to its workers as a file, so that a worker never reads a profile of its own.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, Self

import pydantic
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from loopline.agents.errors import AgentError
from loopline.agents.prompts import parse_replacement_prompt
from loopline.agents.records import JsonObject
from loopline.agents.workflows import workflows
from loopline.bus.policies import pool_of
from loopline.bus.settings import BusSettings
from loopline.runtime.config.key_value_options import option_value
from loopline.runtime.config.prompt_files import prompt_content, shipped_prompt
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
from loopline.workers.settings import MetricsSettings
from loopline.workers.tool_sources.settings import SourceName, ToolSourceSettings

DEFAULT_PROFILE = "micro"
SINGLE_KINDS = ("tool", "judge", "recorder", "jobs", "gateway")
"""Worker kinds that need neither roles nor models."""


def _concurrency_substitute(kind: str, worker: WorkerSettings) -> str:
    """What says how much workers of a kind do at once, where their `concurrency` does not and is
    given all the same."""
    if worker.concurrency == WorkerSettings.model_fields["concurrency"].default:
        return ""
    if worker.models:
        return "a gpu worker takes models.POOL.max_concurrency of each of its pools"
    if kind == "recorder":
        return "a recorder writes what there is in one batch"
    return "jobs.max_jobs is for all of them" if kind == "jobs" else ""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class RedisServerSettings(Section):
    """The server that `runtime up` starts when `bus.redis_url` is not set."""

    listen: Literal["unix", "tcp"] = "unix"
    """A socket file in the state directory, or a port on the loopback address."""
    port: int = Field(default=0, ge=0, le=65_535)
    """Loopback port when `listen = "tcp"`; 0 takes a free one."""
    appendfsync: Literal["always", "everysec", "no"] = "everysec"
    """How much of what was acknowledged a power failure can take: nothing, a second, or what the
    kernel had not written yet. A killed process loses nothing in any of the three."""
    maxmemory_mb: int = Field(default=0, ge=0)
    """Memory limit in MiB; 0 is none. A full server refuses writes and never evicts."""
    start_seconds: float = Field(default=60.0, gt=0)
    """How long the server may say nothing while it starts. While it says that it is reading its
    append-only file it is waited for, however long that takes."""

    @model_validator(mode="after")
    def _require_tcp_for_port(self) -> Self:
        if self.port and self.listen != "tcp":
            raise ValueError(f'port {self.port} does nothing unless listen = "tcp" is set too')
        return self


class WorkerSettings(Section):
    """One kind of worker process: a role worker has `roles`, a gpu worker has `models`."""

    count: int = Field(default=1, ge=0, le=256)
    """Processes of this kind."""
    roles: tuple[str, ...] = ()
    """Roles (agents) whose streams these workers read."""
    models: tuple[str, ...] = ()
    """Pools (keys of `[models]`) that these workers host."""
    concurrency: int = Field(default=32, ge=1, le=4096)
    """Messages that one process works on at once."""


class SupervisorSettings(Section):
    """How `runtime up` keeps its workers alive."""

    backoff_seconds: float = Field(default=0.5, gt=0)
    """Pause before the first restart; doubles with each death, with jitter."""
    backoff_max_seconds: float = Field(default=30.0, gt=0)
    """Longest pause before a restart."""
    crash_loop_deaths: int = Field(default=5, ge=1)
    """So many deaths within `crash_loop_seconds` and the worker is given up as `broken`."""
    crash_loop_seconds: float = Field(default=60.0, gt=0)
    """The window in which deaths are counted."""
    ready_seconds: float = Field(default=120.0, gt=0)
    """How long `runtime up` waits for every worker to report ready (a model may load slowly). The
    download of a model counts for nothing."""
    drain_seconds: float = Field(default=30.0, ge=0)
    """How long a worker may finish what it holds before it is killed."""
    log_bytes: int = Field(default=10_000_000, ge=10_000)
    """The log file of a worker, of Redis, of the supervisor or of a job is rotated at this size,
    while it is written."""
    log_files: int = Field(default=3, ge=1, le=100)
    """Log files kept of each of them, the current one included."""


class LoggingSettings(Section):
    """What the processes write."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lines below this level are dropped."""
    format: Literal["json", "console"] = "json"
    """`json` is one object per line; `console` is for reading along."""


class RecorderSection(Section):
    """How ended runs and the ledger are written to the store."""

    linger_seconds: float = Field(default=1.0, ge=0, le=60)
    """How long a batch waits on the bus for company: fewer, larger files, later. A recorder that
    is told to stop writes at once."""
    compact_files: int = Field(default=32, ge=0, le=100_000)
    """So many small files of a table are joined into one while runs go on; 0 leaves that to
    `runtime store compact`."""
    compact_seconds: float = Field(default=30.0, gt=0)
    """How often the recorder looks how many there are."""


class JobSettings(Section):
    """Offline jobs (benchmarks) on the arq queue."""

    timeout_seconds: float = Field(default=86_400.0, gt=0)
    """A job that runs longer is ended."""
    keep_result_seconds: float = Field(default=7 * 86_400.0, gt=0)
    """How long a finished job stays listed."""
    max_jobs: int = Field(default=1, ge=1, le=64)
    """Jobs that one worker runs at once."""
    claim_seconds: float = Field(default=30.0, ge=0.5)
    """How long a worker's claim on its job lasts unless it is renewed. Once there was none for half
    as long again, another worker takes the job up."""


class GatewaySettings(Section):
    """The HTTP gateway, a worker kind of its own: `[workers.gateway] count = 1`."""

    host: str = "127.0.0.1"
    """Address that it listens on; `0.0.0.0` is every address of the machine."""
    port: int = Field(default=8400, ge=0, le=65_535)
    """Port; all gateways of a machine share it. 0 takes a free one."""
    run_seconds: float = Field(default=600.0, gt=0, le=86_400)
    """How long a request may take before its run ends."""
    max_body_bytes: int = Field(default=1_000_000, ge=1_000, le=64_000_000)
    """A larger request body is refused."""
    max_connections: int = Field(default=20_000, ge=1)
    """Connections of one gateway process; more are refused."""
    header_seconds: float = Field(default=20.0, gt=0)
    """How long a client may take for a request's headers."""
    body_seconds: float = Field(default=60.0, gt=0)
    """How long a client may take for a request's body."""
    keepalive_seconds: float = Field(default=75.0, gt=0)
    """How long a connection without a request stays open."""


class PromptFile(Section):
    """A prompt in place of a shipped one. In a profile it is the path of its file, which is read
    once: what a deployment says does not change under its runs."""

    path: str
    """Where it was read from; in a profile, from the profile's own folder on."""
    content: str
    """The whole file."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: object) -> object:
        return (
            {"path": data, "content": prompt_content(Path(data))} if isinstance(data, str) else data
        )


class AppFile(Section):
    """A Python file with an `App` (`loopline.runtime.app.app`)."""

    path: str
    """The file; its whole path once it was read."""
    env: tuple[str, ...] = ()
    """Environment variables, secrets too, that its tools are told."""
    digest: str
    """SHA-256 of the file when the deployment was started; leave it out."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: object) -> object:
        values = {"path": data} if isinstance(data, str) else data
        if not isinstance(values, dict) or "digest" in values or "path" not in values:
            return values  # pyright: ignore[reportUnknownVariableType]
        path = Path(str(values["path"])).expanduser().resolve()
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise ValueError(f"{path} can't be read: {error.strerror}") from error
        return {**values, "path": str(path), "digest": digest}


class Settings(BaseSettings):
    """Everything that one deployment needs to know."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True
    )

    bus: BusSettings = BusSettings()
    """The Redis Streams bus. Without `redis_url` the runtime starts its own server."""
    redis: RedisServerSettings = RedisServerSettings()
    """The Redis server that `runtime up` starts when `bus.redis_url` is not set."""
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    """Pools of models by name."""
    policies: dict[str, str] = Field(default_factory=dict)
    """Role → policy that serves its completions: a pool, or pool/adapter."""
    tools: dict[SourceName, ToolSourceSettings] = Field(default_factory=dict)
    """MCP servers and HTTP APIs whose tools the tool workers call."""
    app: AppFile | None = None
    """An app of one file, whose tools the tool workers run."""
    sandbox: SandboxSettings = SandboxSettings()
    """How the judge runs the programs that models write."""
    workers: dict[str, WorkerSettings] = Field(default_factory=dict)
    """Worker processes by kind."""
    workflow: str = "delegate"
    """Workflow of `runtime ask` when `--workflow` is not given."""
    options: dict[str, JsonObject] = Field(default_factory=dict)
    """Workflow → options of its runs that do not choose them themselves. A text is JSON (`4`,
    `true`) or else text, as in `runtime ask --option`."""
    prompts: dict[str, PromptFile] = Field(default_factory=dict)
    """Prompt → Markdown file that stands in its place, as in `umi_planner = "planner.md"`."""
    supervisor: SupervisorSettings = SupervisorSettings()
    """Restarts, readiness, drain, log files."""
    logging: LoggingSettings = LoggingSettings()
    """Log lines of every process."""
    metrics: MetricsSettings = MetricsSettings()
    """`/metrics` for Prometheus."""
    recorder: RecorderSection = RecorderSection()
    """The store's files."""
    jobs: JobSettings = JobSettings()
    """Offline jobs."""
    gateway: GatewaySettings = GatewaySettings()
    """OpenAI's API and this project's own over HTTP."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """`load` has read and merged every layer; constructing never looks at the environment."""
        return (init_settings,)

    @field_validator("options", mode="after")
    @classmethod
    def _parse_text_options(cls, options: dict[str, JsonObject]) -> dict[str, JsonObject]:
        """What comes from a variable or from `--set` is always a text."""
        return {
            workflow: {name: option_value(value) for name, value in workflow_options.items()}
            for workflow, workflow_options in options.items()
        }

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
                    f"workers.{kind}.concurrency has no meaning: {instead}; leave it out"
                )
            if worker.roles and worker.models:
                raise ValueError(f"workers.{kind} has roles and models: make it two kinds")
            for pool in worker.models:
                if pool not in self.models:
                    raise ValueError(
                        f"workers.{kind}.models names the pool {pool!r}, which [models] doesn't"
                        f" have ({', '.join(self.models) or 'it is empty'})"
                    )
        for role, policy in self.policies.items():
            if pool_of(policy) not in self.models:
                raise ValueError(
                    f"policies.{role} names the pool {pool_of(policy)!r}, which [models] doesn't"
                    f" have ({', '.join(self.models) or 'it is empty'})"
                )
        for workflow, options in self.options.items():
            try:
                workflows.get(workflow).check_options(options)
            except AgentError as error:
                raise ValueError(f"options.{workflow}: {error}") from error
        for name, file in self.prompts.items():
            try:
                shipped_prompt(name)
                parse_replacement_prompt(file.content, name, origin=file.path)
            except AgentError as error:
                raise ValueError(f"prompts.{name}: {error}") from error
        return self

    @property
    def prompt_files(self) -> dict[str, str]:
        """Prompt file → content, as `Run.prompt_files` has them."""
        return {f"{name}.md": file.content for name, file in self.prompts.items()}

    @property
    def secret_variables(self) -> tuple[str, ...]:
        """Environment variables whose values must never be written anywhere."""
        keys = [model.api_key_env for model in self.models.values() if model.api_key_env]
        return (*keys, *(name for tool in self.tools.values() for name in tool.secret_variables))

    @property
    def own_redis(self) -> bool:
        """Whether the runtime starts the server itself."""
        return "redis_url" not in self.bus.model_fields_set

    def with_redis_url(self, url: str) -> Settings:
        """The same settings on the server at `url`."""
        bus = BusSettings.model_validate(
            {**self.bus.model_dump(exclude_unset=True), "redis_url": url}
        )
        return self.model_copy(update={"bus": bus})

    def naming(self, keys: set[str]) -> Settings:
        """The same values, of which these of the bus are given and not taken."""
        bus = self.bus.naming(keys)
        return self.model_copy(update={"bus": bus})

    def to_json(self) -> str:
        """Everything, secrets included: only ever written to files of mode 0600."""
        return self.model_dump_json(exclude_unset=False)


def chosen_profile(profile: str | None, environ: Mapping[str, str] | None = None) -> str:
    """The profile that is given, else the environment's, else the default one."""
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


def is_profile_given(profile: str | None, environ: Mapping[str, str] | None = None) -> bool:
    """Whether a profile is given, or the environment has one."""
    environ = os.environ if environ is None else environ
    return bool(profile or environ.get("LOOPLINE_PROFILE"))


def load_for_remote_deployment(
    values: Mapping[str, JsonValue],
    *,
    overrides: Iterable[str] = (),
    redis_url: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """What a deployment on another machine serves, and over it what this one names.

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
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """What a deployment was started with, or another profile on its bus; the overrides over it.
    Neither that profile nor the environment changes where the bus is: anyone who had another prefix
    would miss the deployment unawares, and a shared value that differs is refused at the join.

    Raises `ConfigError` as `load` does.
    """
    data = running.model_dump(mode="json")
    origin = "the running deployment"
    around = environment_layer(Settings, os.environ if environ is None else environ)
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


def configured_redis_url(
    profile: str | None, overrides: Iterable[str], environ: Mapping[str, str] | None = None
) -> str | None:
    """The bus that a profile, the environment or an override names; `None` when none does.

    Raises `ConfigError` when one of them can't be read.
    """
    layers = [
        *(profile_layers(profile) if profile else ()),
        environment_layer(Settings, os.environ if environ is None else environ),
        override_layer(overrides),
    ]
    bus = merge_layers(layers).get("bus")
    return (bus.get("redis_url") or None) if isinstance(bus, dict) else None


def environment_names_bus(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a variable gives a setting of the bus a value."""
    around = environment_layer(Settings, os.environ if environ is None else environ)
    return bool(around.data.get("bus"))


def _resolve_layers(layers: list[Layer]) -> Settings:
    wrong = [problem for layer in layers for problem in unknown_keys(Settings, layer)]
    if wrong:
        raise ConfigError("\n".join(wrong), hint="`runtime config --keys` lists every valid key.")
    try:
        return Settings.model_validate(merge_layers(layers))
    except pydantic.ValidationError as error:
        raise ConfigError(_explain_error(error, layers)) from None


def parse(text: str) -> Settings:
    """Settings from the JSON that `Settings.to_json` wrote."""
    try:
        return Settings.model_validate_json(text)
    except pydantic.ValidationError as error:
        raise ConfigError(
            "the resolved configuration was written by another version: "
            f"{_explain_error(error, [])}",
            hint="stop the deployment with the version that started it, then start it again.",
        ) from None


def load_resolved_file(path: Path) -> Settings:
    """Settings from a file that the supervisor wrote. Nobody names them: what the deployment has
    agreed on since goes before them. Raises `ConfigError`."""
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
