"""Engines, which turn a prompt into tokens, behind one small protocol.

`build_engine(ModelSettings(…))` returns one; `protocol` describes its interface.
"""

from loopline.workers.engines.factory import build_engine, engine_names
from loopline.workers.engines.settings import (
    ModelSettings,
    Price,
    ScriptedOptions,
    cost_micro_dollars,
)

__all__ = [
    "ModelSettings",
    "Price",
    "ScriptedOptions",
    "build_engine",
    "cost_micro_dollars",
    "engine_names",
]
