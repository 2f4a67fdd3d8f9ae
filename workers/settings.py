"""Settings of each kind of worker. They are plain values: a worker knows neither profiles nor
files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from loopline.bus import BusSettings
from loopline.workers.engines.settings import ModelSettings, SettingsModel
from loopline.workers.sandbox import SandboxSettings
from loopline.workers.tool_sources.settings import (
    HeaderName,
    SourceName,
    ToolSourceSettings,
    VariableName,
)
from loopline.workers.tracing.conventions import Semconv


class MetricsSettings(SettingsModel):
    """Figures for Prometheus: `/metrics` of every worker process, and of the gateway for the whole
    deployment."""

    enabled: bool = False
    """Count and serve the figures. Off, nothing is counted, and no port is opened."""
    host: str = "127.0.0.1"
    """Address on which each worker serves them, without a key: `0.0.0.0` is every address of the
    machine."""
    port: int = Field(default=0, ge=0, le=65_535)
    """Port of each worker; 0 takes a free one. Another is for containers with one worker each: a
    second worker of the machine couldn't start."""


class TracingSettings(SettingsModel):
    """Traces of ended runs, which the recorder sends to a collector by OTLP/HTTP."""

    endpoint: str | None = Field(default=None, pattern=r"^https?://[^\s@]+$")
    """Base URL of the collector: `/v1/traces` is added. Without it nothing is traced."""
    headers_env: dict[HeaderName, VariableName] = Field(default_factory=dict)
    """Header → environment variable with its value, as `Authorization` for Langfuse."""
    content: bool = False
    """Send prompts, answers, and arguments and results of tools, too."""
    sample: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of the runs that is traced. A client that brings a trace decides for its own runs."""
    semconv: Semconv = "0.1"
    """Version of OpenTelemetry's conventions for generative AI."""
    timeout_seconds: float = Field(default=5.0, gt=0, le=60)
    """How long the collector may take for one batch."""
    keep_seconds: float = Field(default=300.0, ge=0, le=86_400)
    """How long traces wait on the bus for a collector that can't be reached; then they are dropped.
    Runs go on meanwhile."""


class WorkerBase(SettingsModel):
    """Settings of every worker."""

    bus: BusSettings
    """The bus to join."""
    name: str = Field(default="", max_length=64)
    """How logs and `runtime status` call this worker; made from its kind and pid if empty."""
    concurrency: int = Field(default=64, ge=1, le=4096)
    """Deliveries in hand at once."""
    metrics: MetricsSettings = MetricsSettings()
    """Figures of this worker for Prometheus."""


class RoleWorkerSettings(WorkerBase):
    """Runs the steps of one or more roles."""

    kind: Literal["role"] = "role"
    roles: tuple[str, ...] = Field(min_length=1)
    """Roles whose streams it serves."""
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    """Endpoints that it calls itself, by pool, as a gpu worker would."""


class GpuWorkerSettings(WorkerBase):
    """Hosts models."""

    kind: Literal["gpu"] = "gpu"
    models: dict[str, ModelSettings] = Field(min_length=1)
    """Pools by name. Each takes at most its own `max_concurrency` requests at once."""


class ToolWorkerSettings(WorkerBase):
    """Runs registered tools, and those of MCP servers and HTTP APIs."""

    kind: Literal["tool"] = "tool"
    sources: dict[SourceName, ToolSourceSettings] = Field(default_factory=dict)
    """MCP servers and HTTP APIs by name."""
    tracing: TracingSettings = TracingSettings()
    """Tracing of calls. With an endpoint, the worker leaves a span of each call for the
    recorder."""


class JudgeWorkerSettings(WorkerBase):
    """Checks what models wrote against hidden tests and gold answers."""

    kind: Literal["judge"] = "judge"
    problems: Path
    """Folder of the problems that it knows (`loopline.workers.judging.problems`)."""
    sandbox: SandboxSettings = SandboxSettings()
    """How generated programs are run."""


class RecorderSettings(WorkerBase):
    """Writes trajectories and the ledger to Parquet."""

    kind: Literal["recorder"] = "recorder"
    store: Path
    """Folder of the store; created if missing."""
    linger_seconds: float = Field(default=1.0, ge=0, le=60)
    """How long a batch waits for more entries before it is written, or its traces are sent: fewer,
    larger files and requests."""
    compact_files: int = Field(default=32, ge=0, le=100_000)
    """This many small files of a table and shard are merged into one; 0: never."""
    compact_seconds: float = Field(default=30.0, gt=0)
    """How often small files are counted."""
    canary_seconds: float = Field(default=5.0, gt=0)
    """How often canaries, and the routers of cascades, are evaluated."""
    priced_pools: tuple[str, ...] = ()
    """Pools that have a price; the cost of other pools' calls is unknown."""
    tracing: TracingSettings = TracingSettings()
    """Destination of traces."""
    providers: dict[str, str] = Field(default_factory=dict)
    """Pool → its provider, as traces name it."""


WorkerSettings = Annotated[
    RoleWorkerSettings
    | GpuWorkerSettings
    | ToolWorkerSettings
    | JudgeWorkerSettings
    | RecorderSettings,
    Field(discriminator="kind"),
]

worker_settings: TypeAdapter[WorkerSettings] = TypeAdapter(WorkerSettings)
"""Parses the settings of any kind of worker."""
