"""The hash of a model's weights, by which an adapter knows its base."""

from __future__ import annotations

from workers.engines.local.adapter_base import weights_sha256

__all__ = ["weights_sha256"]
