"""An SGLang server that the worker runs (see `loopline.workers.engines.vllm.managed`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import ClassVar

from loopline.workers.engines.settings import ModelSettings
from loopline.workers.engines.vllm.managed import ManagedServer, Options

PYTHON_VARIABLE = "LOOPLINE_SGLANG_PYTHON"
"""Environment variable with the interpreter of the environment in which SGLang is installed."""


OWN_PYTHON = Path(sys.prefix) / "sglang" / "bin" / "python"


class ManagedSglang(ManagedServer):
    """An SGLang server: `python -m sglang.launch_server …`."""

    kind: ClassVar[str] = "SGLang"
    program: ClassVar[str] = "sglang.launch_server"
    variable: ClassVar[str] = PYTHON_VARIABLE

    @classmethod
    def python(cls, settings: ModelSettings) -> Path:
        return find_python(settings)

    def command(self) -> list[str]:
        """Build the command line; `sglang.args` comes last and wins."""
        settings, options = self._settings, self._settings.sglang
        values: Options = {
            "model-path": self.model,
            "host": "127.0.0.1",
            "port": self._port,
            "served-model-name": self.served_name,
            "dtype": settings.dtype,
            "max-running-requests": settings.max_concurrency,
            "grammar-backend": "llguidance",
            "constrained-json-disable-any-whitespace": True,
        }
        if settings.max_context is not None:
            values["context-length"] = self._text.max_context
        if settings.revision is not None and not self._has_weights():
            values["revision"] = settings.revision
        if options.max_adapters:
            values |= {
                "enable-lora": True,
                "max-loras-per-batch": options.max_adapters,
                "max-lora-rank": options.max_rank,
                "lora-target-modules": "all",
            }
        if options.deterministic:
            values["enable-deterministic-inference"] = True
        if options.gpu_turns is not None:
            values["enable-memory-saver"] = True
        if options.gpu_share is not None:
            values["mem-fraction-static"] = options.gpu_share
        return [str(self._python), "-m", "sglang.launch_server", *self.flags(values)]

    def own_environment(self) -> dict[str, str]:
        environment = {"PYTHONUNBUFFERED": "1"}
        if self._has_weights():
            environment["HF_HUB_OFFLINE"] = "1"
        return environment


def find_python(settings: ModelSettings) -> Path:
    """The interpreter that runs SGLang, whether or not it exists; by default `sglang/bin/python`
    below this environment."""
    named = settings.sglang.python or os.environ.get(PYTHON_VARIABLE)
    return Path(named).expanduser() if named else OWN_PYTHON
