"""Settings of one model pool: which engine, which model, how to reach it, what it costs."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal
from typing import Annotated, Any, Literal, Self, cast
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, model_validator

from loopline.agents.records import Effort, SamplingParams, Usage
from loopline.agents.template_options import TemplateOptions
from loopline.agents.token_limits import DEFAULT, NO_LIMIT
from loopline.workers.engines.faults import FaultPlan
from loopline.workers.engines.server_settings import (
    ServingSettings,
    SettingsModel,
    SglangSettings,
    VllmSettings,
)


class Price(SettingsModel):
    """US dollars per million tokens, which equals micro-dollars per token."""

    prompt: Decimal | None = Field(default=None, ge=0)
    """Price of a million prompt tokens that did not come from a cache."""
    cached: Decimal | None = Field(default=None, ge=0)
    """Price of a million prompt tokens that came from the provider's cache. By default the prompt
    price."""
    completion: Decimal | None = Field(default=None, ge=0)
    """Price of a million generated tokens, including hidden reasoning."""

    @property
    def is_known(self) -> bool:
        """False if no price was set: unknown, which is not a price of 0."""
        return self.prompt is not None or self.completion is not None


class ScriptedWorlds(SettingsModel):
    """Instances of the simulated worlds that the script can solve."""

    split: str
    """Split of the simulator, for example `unseen_worlds`."""
    seed: int = 123
    """Seed that draws the instances, like `--seed` of `bench tools`."""
    samples: int = Field(default=200, ge=1, le=100_000)
    """Number of instances; a larger set contains the smaller ones."""


class ScriptedHeed(SettingsModel):
    """Change of behaviour by a phrase in the system prompt: simulates a model that obeys it."""

    phrase: str = Field(min_length=1)
    """Part of the system prompt, verbatim."""
    mistake_rate: float | None = Field(default=None, ge=0, le=1)
    """Mistake rate that replaces the pool's."""
    answer: str | None = Field(default=None, min_length=1)
    """Answer that replaces everything else."""


class ScriptedAnswer(SettingsModel):
    """The script's answers to one kind of input."""

    where: tuple[str, ...] = Field(min_length=1)
    """Texts that must all occur in the conversation."""
    says: tuple[str, ...] = Field(min_length=1)
    """Answers, word for word. Each completion of a request gets its own; with more completions than
    answers, they repeat."""


class ScriptedOptions(SettingsModel):
    """How the scripted engine behaves."""

    latency_seconds: float = Field(default=0.0, ge=0)
    """Seconds from the start of a call to its first token."""
    tokens_per_second: float | None = Field(default=None, gt=0)
    """Speed of generation after the first token; without it, all tokens arrive at once."""
    mistake_rate: float = Field(default=0.0, ge=0, le=1)
    """Share of sub-problems with a wrong answer: a false equation or no boxed answer."""
    heeds: tuple[ScriptedHeed, ...] = ()
    """Rules for phrases: the first rule whose phrase is in the system prompt applies."""
    faults: FaultPlan = FaultPlan()
    """Errors to inject."""
    worlds: tuple[ScriptedWorlds, ...] = ()
    """Worlds solved as the simulator's oracle does, in every role of `umi` and `umi_single`."""
    answers: tuple[ScriptedAnswer, ...] = ()
    """Memorized answers: the first match is used, before everything else."""


AdapterName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
"""Name of an adapter: the part of a policy's name after the pool's, `caller` in `umi/caller`."""


LeftOut = Literal[
    "temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "max_tokens", "stop",
    "seed", "n", "stream", "stream_options",
]  # fmt: skip
"""Fields that an endpoint can do without: the engine then applies `stop` itself, requests several
completions one by one, or returns an unstreamed text at once."""


HedgeAfter = (
    Annotated[float, Field(gt=0, le=3_600)]
    | Annotated[str, StringConstraints(pattern=r"^p[1-9]\d?(\.\d)?$")]
)
"""Seconds, or a percentile."""


SERVED = ("vllm", "sglang")
"""Engines that are servers: you run them and set their address, or the gpu worker starts them."""


USUAL_TEMPERATURE = 1.0
"""OpenAI's default, which is recorded where an endpoint applies its own temperature."""


class ModelSettings(SettingsModel):
    """One `[models.<pool>]` table of the configuration."""

    engine: str
    """`torch`, `llama_cpp`, `vllm`, `sglang`, `openai`, `scripted`, or a name registered as a
    `loopline.engines` entry point."""
    model: str = Field(min_length=1)
    """torch, vllm and sglang: a local folder, a hub id, or `micro:` and a shipped model. llama_cpp:
    a GGUF file, or `owner/repository/file.gguf` on the hub. Otherwise its name at the endpoint."""
    price: Price = Price()
    """Cost of a million tokens, 0 if free. Without a price, the cost is unknown."""

    temperature: float | None = Field(default=None, ge=0, le=5)
    """Default sampling temperature; 0 is greedy. None: 0, but for chat requests and agents the
    temperature of the endpoint, if the pool has one."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Default nucleus (top-p); 1 turns it off."""
    max_tokens: int | None = Field(default=None, ge=1, le=NO_LIMIT)
    """Default limit of generated tokens per completion. None: 512, but no limit for the answers of
    chat requests and of agents."""

    max_concurrency: int = Field(default=64, ge=1, le=4096)
    """Concurrent requests; more wait in the engine. For a model in this process: rows decoded
    together."""
    max_tokens_in_flight: int | None = Field(default=None, ge=8, le=2**31 - 1)
    """Limits the memory of a model in this process; requests wait while there is no room.
    llama_cpp: tokens that fit in the cache, at least one context; shared prefixes count once; None
    is 16 contexts. torch: rows times the longest possible row (prompt and max_tokens), plus the
    cache of finished requests (at most a quarter). A single request always runs. None: only
    max_concurrency limits it."""
    timeout_seconds: float = Field(default=600.0, gt=0)
    """Longest time for one attempt at an endpoint, from sending to the last byte."""
    connect_timeout_seconds: float = Field(default=10.0, gt=0)
    """Longest time to open a connection to an endpoint."""
    max_attempts: int = Field(default=6, ge=1, le=20)
    """Attempts per request at an endpoint (429, 5xx, time-outs, refused connections)."""
    backoff_seconds: float = Field(default=0.5, gt=0)
    """Upper end of the first random wait between attempts; it doubles with every attempt."""
    max_backoff_seconds: float = Field(default=30.0, gt=0)
    """Longest wait between two attempts that the engine chooses itself. A longer Retry-After from
    the endpoint is honoured up to the request's deadline."""

    requests_per_minute: int | None = Field(default=None, ge=1, le=10_000_000)
    """Rate limit of an endpoint, shared by all workers of the deployment. Limits in its headers
    `x-ratelimit-limit-requests`, `x-ratelimit-remaining-requests` and `retry-after` apply as
    well."""
    tokens_per_minute: int | None = Field(default=None, ge=1, le=10**12)
    """The same for tokens: of prompts, plus the most that a completion may have until it
    arrives."""

    fallbacks: tuple[str, ...] = ()
    """Other pools of the same workers. They answer, in this order, when the endpoint can't be
    reached, is too slow, or has failed too often to be asked. A run's calls list the pool that
    answered, at its price. Requests for one version or an adapter of the pool, and texts that have
    started to stream, are not handed over."""
    breaker_failures: int = Field(default=5, ge=1, le=1_000)
    """Failed requests in a row, over all workers, after which no worker asks the endpoint. Applies
    to a pool with fallbacks."""
    breaker_seconds: float = Field(default=30.0, gt=0, le=86_400)
    """Seconds until one request of one worker tries the endpoint again."""

    hedge_after: HedgeAfter | None = None
    """Send a request to an endpoint a second time if it has no answer (streamed: no text) after
    this many seconds. The first answer wins; the other request is cancelled but may still be
    billed: the ledger has both. A percentile (`"p95"`) refers to the durations of the worker's
    latest requests to the pool."""
    hedge_with: str = ""
    """Pool of the same workers that gets the second request; empty is the same endpoint."""

    coalesce: Literal["off", "deterministic", "same_body"] = "off"
    """Merge equal requests to an endpoint that run at the same time, from all workers, into one
    call: all get its answer, one run pays for it, and the ledger entries of the others record that.
    `deterministic`: requests of temperature 0, with any seed. `same_body`: also requests at any
    temperature with the same seed; two draws then become one. Only requests of one tenant are
    merged."""
    coalesce_tenants: bool = False
    """Also merge requests of different tenants: each can tell from the timing of its answer that
    another tenant has asked the same."""

    max_useless_answers: int = Field(default=3, ge=1, le=20)
    """Useless answers (unreadable, incomplete) that an endpoint may bill for one request; after
    that many, the request is not sent again."""
    max_useless_dollars: Decimal = Field(default=Decimal(1), ge=0)
    """The same as an amount in US dollars: a request is not sent again if one more useless answer
    could raise the amount paid for useless answers above this limit."""

    base_url: str | None = None
    """URL of an OpenAI-compatible server, ending in `/v1`, optionally with a query that is added to
    each request (`?api-version=…`). None is OpenAI itself. vllm and sglang: a running server."""
    managed: bool = False
    """vllm and sglang: the gpu worker starts the server itself, on its machine, watches it,
    restarts it and stops it; see `vllm.python` and `vllm.args`. True by default if there is no
    base_url."""
    api_key_env: str | None = None
    """Name of the environment variable with the key. None means OPENAI_API_KEY for OpenAI itself,
    and no key for your own `base_url`."""
    max_tokens_field: Literal["auto", "max_tokens", "max_completion_tokens"] = "auto"
    """Name of the endpoint's token limit. `auto`: `max_completion_tokens` for OpenAI itself,
    `max_tokens` for your own `base_url`."""
    leave_out: tuple[LeftOut, ...] = ()
    """Fields of the request that an endpoint refuses: it then uses its own defaults. A field that
    it refuses at run time is also left out after the first refusal."""
    reasoning_effort: Effort | None = None
    """openai: how much the endpoint's model thinks, in the endpoint's words, such as `none`, `low`
    or `high`, unless a request sets it. None: the model's default."""
    logprobs: Literal["none", "raw", "processed"] = "none"
    """Meaning of the endpoint's logprobs: `raw` (softmax of the unscaled logits) or `processed`
    (after temperature and filters). `raw` values are kept only where both mean the same."""
    token_ids: bool = False
    """The endpoint returns token ids when asked with `return_token_ids` (vLLM)."""
    json_schema: bool = True
    """The endpoint understands `response_format` of type `json_schema`. A request for just any JSON
    object has the type `json_object`."""
    top_k: bool = False
    """The endpoint understands `top_k` (vLLM, llama-server); OpenAI does not."""
    images: bool = False
    """openai: the endpoint's model accepts images in user messages."""
    image_tokens: int = Field(default=2_048, ge=1, le=10_000_000)
    """Most prompt tokens of one image (with `images`). Budgets and rate limits reserve this many
    until the endpoint has counted the tokens."""
    embeddings: bool = False
    """openai: the endpoint's model returns embeddings of texts (`POST /v1/embeddings`), and nothing
    else."""
    max_context: int | None = Field(default=None, ge=8)
    """Longest prompt plus output in tokens. For a model in this process, the model's own limit is
    the maximum and the default."""

    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    """`auto` uses a GPU if there is one."""
    dtype: Literal["auto", "float64", "float32", "bfloat16", "float16"] = "auto"
    """torch, `auto`: float32 on a CPU, the checkpoint's own type on a GPU; `float64` is for
    comparisons without rounding. llama_cpp uses the weights as they are in the file; `float32`
    makes its attention exact but slower."""
    quantization: Literal["none", "int8", "int4"] = "none"
    """torch on a GPU: keep the weights in 8 bits (LLM.int8) or 4 (NF4), quantized during loading.
    llama_cpp reads GGUF files that are already quantized."""
    threads: int = Field(default=1, ge=1, le=256)
    """CPU threads of a model in this process. Several processes with more than one thread each slow
    each other down, least with `OMP_WAIT_POLICY=passive` in their environment."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""
    constrain_tools: bool = True
    """Constrain tool calls to the offered tools' schemas. Applies to a model in this process. Turn
    it off for training rollouts, where log-probabilities must be the model's own."""

    template_options: TemplateOptions = Field(default_factory=dict)
    """Switches of the model's chat template, such as Qwen3's `{ enable_thinking = false }`. A local
    model whose template does not read one of them is not loaded. openai: sent to your own
    `base_url` as `chat_template_kwargs` (vLLM, SGLang, llama-server)."""

    plain_logprobs: bool = False
    """torch, vllm, sglang: compute the log-probabilities in one pass over prompt and completion at
    its end, without a cache, as a trainer does; on a GPU, completions that finish together share
    passes. Rounding in a batch differs: in float32 by up to 4e-5. Costs a prefill per completion;
    meant for training rollouts. Log-probabilities of a distribution that a grammar, a temperature
    or a nucleus has shaped stay as drawn, except `raw_logprobs`."""

    adapters: dict[AdapterName, str] = Field(default_factory=dict)
    """Adapters (`caller` of the policy `umi/caller`) that the pool starts with: a folder or the
    name of a micro adapter. The first worker that starts publishes them as version 1."""
    base_until_published: tuple[AdapterName, ...] = ()
    """Adapters (`caller` of the policy `umi/caller`) whose requests this model answers without an
    adapter, as version 0, until a version is published. From then on, a version that no worker can
    load is an error; a request for any other adapter without a version always is."""

    scripted: ScriptedOptions = ScriptedOptions()
    """Options of the scripted engine."""
    vllm: VllmSettings = VllmSettings()
    """The servers of engine = "vllm"."""
    sglang: SglangSettings = SglangSettings()
    """The servers of engine = "sglang"."""

    @model_validator(mode="before")
    @classmethod
    def _manage_without_address(cls, data: Any) -> Any:
        if isinstance(data, dict):
            table = cast(dict[str, Any], data)
            if table.get("engine") in SERVED and not table.get("base_url"):
                return {"managed": True, **table}
        return data

    @model_validator(mode="after")
    def _check_endpoint_fields(self) -> Self:
        if self.engine in ("torch", "llama_cpp") and (self.base_url or self.api_key_env):
            raise ValueError(
                f"engine = {self.engine!r} runs the model in this process and takes no base_url or "
                "api_key_env; use engine = 'openai' for an endpoint"
            )
        return self

    @model_validator(mode="after")
    def _check_base_url(self) -> Self:
        addresses = [url for url in (self.base_url, *self.serving.servers) if url is not None]
        if not all(map(_is_address, addresses)):
            # Not quoted: a password may be part of it.
            raise ValueError(
                "base_url is not the address of an endpoint, such as http://localhost:8000/v1"
            )
        return self

    @property
    def serving(self) -> ServingSettings:
        """The table with the settings of this engine's servers."""
        return self.sglang if self.engine == "sglang" else self.vllm

    @property
    def key_variables(self) -> tuple[str, ...]:
        """Names of the environment variables with keys."""
        upload = self.serving.upload
        names = (self.api_key_env, None if upload is None else upload.key_env)
        return tuple(name for name in names if name)

    @model_validator(mode="after")
    def _check_servers(self) -> Self:
        tables: dict[str, ServingSettings] = {"vllm": self.vllm, "sglang": self.sglang}
        for name, table in tables.items():
            if name != self.engine and table != type(table)():
                raise ValueError(
                    f"{name} is for engine = {name!r}, not {self.engine!r}: leave it out"
                )
        if self.engine not in SERVED:
            if self.managed:
                raise ValueError("managed is for engine = 'vllm' and 'sglang': leave it out")
        elif self.managed == (self.base_url is not None):
            raise ValueError(
                f"engine = {self.engine!r} takes either base_url, the address of a running server, "
                "or managed = true, with which the gpu worker starts one"
            )
        elif misfit := self.serving.misfit(managed=self.managed):
            raise ValueError(f"{self.engine}.{misfit}")
        return self

    @model_validator(mode="after")
    def _check_rates(self) -> Self:
        if self.engine != "openai" and (self.requests_per_minute or self.tokens_per_minute):
            raise ValueError(
                f"requests_per_minute and tokens_per_minute are for engine = 'openai', not "
                f"{self.engine!r}: set max_concurrency for a local model"
            )
        return self

    @model_validator(mode="after")
    def _check_of_endpoints(self) -> Self:
        if self.hedge_after is not None and self.engine != "openai":
            raise ValueError(
                f"hedge_after is for engine = 'openai', not {self.engine!r}: an engine on "
                "this machine is not faster when it is asked twice"
            )
        if self.reasoning_effort is not None and self.engine != "openai":
            raise ValueError(
                f"reasoning_effort is for engine = 'openai', not {self.engine!r}: set the switches "
                "of the model's chat template (template_options)"
            )
        if self.coalesce != "off" and self.engine != "openai":
            raise ValueError(f"coalesce is for engine = 'openai', not {self.engine!r}")
        if self.coalesce_tenants and self.coalesce == "off":
            raise ValueError("coalesce_tenants sets who shares coalesced calls: set coalesce, too")
        if self.hedge_with and self.hedge_after is None:
            raise ValueError("hedge_with sets where hedged requests go: set hedge_after, too")
        return self

    @model_validator(mode="after")
    def _check_images(self) -> Self:
        if self.images and self.engine != "openai":
            raise ValueError(
                f"images = true is for engine = 'openai', not {self.engine!r}: it accepts only text"
            )
        return self

    @model_validator(mode="after")
    def _check_embeddings(self) -> Self:
        if self.embeddings and self.engine != "openai":
            raise ValueError(f"embeddings = true is for engine = 'openai', not {self.engine!r}")
        if self.embeddings and (self.hedge_with or self.fallbacks or self.images):
            raise ValueError(
                "embeddings = true excludes fallbacks, hedge_with and images: the vectors of"
                " different models cannot be compared"
            )
        return self

    @model_validator(mode="after")
    def _check_quantization(self) -> Self:
        if self.quantization != "none" and self.engine != "torch":
            hint = (
                "give llama_cpp a quantized GGUF file: train export --gguf --precision"
                if self.engine == "llama_cpp"
                else "its weights are not in this process"
            )
            raise ValueError(
                f"quantization = {self.quantization!r} is for engine = 'torch', not "
                f"{self.engine!r}: {hint}"
            )
        return self

    @model_validator(mode="after")
    def _check_plain_logprobs(self) -> Self:
        if self.plain_logprobs and self.engine not in ("torch", *SERVED):
            raise ValueError(
                f"plain_logprobs is for engine = 'torch', 'vllm' and 'sglang', not "
                f"{self.engine!r}: set it to false"
            )
        return self

    @model_validator(mode="after")
    def _check_template_options(self) -> Self:
        if not self.template_options:
            return self
        if self.engine == "scripted":
            raise ValueError("template_options: the scripted engine has no chat template")
        if self.engine == "openai" and self.base_url is None:
            raise ValueError(
                "template_options: OpenAI itself takes none; they are for an endpoint of your own "
                "(base_url)"
            )
        return self

    @model_validator(mode="after")
    def _check_dtype(self) -> Self:
        if self.dtype == "float64" and self.engine != "torch":
            raise ValueError(f"dtype = 'float64' is for engine = 'torch', not {self.engine!r}")
        return self

    @property
    def endpoint(self) -> str | None:
        """Identifies an endpoint that all workers share, with one rate limit and one circuit
        breaker for all of them. None where every worker has its own model or server."""
        if self.engine == "openai" or (self.engine == "vllm" and not self.managed):
            return f"{self.base_url} {self.model} {self.api_key_env}"
        return None

    def sampling(self, *, endpoint_defaults: bool = False) -> SamplingParams:
        """The pool's default sampling, for requests without their own. `endpoint_defaults` is as in
        `GenerationOptions`."""
        limit = NO_LIMIT if endpoint_defaults else DEFAULT
        leaves = endpoint_defaults and self.engine == "openai" and self.temperature is None
        return SamplingParams(
            temperature=USUAL_TEMPERATURE if leaves else self.temperature or 0.0,
            endpoint_temperature=leaves,
            top_p=self.top_p,
            max_tokens=limit if self.max_tokens is None else self.max_tokens,
            reasoning_effort=self.reasoning_effort,
        )


def cost_micro_dollars(usage: Usage, price: Price) -> int:
    """Cost of one completion, in whole micro-dollars.

    (prompt - cached) * price.prompt + cached * price.cached + completion * price.completion, in
    exact decimal arithmetic, then rounded once, half up. The sum over n completions is therefore at
    most n/2 micro-dollars away from the exact sum. Reasoning tokens are part of `completion`.
    Raises ValueError if more tokens are cached than were in the prompt.
    """
    if usage.cached > usage.prompt:
        raise ValueError(f"{usage.cached} cached tokens in a prompt of {usage.prompt}")
    prompt_price = price.prompt or Decimal(0)
    cached_price = prompt_price if price.cached is None else price.cached
    exact = (
        (usage.prompt - usage.cached) * prompt_price
        + usage.cached * cached_price
        + usage.completion * (price.completion or Decimal(0))
    )
    return int(exact.quantize(Decimal(1), rounding=ROUND_HALF_UP))


def max_micro_dollars(prompt: int, completion: int, price: Price) -> int:
    """Upper bound of the cost of a call with that many tokens, rounded up: nothing comes from a
    cache, unless cached tokens cost more."""
    dearest = max(price.prompt or Decimal(0), price.cached or Decimal(0))
    exact = prompt * dearest + completion * (price.completion or Decimal(0))
    return int(exact.to_integral_value(ROUND_CEILING))


def _is_address(url: str) -> bool:
    try:
        return (
            urlsplit(url.strip()).port != 0
            and re.match(r"https?://[^/\s]+\S*$", url.strip()) is not None
        )
    except ValueError:  # a port that is not a number, an unclosed bracket
        return False
