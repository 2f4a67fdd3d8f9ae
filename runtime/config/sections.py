"""The tables of a configuration, each as a model. `loopline.runtime.config.settings` combines
them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from loopline.runtime.config.prompt_files import prompt_content


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class RedisServerSettings(Section):
    """The server that `runtime up` starts when `bus.redis_url` is not set."""

    listen: Literal["unix", "tcp"] = "unix"
    """A socket file in the state directory, or a port on the loopback address."""
    port: int = Field(default=0, ge=0, le=65_535)
    """Loopback port if `listen = "tcp"`; 0 takes a free port."""
    appendfsync: Literal["always", "everysec", "no"] = "everysec"
    """Acknowledged data that a power failure can lose: none, one second, or what the kernel had not
    written yet. A killed process loses nothing in all three cases."""
    maxmemory_mb: int = Field(default=0, ge=0)
    """Memory limit in MiB; 0 means no limit. A full server refuses writes and never evicts."""
    start_seconds: float = Field(default=60.0, gt=0)
    """How long the server may be silent while it starts. While it reports that it is reading its
    append-only file, the runtime waits without limit."""

    @model_validator(mode="after")
    def _require_tcp_for_port(self) -> Self:
        if self.port and self.listen != "tcp":
            raise ValueError(f'port {self.port} does nothing unless listen = "tcp" is set too')
        return self


class WorkerSettings(Section):
    """One kind of worker process: a role worker has `roles`, a gpu worker has `models`."""

    count: int = Field(default=1, ge=0, le=256)
    """Number of processes of this kind."""
    roles: tuple[str, ...] = ()
    """Roles (agents) whose streams these workers read."""
    models: tuple[str, ...] = ()
    """Pools (keys of `[models]`) that these workers host."""
    concurrency: int = Field(default=32, ge=1, le=4096)
    """Number of messages that one process handles at a time."""


class SupervisorSettings(Section):
    """Settings for how `runtime up` keeps its workers alive."""

    backoff_seconds: float = Field(default=0.5, gt=0)
    """Pause before the first restart; it doubles with each death, with jitter."""
    backoff_max_seconds: float = Field(default=30.0, gt=0)
    """Longest pause before a restart."""
    crash_loop_deaths: int = Field(default=5, ge=1)
    """After this many deaths within `crash_loop_seconds` a worker is `broken` and not restarted."""
    crash_loop_seconds: float = Field(default=60.0, gt=0)
    """Seconds of the window in which deaths are counted."""
    ready_seconds: float = Field(default=120.0, gt=0)
    """How long `runtime up` waits for every worker to report ready (a model may load slowly; for a
    managed server, at least its `start_seconds`). The download of a model does not count."""
    drain_seconds: float = Field(default=30.0, ge=0)
    """How long a worker may take to finish its work before it is killed."""
    log_bytes: int = Field(default=10_000_000, ge=10_000)
    """The log file of a worker, of Redis, of the supervisor or of a job is rotated at this size,
    while it is written."""
    log_files: int = Field(default=3, ge=1, le=100)
    """Number of log files that are kept of each, including the current one."""


class LoggingSettings(Section):
    """Settings for the processes' logs."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lines below this level are dropped."""
    format: Literal["json", "console"] = "json"
    """`json` is one object per line; `console` is easier to read."""


class RecorderSection(Section):
    """Settings for how ended runs and the ledger are written to the store."""

    linger_seconds: float = Field(default=1.0, ge=0, le=60)
    """How long a batch waits on the bus for more entries. A longer wait means fewer, larger and
    later files. A recorder that stops writes immediately."""
    compact_files: int = Field(default=32, ge=0, le=100_000)
    """Number of small files of a table that the recorder merges into one while runs continue; 0
    leaves this to `runtime store compact`."""
    compact_seconds: float = Field(default=30.0, gt=0)
    """How often the recorder counts the small files."""
    canary_seconds: float = Field(default=5.0, gt=0)
    """How often the recorder evaluates canaries and the routers of cascades."""


class JobSettings(Section):
    """Offline jobs (benchmarks) on the arq queue."""

    timeout_seconds: float = Field(default=86_400.0, gt=0)
    """A job that runs longer is stopped."""
    keep_result_seconds: float = Field(default=7 * 86_400.0, gt=0, le=3_153_600_000)
    """How long a finished job stays listed."""
    max_jobs: int = Field(default=1, ge=1, le=64)
    """Number of jobs that one worker runs at a time."""
    claim_seconds: float = Field(default=30.0, ge=0.5, le=86_400)
    """How long a worker's claim on its job lasts unless it is renewed. After another half of this
    time without a claim, another worker takes the job."""


ImproveOption = bool | int | float | str | list[str]
"""Value of one option of `train improve`."""


class TenantSettings(Section):
    """One `[tenants.<name>]` table. It sets how a tenant's runs take turns when `bus.max_working`
    or the tenant's own limit makes runs wait."""

    weight: float = Field(default=1.0, ge=0.001, le=1_000_000)
    """Share of the turns, relative to the weights of other waiting tenants."""
    max_working: int = Field(default=0, ge=0, le=1_000_000)
    """Maximum number of runs that work at the same time; 0 means no limit."""
    priority: int = Field(default=0, ge=-100, le=100)
    """Priority among tenants; higher priorities always come first."""


class GatewayKey(Section):
    """A caller of the gateway whose key is in an environment variable."""

    env: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Environment variable that contains the key, at least 24 characters long."""
    models: tuple[str, ...] = ("*",)
    """Models that the caller may use, as in `slm`, `slm/*` or `workflow/*`."""
    tokens_per_day: int | None = Field(default=None, ge=1)
    """Tokens that the caller may use per day."""
    dollars_per_day: float | None = Field(default=None, gt=0)
    """US dollars that the caller may spend per day."""
    seconds_per_day: float | None = Field(default=None, gt=0)
    """Seconds that the caller's runs may take per day."""
    tenant: str = Field(default="", max_length=64)
    """Tenant of the key. All keys of a tenant share its budgets."""
    dashboard: Literal["none", "read", "write"] = "none"
    """Access to the dashboard: none, read-only, or with changes."""
    approves: bool = False
    """Whether the caller may approve and deny calls of all runs."""


class GatewaySettings(Section):
    """The HTTP gateway, which is a worker kind: `[workers.gateway] count = 1`."""

    host: str = "127.0.0.1"
    """Address that the gateway listens on; `0.0.0.0` means every address of the machine."""
    port: int = Field(default=8400, ge=0, le=65_535)
    """Port that all gateways of a machine share; 0 takes a free port."""
    keys: dict[str, GatewayKey] = Field(default_factory=dict[str, GatewayKey])
    """Callers by name, in addition to those of `runtime keys`."""
    run_seconds: float = Field(default=600.0, gt=0, le=86_400)
    """How long a request may take before its run is ended."""
    max_body_bytes: int = Field(default=1_000_000, ge=1_000, le=64_000_000)
    """Maximum size of a request body; a larger one is refused."""
    max_connections: int = Field(default=20_000, ge=1)
    """Maximum number of connections to one gateway process; more are refused."""
    header_seconds: float = Field(default=20.0, gt=0)
    """How long a client may take for a request's headers."""
    body_seconds: float = Field(default=60.0, gt=0)
    """How long a client may take for a request's body."""
    keepalive_seconds: float = Field(default=75.0, gt=0)
    """How long a connection without a request stays open."""
    results: str = "results"
    """Folder whose benchmarks and trainings the dashboard shows; relative to the folder in which
    the gateway was started."""


class PromptFile(Section):
    """A prompt that replaces a shipped one. A profile names the path of its file. The file is read
    once, so that a deployment's prompts do not change during its runs."""

    path: str
    """Path of the prompt's file; in a profile, relative to the profile's own folder."""
    content: str
    """Content of the whole file."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: object) -> object:
        return (
            {"path": data, "content": prompt_content(Path(data))} if isinstance(data, str) else data
        )


class AppFile(Section):
    """A Python file with an `App` (`loopline.runtime.app.app`)."""

    path: str
    """Path of the file; absolute once the file was read."""
    env: tuple[str, ...] = ()
    """Environment variables, including secrets, that the app's tools see."""
    digest: str
    """SHA-256 of the file when the deployment was started; leave it out."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: object) -> object:
        values = {"path": data} if isinstance(data, str) else data
        if not isinstance(values, dict) or "digest" in values or "path" not in values:
            return values  # pyright: ignore[reportUnknownVariableType]
        path = Path(os.path.expanduser(str(values["path"]))).resolve()
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise ValueError(f"{path} can't be read: {error.strerror}") from error
        return {**values, "path": str(path), "digest": digest}
