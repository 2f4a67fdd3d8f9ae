"""Names of the providers that serve pools, in OpenTelemetry's terms."""

from __future__ import annotations

from urllib.parse import urlsplit

from loopline.workers.engines.settings import ModelSettings

_PROVIDERS = {
    "anthropic.com": "anthropic",
    "azure.com": "azure.ai.openai",
    "cohere.com": "cohere",
    "deepseek.com": "deepseek",
    "googleapis.com": "gcp.gemini",
    "groq.com": "groq",
    "mistral.ai": "mistral_ai",
    "moonshot.ai": "moonshot_ai",
    "perplexity.ai": "perplexity",
    "x.ai": "x_ai",
}
"""OpenTelemetry's provider names, by the domain of their endpoints."""


def provider_of(settings: ModelSettings) -> str:
    """Name of the provider that serves a pool, in OpenTelemetry's terms: a known provider, `openai`
    for an unknown endpoint with its API, otherwise the engine."""
    if settings.engine != "openai" or settings.base_url is None:
        return settings.engine
    host = urlsplit(settings.base_url.strip()).hostname or ""
    domain = ".".join(host.split(".")[-2:])
    return _PROVIDERS.get(domain, "openai")
