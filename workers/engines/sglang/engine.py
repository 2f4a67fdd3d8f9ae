"""Models in SGLang servers, running ones or one that the gpu worker starts itself.

As `loopline.workers.engines.vllm.engine` does it, with these differences. Seeds hold, and streams
go on at another server, only where servers run with `--enable-deterministic-inference`; else a
stream that breaks off begins again. Log-probabilities are of the distribution before `top_p` and
`top_k`: calls with these have none. Whole models are exchanged where they lie.
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
    """See the module."""

    engine_name: ClassVar[str] = "sglang"
    server_class: ClassVar[type[Server]] = SglangServer
    process_class: ClassVar[type[ManagedServer]] = ManagedSglang
    exchanges_weights: ClassVar[bool] = True


def engine(settings: ModelSettings) -> Any:
    """Entry point of the factory."""
    return SglangEngine(settings)
