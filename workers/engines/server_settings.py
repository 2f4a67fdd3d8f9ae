"""Settings of the servers that answer for a pool: vLLM and SGLang."""

from __future__ import annotations

from typing import Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

Argument = bool | int | float | str
"""The value of a server's command-line option."""


class SettingsModel(BaseModel):
    """Base of the settings: immutable, refuses unknown keys, keeps docstrings as descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class UploadSettings(SettingsModel):
    """How weights get to the machine of a server that has no folder in common with the workers."""

    url: str
    """WebDAV address of a folder on the server's machine, such as
    `https://gpu1.example:8443/adapters`. `{host}` stands for the host name of each server."""
    folder: str
    """Path of the same folder for the server, such as `/srv/adapters`."""
    key_env: str | None = None
    """Name of the environment variable with the folder's key: `user:password`, or a bearer
    token."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            parts = urlsplit(self.url.strip().replace("{host}", "host"))
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            usable = False
            parts = urlsplit("")
        # Not quoted: a password may be part of it.
        if not usable or parts.query or parts.fragment:
            raise ValueError(
                "upload.url is not the address of a folder, such as http://gpu1:8080/adapters"
            )
        if parts.username is not None or parts.password is not None:
            raise ValueError(
                "upload.url contains a user or password: name a variable with both in key_env"
            )
        if not self.folder.startswith("/"):
            raise ValueError("upload.folder is not an absolute path, such as /srv/adapters")
        return self


class ServingSettings(SettingsModel):
    """Settings that both kinds of servers share."""

    servers: tuple[str, ...] = ()
    """Addresses of more servers of the same model, in addition to `base_url`. Each request goes to
    the server that has already read the start of its prompt, unless others have much less to do."""
    python: str | None = None
    """Interpreter of the environment in which a managed server is installed."""
    args: dict[str, Argument | list[Argument] | dict[str, Argument]] = Field(default_factory=dict)
    """More command-line options of a managed server, without the dashes. `true` is an option
    without a value, `false` leaves it out; a table is passed as JSON."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Environment variables of a managed server, such as CUDA_VISIBLE_DEVICES."""
    keep_environment: tuple[str, ...] = ()
    """Variables that a managed server gets from the worker's environment. By default only those of
    the machine (PATH, HOME, locale, CUDA, NCCL, the hub's cache and, for a model of the hub, its
    token), and no other keys."""
    max_adapters: int = Field(default=4, ge=0, le=512)
    """Adapters that one batch of a managed server may use. 0 turns adapters off, which is a little
    faster."""
    max_rank: int = Field(default=16, ge=1, le=512)
    """Highest rank of an adapter on a managed server."""
    start_seconds: float = Field(default=900.0, gt=0)
    """Longest time until a server answers: it loads weights and captures graphs."""
    upload: UploadSettings | None = None
    """How adapters (SGLang: also whole models) get to servers that already run on other machines.
    None: workers and servers see the folder of an adapter under the same path."""
    plain_check: bool = True
    """Check the servers' log-probabilities against a plain pass at startup. This needs torch here
    and the model's weights on this machine, smaller than 4 GB. Weights of another model are
    refused."""
    gpu_turns: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    """A name for a GPU that the server shares with trainings, such as `gpu0`. While a step of
    `train grpo loop` on this machine is computed, the server sleeps: its weights and its cache
    leave the GPU, and requests wait. Pools on one GPU have the same name."""
    gpu_share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the GPU's memory that a managed server takes; `train grpo loop` on this machine uses
    at most the rest. Neither waits for the other."""

    def misfit(self, *, managed: bool) -> str | None:
        """What doesn't fit a managed server, or one that already runs; None if everything fits."""
        if managed and self.servers:
            return "servers are for servers that already run: leave out managed"
        if managed and self.upload is not None:
            return "upload is for servers on other machines: a managed server needs none"
        if not managed and self.gpu_share is not None:
            return "gpu_share is for a managed server: leave it out"
        return None


class VllmSettings(ServingSettings):
    """`[models.<pool>.vllm]`: the servers of a pool with `engine = "vllm"`."""

    python: str | None = None
    """Interpreter of the environment in which vLLM is installed, for a managed server. None uses
    the environment variable LOOPLINE_VLLM_PYTHON, or the one that `make vllm` installs."""


class SglangSettings(ServingSettings):
    """`[models.<pool>.sglang]`: the servers of a pool with `engine = "sglang"`."""

    python: str | None = None
    """Interpreter of the environment in which SGLang is installed, for a managed server. None uses
    the environment variable LOOPLINE_SGLANG_PYTHON, or `sglang/bin/python` below this
    environment."""
    deterministic: bool = False
    """Make a managed server draw the same tokens for the same seed
    (`--enable-deterministic-inference`). Another server can then continue an interrupted stream. It
    is slower, and SGLang supports it with some attention kernels only."""
