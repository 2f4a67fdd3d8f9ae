"""What each kind of worker is told. Plain values: a worker knows nothing of profiles or files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from loopline.bus import BusSettings
from loopline.workers.engines.settings import ModelSettings, SettingsModel
from loopline.workers.sandbox import SandboxSettings
from loopline.workers.tool_sources.settings import SourceName, ToolSourceSettings


class MetricsSettings(SettingsModel):
    """Figures for Prometheus: `/metrics` of every worker process, and of the gateway for the whole
    deployment."""

    enabled: bool = False
    """Without, nothing is counted, and no port is opened."""
    host: str = "127.0.0.1"
    """Address on which each worker serves them, without a key: `0.0.0.0` is every address of the
    machine."""
    port: int = Field(default=0, ge=0, le=65_535)
    """Port of each worker; 0 takes a free one. Another is for containers with one worker each: a
    second worker of the machine couldn't start."""


class WorkerBase(SettingsModel):
    """What every worker is told."""

    bus: BusSettings
    """The bus to join."""
    name: str = Field(default="", max_length=64)
    """How logs and `runtime status` call this worker; made from its kind and pid if empty."""
    concurrency: int = Field(default=64, ge=1, le=4096)
    """Deliveries in hand at once."""
    metrics: MetricsSettings = MetricsSettings()
    """Its figures for Prometheus."""


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


class JudgeWorkerSettings(WorkerBase):
    """Holds what models wrote against hidden tests and gold answers."""

    kind: Literal["judge"] = "judge"
    problems: Path
    """Folder of the problems that it knows (`loopline.workers.judging.problems`)."""
    sandbox: SandboxSettings = SandboxSettings()
    """How generated programs are run."""


class RecorderSettings(WorkerBase):
    """Writes trajectories and the ledger to Parquet."""

    kind: Literal["recorder"] = "recorder"
    store: Path
    """Folder of the store; made if missing."""
    linger_seconds: float = Field(default=1.0, ge=0, le=60)
    """How long a batch waits for company before it is written: fewer, larger files."""
    compact_files: int = Field(default=32, ge=0, le=100_000)
    """So many small files of a table and shard are joined into one; 0 leaves them."""
    compact_seconds: float = Field(default=30.0, gt=0)
    """Between two looks at how many there are."""
    priced_pools: tuple[str, ...] = ()
    """Pools that have a price: what calls of others cost is not known."""


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
