"""Scripted models for tests of an app, in the test's own process."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from loopline.agents.records import Message
from loopline.runtime.app.session import LocalSession
from loopline.runtime.errors import InputError
from loopline.workers.engine_runner import CallTool, EnginePool, EngineRunner
from loopline.workers.engines.factory import build_engine
from loopline.workers.engines.protocol import Engine, GenerateRequest
from loopline.workers.engines.scripted.engine import ScriptedEngine
from loopline.workers.engines.scripted.script import ScriptedCall, ScriptedReply
from loopline.workers.engines.settings import ModelSettings

Reply = str | ScriptedCall
Model = Sequence[Reply] | Callable[[tuple[Message, ...]], Reply] | ModelSettings


def call(tool: str, /, **arguments: Any) -> ScriptedCall:
    """Tool call that a model makes."""
    return ScriptedCall(tool, arguments)


class LimitedEngine(ScriptedEngine):
    """Model that returns its scripted answers in the order of the requests."""

    def __init__(self, settings: ModelSettings, pool: str, model: Any) -> None:
        super().__init__(settings)
        self._pool = pool
        self._model = model
        self._count = itertools.count()

    def _reply(self, request: GenerateRequest, index: int) -> ScriptedReply:
        if callable(self._model):
            reply = self._model(request.messages)
        else:
            number = next(self._count)
            if number >= len(self._model):
                raise InputError(
                    f"the test gave the model {self._pool!r} {len(self._model)} replies, and it was"
                    f" asked once more: {request.messages[-1].content[:200]!r}"
                )
            reply = self._model[number]
        if isinstance(reply, ScriptedCall):
            return ScriptedReply("", (reply,))
        return ScriptedReply(str(reply))


@asynccontextmanager
async def local_session(
    models: Mapping[str, Model], call_tool: CallTool
) -> AsyncGenerator[LocalSession]:
    """Start the engines and yield a session on them."""
    async with AsyncExitStack() as stack:
        pools: dict[str, EnginePool] = {}
        for name, model in models.items():
            pool = _pool(name, model)
            await pool.engine.start()
            stack.push_async_callback(pool.engine.close)
            pools[name] = pool
        session = LocalSession(EngineRunner(pools, call_tool), pools)
        stack.push_async_callback(session.close)
        yield session


def _pool(name: str, model: Model) -> EnginePool:
    if isinstance(model, ModelSettings):
        return EnginePool(model, build_engine(model))
    settings = ModelSettings(engine="scripted", model=f"told-{name}", max_tokens=100_000)
    engine: Engine = LimitedEngine(settings, name, model)
    return EnginePool(settings, engine)
