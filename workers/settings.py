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
    """Prometheus metrics: `/metrics` of every worker process, and of the gateway for the whole
    deployment."""

    enabled: bool = False
    """Collect and serve metrics. If off, nothing is counted and no port is opened."""
    host: str = "127.0.0.1"
    """Address on which each worker serves its metrics, without a key; `0.0.0.0` is every address of
    the machine."""
    port: int = Field(default=0, ge=0, le=65_535)
    """Port of each worker; 0 picks a free one. Set a fixed port only in containers with one worker
    each: a second worker on the same machine couldn't start."""


class TracingSettings(SettingsModel):
    """Traces of ended runs, which the recorder sends to a collector by OTLP/HTTP."""

    endpoint: str | None = Field(default=None, pattern=r"^https?://[^\s@]+$")
    """Base URL of the collector; `/v1/traces` is appended. Without it nothing is traced."""
    headers_env: dict[HeaderName, VariableName] = Field(default_factory=dict)
    """Header → environment variable with its value, such as `Authorization` for Langfuse."""
    content: bool = False
    """Also send prompts, answers, tool arguments and tool results."""
    sample: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of runs that are traced. A client with a trace context decides for its own runs."""
    semconv: Semconv = "0.1"
    """Version of OpenTelemetry's generative-AI semantic conventions."""
    timeout_seconds: float = Field(default=5.0, gt=0, le=60)
    """Longest time the collector may take for one batch."""
    keep_seconds: float = Field(default=300.0, ge=0, le=86_400)
    """How long traces wait on the bus while the collector can't be reached; then they are dropped.
    Runs continue meanwhile."""


class WorkerBase(SettingsModel):
    """Settings of every worker."""

    bus: BusSettings
    """The bus to join."""
    name: str = Field(default="", max_length=64)
    """Name of this worker in logs and `runtime status`; made from its kind and pid if empty."""
    concurrency: int = Field(default=64, ge=1, le=4096)
    """Maximum number of deliveries that the worker handles at once."""
    metrics: MetricsSettings = MetricsSettings()
    """Prometheus metrics of this worker."""


class RoleWorkerSettings(WorkerBase):
    """Runs the steps of one or more roles."""

    kind: Literal["role"] = "role"
    roles: tuple[str, ...] = Field(min_length=1)
    """Roles whose streams the worker serves."""
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    """Endpoints that the worker calls itself, by pool, as a gpu worker would."""


class GpuWorkerSettings(WorkerBase):
    """Hosts models."""

    kind: Literal["gpu"] = "gpu"
    models: dict[str, ModelSettings] = Field(min_length=1)
    """Pools by name. Each takes at most its own `max_concurrency` requests at once."""


class ToolWorkerSettings(WorkerBase):
    """Runs registered tools and the tools of MCP servers and HTTP APIs."""

    kind: Literal["tool"] = "tool"
    sources: dict[SourceName, ToolSourceSettings] = Field(default_factory=dict)
    """MCP servers and HTTP APIs by name."""
    tracing: TracingSettings = TracingSettings()
    """Tracing of calls. With an endpoint, the worker leaves a span of each call on the bus for the
    recorder."""


class JudgeWorkerSettings(WorkerBase):
    """Checks model outputs against hidden tests and gold answers."""

    kind: Literal["judge"] = "judge"
    problems: Path
    """Folder of the problems that the judge knows (`loopline.workers.judging.problems`)."""
    sandbox: SandboxSettings = SandboxSettings()
    """How generated programs are run."""


class RecorderSettings(WorkerBase):
    """Writes trajectories and the ledger to Parquet."""

    kind: Literal["recorder"] = "recorder"
    store: Path
    """Folder of the store; created if missing."""
    linger_seconds: float = Field(default=1.0, ge=0, le=60)
    """How long a batch waits for more entries before its rows are written or its traces sent.
    Longer waits make fewer, larger files and requests."""
    compact_files: int = Field(default=32, ge=0, le=100_000)
    """Number of small files of a table and shard that are merged into one; 0: never."""
    compact_seconds: float = Field(default=30.0, gt=0)
    """How often small files are counted."""
    canary_seconds: float = Field(default=5.0, gt=0)
    """How often canaries, and the routers of cascades, are evaluated."""
    priced_pools: tuple[str, ...] = ()
    """Pools that have a price; the cost of other pools' calls is unknown."""
    tracing: TracingSettings = TracingSettings()
    """Destination of traces."""
    providers: dict[str, str] = Field(default_factory=dict)
    """Pool → its provider's name in traces."""


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
