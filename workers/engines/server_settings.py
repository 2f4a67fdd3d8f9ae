"""Settings of the servers that answer for a pool: vLLM's and SGLang's."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

Argument = bool | int | float | str
"""The value of an option of a server's command."""


class SettingsModel(BaseModel):
    """Base of the settings: immutable, refuses unknown keys, keeps docstrings as descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ServingSettings(SettingsModel):
    """What both kinds of servers have in common."""

    servers: tuple[str, ...] = ()
    """Addresses of more servers of the same model, in addition to `base_url`: each request goes to
    the one that has read its beginning before, unless others have much less to do."""
    python: str | None = None
    """Interpreter of the environment that a managed server is installed in."""
    args: dict[str, Argument | list[Argument] | dict[str, Argument]] = Field(default_factory=dict)
    """More options of a managed server's command, without the dashes. `true` is an option without a
    value, `false` leaves it out; a table is passed on as JSON."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Environment variables of a managed server, such as CUDA_VISIBLE_DEVICES."""
    keep_environment: tuple[str, ...] = ()
    """Variables that a managed server gets from the worker's environment. Without this it gets only
    the machine's (PATH, HOME, locale, CUDA, NCCL, the hub's cache and, for a model of the hub, its
    token): no key of anything else."""
    max_adapters: int = Field(default=4, ge=0, le=512)
    """Adapters that one batch of a managed server may use. 0 serves none, which is a little
    faster."""
    max_rank: int = Field(default=16, ge=1, le=512)
    """Highest rank of an adapter on a managed server."""
    start_seconds: float = Field(default=900.0, gt=0)
    """Longest time until a server answers: weights are read, graphs are captured."""
    plain_check: bool = True
    """Check the servers' log-probabilities against a plain pass at the start. It needs torch here
    and the model's weights on this machine, of less than 4 GB. Weights of another model are
    refused."""
    gpu_turns: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    """A name for a GPU that the server shares with trainings, such as `gpu0`: while a step of
    `train grpo loop` on this machine is computed, the server sleeps: its weights and its cache
    leave the GPU, requests wait. Pools of one GPU have the same name."""
    gpu_share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the GPU's memory that a managed server takes; `train grpo loop` on this machine
    takes the rest at most. Neither waits for the other."""


class VllmSettings(ServingSettings):
    """`[models.<pool>.vllm]`: the servers of a pool with `engine = "vllm"`."""

    python: str | None = None
    """Interpreter of the environment that vLLM is installed in. It is for a managed server; None is
    that of the environment variable LOOPLINE_VLLM_PYTHON, or of `make vllm`."""


class SglangSettings(ServingSettings):
    """`[models.<pool>.sglang]`: the servers of a pool with `engine = "sglang"`."""

    python: str | None = None
    """Interpreter of the environment that SGLang is installed in. It is for a managed server; None
    is that of the environment variable LOOPLINE_SGLANG_PYTHON, or `sglang/bin/python` below this
    environment."""
    deterministic: bool = False
    """Let a managed server draw the same for the same seed. A stream that breaks off can then
    continue at another server (`--enable-deterministic-inference`). It is slower, and SGLang offers
    it with some attention kernels only."""
