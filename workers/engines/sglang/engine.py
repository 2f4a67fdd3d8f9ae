"""Models in SGLang servers: running servers, or one that the gpu worker starts itself.

It works like `loopline.workers.engines.vllm.engine`, with these differences. Seeds are
reproducible, and interrupted streams continue at another server, only if servers run with
`--enable-deterministic-inference`; otherwise an interrupted stream starts again. Log-probabilities
refer to the distribution before `top_p` and `top_k`: calls with these have none. Whole models are
exchanged in place.
"""

from __future__ import annotations

from typing import Any, ClassVar

from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.sglang.managed import ManagedSglang
from loopline.workers.engines.sglang.server import SglangServer
from loopline.workers.engines.vllm.engine import VllmEngine
from loopline.workers.engines.vllm.managed import ManagedServer
from loopline.workers.engines.vllm.server import Server


class SglangEngine(VllmEngine):
    """See the module docstring."""

    engine_name: ClassVar[str] = "sglang"
    server_class: ClassVar[type[Server]] = SglangServer
    process_class: ClassVar[type[ManagedServer]] = ManagedSglang
    exchanges_weights: ClassVar[bool] = True


def engine(settings: ModelSettings) -> Any:
    """Entry point of the factory."""
    return SglangEngine(settings)
